"""The model's side of a run: who downloaded what, what came back, what the model became, how good it is.

It is told of downloads and uploads by whoever runs the clock, and never influences them. So a run can be resumed by
replaying its schedule, which is quick, up to a checkpoint, and training only from there.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from fedtwin.config import Config, LearningConfig
from fedtwin.errors import FedtwinError, FedtwinWarning, UnfitCheckpointError
from fedtwin.learning.aggregation import Upload, aggregation_of
from fedtwin.learning.aggregation.held import Held, Move, is_tensor
from fedtwin.learning.aggregation.refusals import Refusal, newest_counters, refusal
from fedtwin.learning.card import fit_of
from fedtwin.learning.charges import undercharged
from fedtwin.learning.compression import compressor_of, upload_bits
from fedtwin.learning.elsewhere import require_the_same_elsewhere
from fedtwin.learning.evaluation import Evaluation, number_or_none
from fedtwin.learning.executors import Executor, make_executor, make_workload
from fedtwin.learning.global_loss import GlobalLoss
from fedtwin.learning.kept import KeptModel
from fedtwin.learning.layout import Floats, Weights
from fedtwin.learning.lessons import lesson_of
from fedtwin.learning.local import Trained
from fedtwin.learning.notices import drawn_more_than_once, never_changed, never_gathered, notices, variances_out_of_bounds
from fedtwin.learning.passed_over import passed_over
from fedtwin.learning.rates import past_the_schedule, rounds_of, short_of_the_schedule
from fedtwin.learning.shares import shares_of
from fedtwin.learning.tasks import task_of
from fedtwin.learning.trial import errors_as_sentences

MOST_EVALUATIONS_WAITING = 8


class Download(NamedTuple):
    """A device in flight: its round, the model version it holds, the model itself, its task, the samples it trains on."""

    round: int
    version: int
    weights: Weights | None
    key: int
    samples: int


class Evaluating(NamedTuple):
    """An evaluation under way: the keys of the served model's and, where that is another one, of the plain model's."""

    key: int
    plain_key: int | None
    evaluation: Evaluation
    served: Weights


@dataclass
class LearnerState:
    """All that a checkpoint holds: with the schedule, which is replayed, it is the whole state of a training run.

    The training loss of a refused upload is NaN.
    """

    round: int = 0
    uploads: int = 0
    version: int = 0
    model: Weights | None = None
    train_losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    starts: dict[int, Weights] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    aggregator: Held = Held(None, [])  # noqa: RUF009
    refusals: list[Refusal] = field(default_factory=list)
    kept: KeptModel = field(default_factory=KeptModel)
    left_out: dict[int, Floats] = field(default_factory=dict)


class Learner:
    """One model in training."""

    def __init__(
        self,
        config: Config,
        samples: Sequence[int],
        resume: LearnerState | None = None,
        executor: Executor | None = None,
        *,
        least_samples: Sequence[int] | None = None,
    ) -> None:
        if config.learning is None:
            raise ValueError("a run without [learning] has no learner")
        from fedtwin.learning.data import load_dataset

        self._config, self._learning, self._samples = config, config.learning, samples
        self._rule = aggregation_of(config)
        self.questions = self._rule.keep_questions()
        self._task = task_of(config.learning)
        data = load_dataset(config.learning.dataset, config.learning)
        self.fit = fit_of(data)
        self._shares = shares_of(config, data, len(samples))
        workload = make_workload(config, data.shape, data.outputs)
        workload.check(samples if least_samples is None else least_samples)
        require_the_same_elsewhere(workload)
        for sentence in notices(config.learning, data, self._shares):
            warnings.warn(sentence, FedtwinWarning, stacklevel=2)
        self.layout, initial = workload.initial()
        charge = undercharged(config, upload_bits(self.layout, config.learning))
        rate = short_of_the_schedule(config, rounds_of(config, len(samples)))
        variances = variances_out_of_bounds(self._learning, self._rule, self.layout)
        for told in (charge, variances, passed_over(config), never_gathered(config, self._rule), rate):
            if told is not None:
                warnings.warn(told, FedtwinWarning, stacklevel=2)
        self._compressor = compressor_of(config.learning, self.layout)
        self._left_out: dict[int, Floats] = {}
        where = "cuda" if "cuda" in (config.learning.executor, config.learning.device) else "cpu"
        self._global_loss = GlobalLoss(workload, self._shares, where) if config.learning.record_gradient else None
        self._executor: Executor = executor if executor is not None else make_executor(workload)
        self._model = self._executor.adopt(initial)
        try:
            self._gathered = self._rule.init(self._model.floats)
        except BaseException:
            self._executor.close()
            raise
        self._in_flight: dict[int, Download] = {}
        self._evaluating: list[Evaluating] = []
        self._kept = KeptModel()
        self._keys = 0
        self._told_of_few = self._told_of_the_rate = False
        self._version = 0
        self._uploads = 0
        self._next_evaluation = 0
        self._train_losses: list[float] = []
        self._evaluations: list[Evaluation] = []
        self._refusals: list[Refusal] = list(resume.refusals) if resume is not None else []
        self._energy_j = self._cost_spent = 0.0
        self._resume = resume

    @property
    def replaying(self) -> bool:
        """True until the schedule has come to where the checkpoint was written: nothing is trained before."""
        return self._resume is not None

    @property
    def model(self) -> Weights:
        """The one that devices download."""
        return self._executor.host(self._model)

    @property
    def served(self) -> Weights:
        """The one that is evaluated and handed out."""
        return self._executor.host(self._served)

    def weights(self) -> dict[str, np.ndarray]:
        """The model that is served as named arrays, for its user to keep."""
        return {name: np.array(tensor) for name, tensor in self.layout.unpack(self.served).items()}

    def downloaded(self, device: int, round_: int, samples: int | None = None) -> None:
        """The device holds the newest model; its training can begin, on D_n(t) samples, or on D_n if they are not told."""
        samples = self._samples[device] if samples is None else samples
        if samples > len(self._shares[device]) and not self._told_of_few:
            self._told_of_few = True
            sentence = drawn_more_than_once(self._learning, device, samples, len(self._shares[device]))
            warnings.warn(sentence, FedtwinWarning, stacklevel=2)
        if not self._told_of_the_rate and (told := past_the_schedule(self._config, round_)) is not None:
            self._told_of_the_rate = True
            warnings.warn(told, FedtwinWarning, stacklevel=2)
        if self.replaying:
            self._in_flight[device] = Download(round_, 0, None, -1, samples)
            return
        self._begin(device, Download(round_, self._version, self._model, self._new_key(), samples))

    @property
    def refusals(self) -> list[Refusal]:
        """The uploads that were not mixed in; those up to the checkpoint from the beginning of a replay."""
        return list(self._refusals)

    def spent(self, energy_j: float, cost: float) -> None:
        """By a device for an update, whether or not that arrives; evaluations tell the sums."""
        self._energy_j += energy_j
        self._cost_spent += cost

    def uploaded(self, device: int, round_: int, clock_s: float) -> float | None:
        """The device's update arrives and is mixed in, or refused. Returns its mean training loss, None if refused."""
        download = self._in_flight.pop(device)
        self._uploads += 1
        if self._resume is not None:
            if self._uploads > len(self._resume.train_losses):
                raise _unfit_checkpoint()
            train_loss = self._resume.train_losses[self._uploads - 1]
            return None if np.isnan(train_loss) else train_loss
        with errors_as_sentences(self._learning.model):
            trained, left_out = self._arrived(device, download, self._executor.result(download.key))
        reason = refusal(self._model, trained.weights, finite=trained.finite, train_loss=trained.train_loss)
        if reason is not None:
            self._refuse(Refusal(round_, clock_s, device, reason))
            return None
        if left_out is not None:
            self._left_out[device] = left_out
        start = download.weights or self._model
        upload = Upload(
            start.floats if self._rule.needs_start else None,
            _alone(trained.weights.floats) if self._rule.keeps_something(self._gathered) else trained.weights.floats,
            self._version - download.version,
            float(download.samples),
            device,
            download.round,
        )
        self._gathered, floats = self._rule.apply(self._gathered, self._model.floats, upload)
        self._become(floats, trained.weights)
        self._train_losses.append(trained.train_loss)
        return trained.train_loss

    def _arrived(self, device: int, download: Download, trained: Trained) -> tuple[Trained, Floats | None]:
        """The training as the edge server has it after what was sent of it came, and e_n from then on, if it is mixed in."""
        if self._compressor is None or not trained.finite:
            return trained, None
        start = self._executor.host(download.weights or self._model)
        sent = self._compressor.send(start, self._executor.host(trained.weights), self._left_out.get(device))
        weights = self._compressor.receive(start, sent.parts)
        finite = bool(np.isfinite(weights.floats).all())
        return replace(trained, weights=self._executor.adopt(weights), finite=finite), sent.left_out

    def round_closed(self) -> None:
        """A synchronous round has ended."""
        if not self.replaying:
            self._gathered, floats = self._rule.close_round(self._gathered, self._model.floats)
            self._become(floats, self._model)

    def evaluate_until(self, clock_s: float, round_: int) -> None:
        """Evaluates the model as it has stood at every multiple of ``evaluate_every_s`` up to now."""
        every = self._learning.evaluate_every_s
        while self._next_evaluation * every <= clock_s:
            self._evaluate(round_, self._next_evaluation * every)
            self._next_evaluation += 1

    def evaluate_at_the_end(self, clock_s: float, round_: int) -> None:
        if self.replaying:
            raise _unfit_checkpoint()
        self._evaluate(round_, clock_s)
        self._collect_evaluations()
        self._require_no_memory()
        mixed_in = self._uploads - len(self._refusals)
        if mixed_in and not self._version:
            warnings.warn(never_changed(mixed_in), FedtwinWarning, stacklevel=2)

    def go_on(self, round_: int) -> None:
        """Called between rounds: where the replay has come to the checkpoint, training begins again."""
        state = self._resume
        if state is None or (self._uploads, round_) != (state.uploads, state.round):
            return
        held = [state.model, *state.starts.values()]
        shapes = [(weights.floats.shape, weights.counters.shape) for weights in held if weights is not None]
        mine = ((self.layout.float_size,), (self.layout.counter_size,))
        in_flight = set(self._in_flight)
        if state.model is None or set(shapes) != {mine} or set(state.starts) != in_flight or set(state.versions) != in_flight:
            raise _unfit_checkpoint()
        error_size = 0 if self._compressor is None else self._compressor.error_size
        if any(error.shape != (error_size,) for error in state.left_out.values()):
            raise _unfit_checkpoint()
        self._resume, self._left_out = None, dict(state.left_out)
        self._model, self._version = self._executor.adopt(state.model), state.version
        try:
            self._gathered = self._rule.restore(state.aggregator, self._model.floats, self._moved(self._executor.adopt))
        except (KeyError, IndexError, ValueError):
            raise _unfit_checkpoint() from None
        self._train_losses, self._evaluations = list(state.train_losses), list(state.evaluations)
        self._kept = self._kept_moved(state.kept, self._executor.adopt)
        for device, download in list(self._in_flight.items()):
            weights = self._executor.adopt(state.starts[device])
            fresh = download._replace(version=state.versions[device], weights=weights, key=self._new_key())
            self._begin(device, fresh)

    def state(self, round_: int) -> LearnerState:
        """Everything a checkpoint between two rounds needs, with all evaluations finished."""
        self._collect_evaluations()
        self._require_no_memory()
        return LearnerState(
            round_,
            self._uploads,
            self._version,
            self.model,
            list(self._train_losses),
            list(self._evaluations),
            {device: self._executor.host(d.weights) for device, d in self._in_flight.items() if d.weights is not None},
            {device: d.version for device, d in self._in_flight.items()},
            self._rule.hold(self._gathered, self._model.floats, self._moved(self._executor.host)),
            self.refusals,
            self._kept_moved(self._kept, self._executor.host),
            dict(self._left_out),
        )

    @property
    def kept(self) -> KeptModel:
        """The best model so far."""
        self._collect_evaluations()
        return self._kept_moved(self._kept, self._executor.host)

    def evaluations(self) -> list[Evaluation]:
        self._collect_evaluations()
        return self._evaluations

    def close(self) -> None:
        self._executor.close()

    def _begin(self, device: int, download: Download) -> None:
        self._in_flight[device] = download
        lesson = lesson_of(self._config, self._shares[device], device, download.round, download.samples)
        self._executor.submit(download.key, download.weights or self._model, lesson)

    def _refuse(self, refused: Refusal) -> None:
        """The upload is written down and changes nothing else; one too many ends the run."""
        self._refusals.append(refused)
        self._train_losses.append(np.nan)
        if len(self._refusals) > self._learning.most_refusals:
            raise FedtwinError(_one_too_many(self._learning, refused))

    def _become(self, floats: np.ndarray, upload: Weights) -> None:
        self._version += floats is not self._model.floats
        self._model = Weights(floats, newest_counters(self._model.counters, upload.counters))

    def _evaluate(self, round_: int, clock_s: float) -> None:
        if self.replaying:
            return
        served = self._served
        key, plain_key = self._new_key(), self._new_key() if served.floats is not self._model.floats else None
        with errors_as_sentences(self._learning.model):
            self._executor.submit_evaluation(key, served)
            if plain_key is not None:
                self._executor.submit_evaluation(plain_key, self._model)
            found = None if self._global_loss is None else self._global_loss.at(self.model)
        evaluation = Evaluation(round_, clock_s, self._energy_j, np.nan, cost_spent=self._cost_spent)
        if found is not None:
            evaluation = evaluation._replace(global_loss=found.loss, gradient_norm2=found.norm2)
        self._evaluating.append(Evaluating(key, plain_key, evaluation, served))
        self._collect_evaluations(MOST_EVALUATIONS_WAITING)

    def _require_no_memory(self) -> None:
        require = getattr(self._executor, "require_no_memory", None)  # an executor of the user's own may do without
        if require is not None:
            with errors_as_sentences(self._learning.model):
                require()

    def _collect_evaluations(self, but: int = 0) -> None:
        """All but the newest so many: each holds its model until it is known how good that is."""
        while len(self._evaluating) > but:
            key, plain_key, evaluation, served = self._evaluating.pop(0)
            with errors_as_sentences(self._learning.model):
                outcome = self._executor.evaluation(key)
                plain = outcome if plain_key is None else self._executor.evaluation(plain_key)
            if not np.isfinite([outcome.test_loss, plain.test_loss]).all():
                raise FedtwinError(
                    f"learning.learning_rate = {self._learning.learning_rate:g} diverges: the model's loss on the test set in "
                    f"round {evaluation.round} is not finite; the records up to there are kept, try a smaller rate."
                )
            metric = number_or_none(outcome.test_metric)
            accuracy = metric if self._task.is_accuracy else None
            told = evaluation._replace(test_loss=outcome.test_loss, test_accuracy=accuracy, test_metric=metric)
            if self._config.averages:
                told = told._replace(plain_test_loss=plain.test_loss, plain_test_metric=number_or_none(plain.test_metric))
            self._evaluations.append(told)
            self._kept.measured(told, served, self._task.direction)

    @property
    def _served(self) -> Weights:
        """BatchNorm's statistics are averaged with the rest, its counters are the model's."""
        return Weights(self._rule.served(self._gathered, self._model.floats), self._model.counters)

    def _moved(self, move: Callable[[Weights], Weights]) -> Move:
        """The way of a model, for a vector like it that the rule holds."""
        return lambda vector: move(Weights(vector, self._model.counters)).floats

    def _kept_moved(self, kept: KeptModel, move: Callable[[Weights], Weights]) -> KeptModel:
        return replace(kept, best=None if kept.best is None else move(kept.best))

    def _new_key(self) -> int:
        self._keys += 1
        return self._keys


def _alone(vector: Any) -> Any:
    """A vector that a rule may keep: one row of the trainings done together on a GPU would keep all of them in memory."""
    return vector.clone() if is_tensor(vector) and vector.untyped_storage().nbytes() > vector.nbytes else vector


def _unfit_checkpoint() -> UnfitCheckpointError:
    return UnfitCheckpointError("The checkpoint does not fit the schedule: it is from another run or version.")


def _one_too_many(learning: LearningConfig, refused: Refusal) -> str:
    """The sentence a run ends with. An upload that does not fit is nothing that a smaller rate would mend."""
    whose = f"the update of device {refused.device} that arrived in round {refused.round}"
    if "not finite" in refused.reason:
        return (
            f"learning.learning_rate = {learning.learning_rate:g} diverges: {whose} is not finite; "
            f"the records up to there are kept, try a smaller rate."
        )
    return (
        f"learning.most_refusals = {learning.most_refusals}: {whose} is one too many, of {refused.reason}; "
        f"the records up to there are kept."
    )
