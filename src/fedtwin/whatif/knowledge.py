"""What is known of every device, as a distribution: worlds are drawn from it, each as likely as what was heard makes it.

Links: gains are Gamma distributed with shape m (Nakagami's fading) around a mean of the device's own; the inverses of these
means are Gamma distributed over the fleet. So what is heard of a device gives the posterior of its mean in closed form, and
the fleet, through m and the two parameters of that distribution, says what is likely of one that was hardly heard
(empirical Bayes, the three drawn around their most likely values). Processors: frequencies are normal around a mean of the
device's own, these means normal over the fleet.
"""

from typing import Any, NamedTuple

import numpy as np

from fedtwin.errors import FedtwinError
from fedtwin.runs.rows import Floats
from fedtwin.whatif.heard import Heard
from fedtwin.whatif.parts import LEAST_SHAPE, MOST_SHAPE

BOUNDS = ((np.log(LEAST_SHAPE), np.log(MOST_SHAPE)), (np.log(0.05), np.log(1e4)), (-40.0, 40.0))
BELIEVED_SPREAD = np.array([0.5, 1.0, 3.0])
"""Before anything is heard: Rayleigh's fading (ln m is 0), and a fleet that is spread over a decade or two."""
BELIEVED_CPU_SHARE, BELIEVED_FREEDOM = 0.1, 2.0
"""A processor is believed to stray by a tenth, as strongly as two observations say it."""
LEAST_MEAN_PART, FLOOR_PART = 0.25, 0.1
"""Of the least frequency that was heard of anybody: what no mean and no frequency is below."""
LEAST_GAIN, MOST_GAIN = 1e-45, 1e45


class Sampled(NamedTuple):
    """One world that may be the true one."""

    path_gain: Floats
    cpu_hz_mean: Floats
    shape: float
    cpu_hz_std: float
    cpu_hz_floor: float
    silence: float


class Knowledge:
    """``sample`` draws a world; ``added`` devices are not among those that were heard, who are the same with them."""

    def __init__(self, heard: Heard, added: int = 0) -> None:
        if heard.total == 0:
            raise FedtwinError("Nothing has been heard of any device by then: fork at a later round.")
        self._heard, self._added = heard, added
        self._counts = heard.counts.astype(np.float64)
        self._scale = float(np.exp(heard.log_gain_sum / heard.total))
        self._sums = heard.gain_sums / self._scale
        self._log_sum = heard.log_gain_sum - heard.total * np.log(self._scale)
        self.mode, self._root = self._fit()

    @property
    def shape(self) -> float:
        """m, as it is most likely."""
        return float(np.exp(self.mode[0]))

    @property
    def cpu_hz_std(self) -> float:
        """As it is estimated."""
        return float(np.sqrt(self._scatter / (self._heard.freedom + BELIEVED_FREEDOM)))

    def sample(self, random: np.random.Generator) -> Sampled:
        low, high = np.array(BOUNDS).T
        m, a, c = np.exp(np.clip(self.mode + self._root @ random.standard_normal(3), low, high))
        of_new = random.spawn(1)[0]
        inverse = random.gamma(a + self._counts * m) / (c + m * self._sums)
        inverse = np.append(inverse, of_new.gamma(a, size=self._added) / c)
        path_gain = np.clip(self._scale / np.maximum(inverse, 1e-300), LEAST_GAIN, MOST_GAIN)
        cpu_hz_mean, cpu_hz_std = self._processors(random, of_new)
        heard = self._heard
        silence = float(random.beta(heard.silent + 0.5, heard.asked - heard.silent + 0.5)) if heard.silent else 0.0
        return Sampled(path_gain, cpu_hz_mean, float(m), cpu_hz_std, FLOOR_PART * heard.least_cpu_hz, silence)

    # Links

    def _log_posterior(self, log_parameters: Floats) -> float:
        """Of m, and of shape a and rate c of the inverses of the mean gains; the means themselves are integrated out."""
        from scipy.special import gammaln

        m, a, c = np.exp(log_parameters)
        counts, total = self._counts[self._counts > 0], self._heard.total
        sums = self._sums[self._counts > 0]
        rate = c / m
        per_device = a * np.log(rate) - gammaln(a) + gammaln(a + counts * m) - (a + counts * m) * np.log(rate + sums)
        likelihood = per_device.sum() + (m - 1.0) * self._log_sum - total * gammaln(m)
        return float(likelihood - 0.5 * np.square(log_parameters / BELIEVED_SPREAD).sum())

    def _fit(self) -> tuple[Floats, Floats]:
        """The most likely parameters, and a root of their covariance there."""
        from scipy.optimize import minimize

        scatter = self._heard.log_gain_scatter / max(self._heard.freedom, 1)
        first = np.log(np.clip(1.0 / max(scatter, 1e-6), 0.5, 1e5)) if self._heard.freedom else 0.0

        def loss(log_parameters: Floats) -> float:
            return -self._log_posterior(log_parameters)

        start = np.array([first, 0.0, 0.0])
        found: Any = minimize(loss, start, method="L-BFGS-B", bounds=BOUNDS)
        return found.x, _root_of_covariance(loss, found.x)

    # Processors

    @property
    def _scatter(self) -> float:
        heard = self._heard
        believed = BELIEVED_CPU_SHARE * float(heard.cpu_sums.sum()) / heard.total
        return float(heard.cpu_scatter + BELIEVED_FREEDOM * believed**2) if self._strays else heard.cpu_scatter

    @property
    def _strays(self) -> bool:
        """A frequency that was heard often and never changed does not stray."""
        return self._heard.cpu_scatter > 0.0 or self._heard.freedom < 20

    def _processors(self, random: np.random.Generator, of_new: np.random.Generator) -> tuple[Floats, float]:
        heard = self._heard
        known = heard.counts > 0
        means = heard.cpu_sums[known] / heard.counts[known]
        variance = self._scatter / random.chisquare(heard.freedom + BELIEVED_FREEDOM)
        between = _between(means, heard.counts[known], variance)
        devices = len(means)
        between *= max(devices - 1, 1) / random.chisquare(max(devices - 1, 1))
        centre = random.normal(means.mean(), np.sqrt((between + variance / heard.counts[known].mean()) / devices))
        own = np.full(len(self._counts), centre)
        own[known] = means
        doubt = np.divide(variance, self._counts, out=np.full(len(own), np.inf), where=self._counts > 0)
        weight = np.where(np.isinf(doubt), 0.0, between / (between + np.where(np.isinf(doubt), 1.0, doubt)))
        spread = np.sqrt(np.where(np.isinf(doubt), between, weight * np.where(np.isinf(doubt), 0.0, doubt)))
        drawn = random.normal(weight * own + (1.0 - weight) * centre, spread)
        drawn = np.append(drawn, of_new.normal(centre, np.sqrt(between), self._added))
        return np.maximum(drawn, LEAST_MEAN_PART * heard.least_cpu_hz), float(np.sqrt(variance))


def _between(means: Floats, counts: Any, variance: float) -> float:
    """How far the devices' means are apart, beyond what chance does to means of so few."""
    least = (0.01 * float(means.mean())) ** 2
    if len(means) < 2:
        return float((0.3 * means.mean()) ** 2)
    return max(float(means.var(ddof=1)) - variance * float((1.0 / counts).mean()), least)


def _root_of_covariance(loss: Any, mode: Floats, step: float = 1e-2) -> Floats:
    """Of the normal distribution that has the curvature of the loss at its least; never wider than what was believed."""
    size, centre = len(mode), loss(mode)
    eye = step * np.eye(size)
    hessian = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            both = loss(mode + eye[i] + eye[j]) + loss(mode - eye[i] - eye[j])
            one = loss(mode + eye[i] - eye[j]) + loss(mode - eye[i] + eye[j])
            hessian[i, j] = (both - one) / (4.0 * step * step) if i != j else (both - 2.0 * centre) / (4.0 * step * step)
    values, vectors = np.linalg.eigh(hessian)
    root: Floats = vectors / np.sqrt(np.maximum(values, 1.0 / np.square(BELIEVED_SPREAD).max()))
    return root
