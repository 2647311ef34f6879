"""What an aggregation rule is: a state, and functions that take an upload and give the next state and the next model.

Models and uploads are flat vectors of float32: NumPy's on the CPU and in an edge server, PyTorch's on a GPU. A rule uses the
operators that both have, changes nothing in place, and looks at nothing but its arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, get_args

from fedtwin.errors import FedtwinError
from fedtwin.parts import check_schema
from fedtwin.registry import Mode

SETTINGS_OF = (float, int, bool, str)


class Upload(NamedTuple):
    """One upload: the model it started from (None, unless the rule needs it), its weights, how many versions of the model it is
    behind, the samples it was trained on, its device, and the round in which that was chosen (0: the first M).
    """

    start: Any
    weights: Any
    staleness: int
    samples: float
    device: int
    round: int


STALENESS = ("staleness", "staleness_exponent", "hinge_a", "hinge_b")


class Mixing(NamedTuple):
    """What a rule is told: the settings of ``[learning]`` that speak of mixing, and those it has declared for itself."""

    mixing: float
    staleness: str
    staleness_exponent: float
    hinge_a: float
    hinge_b: float
    buffer_size: int
    own: Any = ()


SETTINGS_READ = tuple(name for name in Mixing._fields if name != "own")

Init = Callable[[Any, Mixing], Any]
Apply = Callable[[Any, Any, Upload, Mixing], tuple[Any, Any]]
CloseRound = Callable[[Any, Any, Mixing], tuple[Any, Any]]


@dataclass(frozen=True)
class Aggregator:
    """An aggregation rule.

    ``init(model, settings)`` gives the state a run begins with, ``()`` of a rule that has none. ``apply(state, model, upload,
    settings)`` gives the next state and the next model, or None where the model stays what it is; so does ``close_round(state,
    model, settings)``, at the end of a synchronous round. A state is made of arrays, numbers and None in tuples, lists,
    dictionaries and NamedTuples, so that a checkpoint can hold it.

    ``settings`` is a NamedTuple class of numbers or words with defaults, found in ``settings.own``. ``needs_start`` asks for
    the model an upload started from. ``modes`` says for which ``run.mode`` the rule is. ``extrapolates`` says that a new model
    may lie far beyond the model and all uploads: a run tells where that is no good. ``reads`` names the settings of
    ``[learning]`` that the rule looks at: a run tells of one that was set and is not among them.
    """

    init: Init
    apply: Apply
    close_round: CloseRound | None = None
    settings: type | None = None
    needs_start: bool = False
    modes: tuple[Mode, ...] = get_args(Mode)
    extrapolates: bool = False
    reads: tuple[str, ...] = SETTINGS_READ

    def __post_init__(self) -> None:
        for name in ("init", "apply", "close_round"):
            function = getattr(self, name)
            if not callable(function) and not (name == "close_round" and function is None):
                raise FedtwinError(f"{name} = {function!r} is a {type(function).__name__}: a function is needed.")
        if self.settings is not None:
            check_schema("settings", self.settings, SETTINGS_OF)
        if not isinstance(self.modes, tuple) or not self.modes or not set(self.modes) <= set(get_args(Mode)):
            raise FedtwinError(f"modes = {self.modes!r} is not allowed: it must be a tuple of {' and '.join(get_args(Mode))}.")
        if not isinstance(self.reads, tuple) or not set(self.reads) <= set(SETTINGS_READ):
            raise FedtwinError(
                f"reads = {self.reads!r} is not allowed: it must be a tuple of some of {', '.join(SETTINGS_READ)}."
            )


def with_these_only(settings: Mixing, reads: Sequence[str]) -> Mixing:
    """The same settings; a rule that looks at one that its ``reads`` does not name is told so, with file and line."""
    hidden = frozenset(SETTINGS_READ) - frozenset(reads)

    class Declared(Mixing):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in hidden:
                raise AttributeError(f"settings.{name} is not among the rule's reads = {tuple(reads)!r}")
            return super().__getattribute__(name)

        def __iter__(self) -> NoReturn:
            raise TypeError(f"the settings are read by name: a rule with reads = {tuple(reads)!r} does not see all of them")

        def __getitem__(self, place: object) -> NoReturn:
            self.__iter__()

    return Declared(*settings) if hidden else settings


def no_state(model: Any, settings: Mixing) -> tuple[()]:  # noqa: ARG001
    """The ``init`` of a rule that remembers nothing."""
    return ()
