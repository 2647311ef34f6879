"""FADAS: an AMSGrad step by the mean of K changes, Δ = 1/K Σ (w_n − w_n,start) (Wang et al., ICML 2024):

    m ← β1 m + (1 − β1) Δ,   v ← β2 v + (1 − β2) Δ²,   v̂ ← max(v̂, v),   w ← w + η_t m / (√v̂ + ε)

η_t is η up to a largest staleness τ of τ_c among the K. Beyond it, by ``delay``: ``ratio`` η/τ, which is what the authors' code
does; ``bound`` min(η, 1/τ), as the paper has it, which for an η below 1/τ changes nothing; ``none`` η.
"""

from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, Field

from fedtwin.learning.aggregation.base import Aggregator, Mixing, Upload

DELAYS = ("ratio", "bound", "none")


def known_delay(word: str) -> str:
    if word not in DELAYS:
        raise ValueError(f"one of {', '.join(DELAYS)}")
    return word


class Steps(NamedTuple):
    """η, β1, β2, ε, τ_c; K is ``buffer_size``."""

    rate: Annotated[float, Field(gt=0.0)] = 0.001
    beta1: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.9
    beta2: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.99
    epsilon: Annotated[float, Field(gt=0.0)] = 1e-8
    delay: Annotated[str, AfterValidator(known_delay)] = "ratio"
    delay_threshold: Annotated[int, Field(ge=0)] = 1


class Amsgrad(NamedTuple):
    """m, v, v̂; of the uploads since the last step the sum of changes, their number, and the largest staleness."""

    m: Any
    v: Any
    v_hat: Any
    changes: Any
    held: int = 0
    delay: int = 0


def init(model: Any, settings: Mixing) -> Amsgrad:  # noqa: ARG001
    nothing = 0.0 * model
    return Amsgrad(nothing, nothing, nothing, nothing)


def apply(state: Amsgrad, model: Any, upload: Upload, settings: Mixing) -> tuple[Amsgrad, Any]:
    changes = state.changes + (upload.weights - upload.start)
    held, delay, own = state.held + 1, max(state.delay, upload.staleness), settings.own
    if held < settings.buffer_size:
        return state._replace(changes=changes, held=held, delay=delay), None
    change = changes / held
    m = own.beta1 * state.m + (1.0 - own.beta1) * change
    v = own.beta2 * state.v + (1.0 - own.beta2) * change * change
    v_hat = state.v_hat.clip(min=v)
    return Amsgrad(m, v, v_hat, 0.0 * model), model + rate_of(delay, own) * m / (v_hat**0.5 + own.epsilon)


def rate_of(delay: int, steps: Steps) -> float:
    """η_t."""
    if steps.delay == "none" or delay <= steps.delay_threshold:
        return steps.rate
    return steps.rate / delay if steps.delay == "ratio" else min(steps.rate, 1.0 / delay)


RULE = Aggregator(init, apply, settings=Steps, needs_start=True, extrapolates=True, reads=("buffer_size",))
