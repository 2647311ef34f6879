"""What has to be looked at round by round: the two sums that the proof of Theorem 4 bounds, and the networks themselves."""

import math

import numpy as np

from fedtwin.config import load_config
from fedtwin.formulas.power import optimal_plan
from fedtwin.learning.partition import class_mix
from fedtwin.sim import simulate
from fedtwin.world.world import World

ROUNDS = 4000


def sums_of_the_proof() -> str:
    """B1 and B2 of (54) over the rounds of one run, with the bounds of (55)."""
    config = load_config(overrides={"run.rounds": ROUNDS})
    world, v = World(config), config.policy.v
    samples = [device.samples for device in world.fleet]
    table = simulate(config, trace=True).rounds.to_pydict()
    b1 = b2 = largest = 0.0
    for k, chosen in enumerate(table["device"]):
        if table["declined"][k]:
            continue
        queues, scores = table["queues"][k], table["indices"][k]
        best = (math.inf, 0, 0.0)
        for n in (n for n, idle in enumerate(table["available"][k]) if idle):
            draw = world.draw(n, table["round"][k], table["clock_s"][k])
            plan = optimal_plan(world.terms, draw.gain, draw.cpu_hz, samples[n])
            if plan.feasible:
                best = min(best, (v * plan.cost - queues[n] * samples[n], n, plan.cost))
        estimates = {n: (scores[n] + queues[n] * samples[n]) / v for n in (chosen, best[1])}
        b1 += table["cost"][k] - estimates[chosen]
        b2 += estimates[best[1]] - best[2]
        largest = max(largest, table["cost"][k])
    devices = len(samples)
    first = 2.0 * math.sqrt(6.0 * devices * ROUNDS * math.log(ROUNDS)) + 2.5 * devices
    return f"B1 {b1:,.0f} ≤ {first:,.0f}, B2 {b2:,.0f} ≤ {1.5 * devices:.0f}, largest Ω {largest:.2f}".replace("-", "−")


def dirichlet() -> str:
    """The largest share of one class on a device, over 100 devices, for γ1 near 0 and for a large one."""
    shares = [np.mean([class_mix(0, device, 10, gamma).max() for device in range(100)]) for gamma in (1e-3, 1e6)]
    return f"{shares[0]:.3f} at γ1 = 0.001, {shares[1]:.3f} at 10⁶"


def network_bits() -> str:
    """An upload of the networks of figures 6 to 9 and of the digits, float32."""
    from fedtwin.learning.local import model_layout
    from fedtwin.learning.models import build_model

    networks = {"ResNet-18": ("resnet18", (3, 32, 32)), "small-cnn": ("small-cnn", (3, 32, 32)), "mlp": ("mlp", (1, 8, 8))}
    bits = {name: model_layout(build_model(model, shape, 10, 0)).bits for name, (model, shape) in networks.items()}
    return ", ".join(f"{name} {size / 8e6:.3g} MB" for name, size in bits.items())
