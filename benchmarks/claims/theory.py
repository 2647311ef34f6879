"""The paper's algebra, recomputed from its printed formulas; nothing here calls fedtwin's own."""

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
from scipy.optimize import brentq
from scipy.special import lambertw

W, NOISE, BITS = 1e6, 10 ** (-18.4), 8e6
CASES = 1000
LN2 = math.log(2.0)


def draws(seed: int = 7) -> list[tuple[float, float, float]]:
    """Gain, power and weight of energy, over the ranges that Section V spans."""
    rng = np.random.default_rng(seed)
    gain = 10 ** rng.uniform(-16, -9, CASES)
    return list(zip(gain, 10 ** rng.uniform(-4, 0, CASES), rng.uniform(0.05, 0.95, CASES), strict=True))


def ratio_of_prices(gain: float, weight: float) -> float:
    """θ_t h / (θ_e δ0²) with T_max = 1 s and E_max = 1.2 J."""
    return (1.0 - weight) * gain / (weight / 1.2 * NOISE)


def phi(upsilon: float) -> float:
    """Left-hand side of (24)."""
    u = 1.0 / (W * upsilon)
    return float(2.0**u * (1.0 - u * LN2))


def closed_form() -> str:
    """(29) against the root of (24) by Brent's method: the largest relative difference of Υ*."""
    worst = 0.0
    for gain, _, weight in draws():
        r = ratio_of_prices(gain, weight)
        printed = LN2 / (W * (1.0 + lambertw((r - 1.0) * 2.0 ** (-1.0 / LN2)).real))
        root = math.exp(brentq(lambda log: phi(math.exp(log)) - 1.0 + r, -20, 20, xtol=1e-15, rtol=1e-14))  # noqa: B023
        worst = max(worst, abs(printed / root - 1.0))
    return "below 1e-12" if worst < 1e-12 else f"{worst:.0e}"


def branches() -> str:
    """C7 for an upload that may spend 1 J at a gain of 1e-12: the branch as usually read, the other one, and the root."""
    gain, a = 1e-12, BITS / (W * 1.0)
    x = a * NOISE / gain * LN2
    found = [-lambertw(-x * math.exp(-x), k).real / (a * LN2) - NOISE / gain for k in (0, -1)]
    root = brentq(lambda p: p * BITS * LN2 / (W * math.log1p(p * gain / NOISE)) - 1.0, 1e-6, 1e3, xtol=1e-14)
    return f"W₀ {abs(found[0]):.0f} W, W₋₁ {found[1]:.4f} W, by bisection {root:.4f} W"


def derivatives() -> str:
    """(40), (42), (44), (45) and (46) against numerical derivatives in 50 digits: the largest relative difference."""
    with mp.workdps(50):
        worst = max(_differences(mp.mpf(gain), mp.mpf(power), mp.mpf(weight)) for gain, power, weight in draws()[:20])
    return "below 1e-40" if worst < 1e-40 else f"{float(worst):.0e}"


def _differences(gain: mp.mpf, power: mp.mpf, weight: mp.mpf) -> mp.mpf:
    k, ln2 = gain / mp.mpf(NOISE), mp.log(2)
    price, time_price = weight / mp.mpf("1.2") / k, 1 - weight
    upsilon = 1 / (W * mp.log(1 + power * k, 2))
    u = 1 / (W * upsilon)

    def g(p: mp.mpf) -> mp.mpf:
        return p * BITS / (W * mp.log(1 + p * k, 2))

    def g_tilde(p: mp.mpf) -> mp.mpf:
        return mp.log(1 + p * k) - k * p / (1 + k * p)

    def cost(y: mp.mpf) -> mp.mpf:
        return time_price * BITS * y + price * (mp.power(2, 1 / (W * y)) - 1) * BITS * y

    def phi_of(y: mp.mpf) -> mp.mpf:
        return mp.power(2, 1 / (W * y)) * (1 - ln2 / (W * y))

    snr = power * k
    printed = (
        (g, power, 1, ln2 * BITS / (W * mp.log(1 + snr) ** 2) * (mp.log(1 + snr) - snr / (1 + snr))),
        (g_tilde, power, 1, k**2 * power / (1 + snr) ** 2),
        (cost, upsilon, 1, BITS * (time_price + price * (mp.power(2, u) - 1) - price * mp.power(2, u) * ln2 * u)),
        (cost, upsilon, 2, price * mp.power(2, u) * ln2**2 * BITS / (W**2 * upsilon**3)),
        (phi_of, upsilon, 1, mp.power(2, u) * ln2**2 / (W**2 * upsilon**3)),
    )
    return max(_relative(function, at, order, value) for function, at, order, value in printed)


def _relative(function: Callable[[mp.mpf], mp.mpf], at: mp.mpf, order: int, value: mp.mpf) -> mp.mpf:
    """Of the derivative by the value, in units of x, so that steps are relative."""
    found = mp.diff(lambda x: function(at * x), 1, order) / at**order
    return abs(found - value) / max(abs(value), mp.mpf("1e-300"))


def convexity() -> str:
    """Cases in which F'' > 0, Φ rises and (24) has one root, of all."""
    good = 0
    for gain, power, weight in draws():
        upsilon = 1.0 / (W * math.log2(1.0 + power * gain / NOISE))
        u = 1.0 / (W * upsilon)
        second = 2.0**u * LN2**2 / (W**2 * upsilon**3)
        grid = [phi(upsilon * 2.0**step) for step in range(-2, 9)]
        r = ratio_of_prices(gain, weight)
        good += second > 0.0 and grid == sorted(grid) and grid[-1] < 1.0 and 1.0 - r < 1.0
    return f"{good} of {CASES}"


def printed_rate() -> str:
    """Gradient descent on β x² / 2 with β = 4: the factor a step multiplies x by, at η = 1 < β and at η = 0.2 < 1/β."""
    beta = 4.0
    return f"{1 - 1.0 * beta:.0f} at η = 1, {1 - 0.2 * beta:.1f} at η = 0.2".replace("-", "−")


def terms_of_theorem_1() -> str:
    """The five terms of (4), at T = 10³ and 10⁶, all other quantities 1: what is left of each."""
    left = [_terms(1e6)[k] / _terms(1e3)[k] for k in range(5)]
    return ", ".join(f"{ratio:g}" for ratio in left)


def _terms(rounds: float, fewest: float = 71.0, most: float = 100.0, rate: float = 0.1) -> list[float]:
    rho, stale = 0.6, 30.0
    below = rounds * fewest
    return [
        1.0 / (rho * rate * below),
        rate * rounds * most**3 / below,
        rho * stale * rounds * most / below,
        rho**2 * rate * stale**2 * rounds * most**2 / below,
        rate * stale**2 * rounds * most**2 / below,
    ]


def kink() -> str:
    """A ReLU on one sample, loss −relu(w) beside its kink: the change of the gradient over the distance, and the curvature."""
    found = []
    for step in (1e-2, 1e-4):
        gradients = [-1.0 if w > 0.0 else 0.0 for w in (step / 2, -step / 2)]
        second = (-max(step, 0.0) - max(-step, 0.0) + 0.0) / step**2
        found.append(f"{abs(gradients[0] - gradients[1]) / step:.0f} and {second:.0f} at {step:g}")
    return ", ".join(found).replace("-", "−", 1).replace(" -", " −")


def drift() -> str:
    """½ Σ (D_min − D_n x_n)² for the smallest and the largest D_n, against the ½ N D_min² of (51)."""
    devices, d_min = 30, 1.0
    real = [((devices - 1) * d_min**2 + (samples - d_min) ** 2) / 2.0 for samples in (70, 100)]
    return f"{real[0]:,.0f} to {real[1]:,.0f} against {devices * d_min**2 / 2.0:.0f}"


def fresh_upload() -> str:
    """ρ s(t − τ) for an upload of staleness 14 by our counting, and by one that begins at 1."""
    ours, other = (0.6 * (staleness + 1.0) ** -0.5 for staleness in (14, 15))
    return f"{ours:.4f} against {other:.4f}, {100 * (1 - other / ours):.1f} % less"


def raw_data() -> str:
    """What a device of figure 7 uploads in 6,000 rounds, against all the images it owns."""
    uploads, images = 6000 / 30 * BITS, 500 * 32 * 32 * 3 * 8
    return f"{uploads / 1e6:,.0f} Mbit against {images / 1e6:.1f} Mbit, {uploads / images:.0f} times"
