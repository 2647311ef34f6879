"""A rule at work in a run: named, with its settings, and held to its word.

Rules of fedtwin's own are held to theirs by tests. Of others every answer is looked at: a pair, a model of the model's shape
and type, finite. What must not be changed in place cannot be (NumPy), or is compared (PyTorch), with the state and a second
answer to the same question, at the first uploads and at some later ones.
"""

import hashlib
import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload, with_these_only
from fedtwin.learning.aggregation.held import Held, Holder, Move, UnholdableError, in_memory, is_tensor, same_bits
from fedtwin.usercode import Questions, of_device, sentence_of_error

FIRST_LOOKS, SHARE_OF_LATER_LOOKS = 3, 0.02
MOST_KEPT_BYTES = 32 * 2**20
"""Questions with their models are kept while they are no more; the first one is, whatever its size."""


class Rule:
    """A rule with its settings. All its functions give what the rule's own give; the model itself where that was None.

    Of one that is ``trusted`` no answer is looked at, of one that is ``doubted`` every answer twice.
    """

    def __init__(
        self, name: str, aggregator: Aggregator, settings: Mixing, *, trusted: bool = False, doubted: bool = False
    ) -> None:
        self.name, self.needs_start, self.extrapolates = name, aggregator.needs_start, aggregator.extrapolates
        self.reads = aggregator.reads
        self._rule, self._trusted = aggregator, trusted
        self._settings = settings if trusted else with_these_only(settings, aggregator.reads)
        self._holder = Holder(aggregator)
        self._questions, self._kept_bytes = Questions(f"learning.aggregation = {name!r}", None), 0
        self._answers, self._chance, self._share = 0, random.Random(0), 1.0 if doubted else SHARE_OF_LATER_LOOKS

    def keep_questions(self) -> list[Questions]:
        """From now on some are kept, each with its models, unless the rule is trusted."""
        if not self._trusted:
            self._questions = Questions(self._questions.called, self._rule.apply)
        return [self._questions]

    def init(self, model: Any) -> Any:
        """The state a run begins with."""
        if self._trusted:
            return self._rule.init(model, self._settings)
        state = self._asked("init", self._rule.init, protected(model), self._settings)
        self.hold(state, model)
        return state

    def apply(self, state: Any, model: Any, upload: Upload) -> tuple[Any, Any]:
        if self._trusted:
            state, new = self._rule.apply(state, model, upload, self._settings)
            return state, model if new is None else new
        return self._answer("apply", self._rule.apply, state, model, _protected(upload))

    def close_round(self, state: Any, model: Any) -> tuple[Any, Any]:
        if self._rule.close_round is None:
            return state, model
        if self._trusted:
            state, new = self._rule.close_round(state, model, self._settings)
            return state, model if new is None else new
        return self._answer("close_round", self._rule.close_round, state, model)

    def served(self, state: Any, model: Any) -> Any:  # noqa: ARG002
        """The model that is evaluated, kept and handed out; devices train on from ``model``."""
        return model

    def keeps_something(self, state: Any) -> bool:
        """Whether anything of an upload may be in the state."""
        return not (isinstance(state, tuple) and len(state) == 0)

    def hold(self, state: Any, model: Any, to_host: Move = in_memory) -> Held:
        """The state as plain data and arrays, or a sentence."""
        try:
            return self._holder.hold(state, model, to_host)
        except UnholdableError as error:
            raise self._fault(f"has a state that no checkpoint can hold: {error}") from None

    def restore(self, held: Held, model: Any, to_executor: Move | None = None) -> Any:
        """The state that was held."""
        return self._holder.restore(held, model, to_executor)

    def is_initial(self, held: Held, model: Any) -> bool:
        """Whether the state is the one that a run would begin with from this model."""
        return same_bits(held, self.hold(self.init(model), model))

    def _answer(self, what: str, function: Callable[..., Any], state: Any, model: Any, *upload: Upload) -> tuple[Any, Any]:
        looks = self._looks_now()
        given = (state, protected(model), *upload, self._settings)
        before = self._copies(model, state, model, *upload) if looks else []
        question = self._question(what, function, state, model, *upload)
        answer = self._asked(what, function, *given)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._fault(f"gives a {type(answer).__name__} in {what}, not a pair of the next state and the next model")
        new = answer[1]
        stays = new is None or new is given[1]
        if not stays:
            self._require_a_model(what, new, model)
        if looks:
            if not all(map(same_bits, before, self._copies(model, state, model, *upload))):
                raise self._fault(f"changes the state, the model or an upload in place in {what}: it must make new ones")
            again = self._asked(what, function, *given)
            if not all(map(same_bits, self._copies(model, *answer), self._copies(model, *again))):
                raise self._fault(f"answers the same question in two ways in {what}: it may look at its arguments only")
        if question is not None:
            where = of_device(upload[0].device, upload[0].round) if upload else "at the end of a round"
            self._questions.keep(where, question, self._digest(answer, model[:0]))
        if stays:
            return answer[0], model
        return answer[0], new if is_tensor(new) or new.flags.writeable else np.array(new)

    def _question(
        self, what: str, function: Callable[..., Any], state: Any, model: Any, *upload: Upload
    ) -> Callable[[], str] | None:
        """The same question again, of copies, if it is to be kept; what it gives is the digest of the answer."""
        device = upload[0].device if upload else -1
        if self._kept_bytes > MOST_KEPT_BYTES or not self._questions.wants(device):
            return None
        kept = self._copies(model, state, model, *upload)
        self._kept_bytes += sum(held.size_bytes for held in kept)
        like = model[:0].clone() if is_tensor(model) else np.array(model[:0])

        def ask() -> str:
            old, of, *uploads = (self._holder.restore(held, like) for held in kept)
            given = [_protected(Upload(*one)) for one in uploads]
            return self._digest(self._asked(what, function, old, protected(of), *given, self._settings), like)

        return ask

    def _digest(self, answer: Any, like: Any) -> str:
        """Of the bits of an answer; ``like`` is a vector of the model's kind, of no length."""
        held = self.hold(answer, like)
        digest = hashlib.sha256(json.dumps(held.form).encode())
        for array in held.arrays:
            digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _require_a_model(self, what: str, new: Any, model: Any) -> None:
        if not (is_tensor(new) if is_tensor(model) else isinstance(new, np.ndarray)):
            raise self._fault(f"gives a {type(new).__name__} for a model in {what}, not a {type(model).__name__}")
        if tuple(new.shape) != tuple(model.shape) or new.dtype != model.dtype:
            found, needed = (f"shape {tuple(array.shape)} and {array.dtype}" for array in (new, model))
            raise self._fault(f"gives a model of {found} in {what}, not of {needed}")
        if is_tensor(new) and new.device != model.device:
            raise self._fault(f"gives a model on {new.device} in {what}, not on {model.device}")
        if not bool(new.isfinite().all() if is_tensor(new) else np.isfinite(new).all()):
            raise self._fault(f"gives a model in {what} that is not finite")

    def _asked(self, what: str, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except FedtwinError:
            raise
        except (Exception, SystemExit) as error:
            hint = ", and nothing may be changed in place" if "read-only" in str(error) else ""
            if not self.needs_start and "NoneType" in str(error):
                hint = " (upload.start is None unless the rule says needs_start=True)"
            raise self._fault(f"fails in {what}: {sentence_of_error(error)}{hint}") from None

    def _copies(self, model: Any, *values: Any) -> list[Held]:
        """Of a state, a model and an upload, as they are now."""
        held = [self.hold(tuple(value) if isinstance(value, Upload) else value, model) for value in values]
        return [Held(one.form, [np.array(array) for array in one.arrays]) for one in held]

    def _looks_now(self) -> bool:
        self._answers += 1
        return self._answers <= FIRST_LOOKS or self._chance.random() < self._share

    def _fault(self, what: str) -> FedtwinError:
        return FedtwinError(f"learning.aggregation = {self.name!r} {what}.")


def protected(vector: Any) -> Any:
    """The same vector, which cannot be written to through this name; PyTorch has no such thing."""
    if not isinstance(vector, np.ndarray):
        return vector
    view = vector.view()
    view.flags.writeable = False
    return view


def _protected(upload: Upload) -> Upload:
    return upload._replace(start=protected(upload.start), weights=protected(upload.weights))
