"""What has to be looked at round by round: the two sums that the proof of Theorem 4 bounds, and the networks themselves."""

import math

import numpy as np

from fedtwin.config import load_config
from fedtwin.formulas.power import plan_power
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
        idle = [n for n, available in enumerate(table["available"][k]) if available]
        draws = [world.draw(n, table["round"][k], table["clock_s"][k]) for n in idle]
        plan = plan_power(config, [d.gain for d in draws], [d.cpu_hz for d in draws], [samples[n] for n in idle])
        costs = dict(zip(idle, plan.cost, strict=True))
        best = min(idle, key=lambda n: v * costs[n] - queues[n] * samples[n])
        estimates = {n: (scores[n] + queues[n] * samples[n]) / v for n in (chosen, best)}
        b1 += table["cost"][k] - estimates[chosen]
        b2 += estimates[best] - costs[best]
        largest = max(largest, table["cost"][k])
    devices = len(samples)
    first = 2.0 * math.sqrt(6.0 * devices * ROUNDS * math.log(ROUNDS)) + 2.5 * devices
    return f"B1 {b1:,.0f} ≤ {first:,.0f}, B2 {b2:,.0f} ≤ {1.5 * devices:.0f}, largest Ω {largest:.2f}".replace("-", "−")


def dirichlet() -> str:
    """The largest share of one class on a device, over 100 devices, for γ1 near 0 and for a large one."""
    shares = [np.mean([class_mix(0, device, 10, gamma).max() for device in range(100)]) for gamma in (1e-3, 1e6)]
    return f"{shares[0]:.3f} at γ1 = 0.001, {shares[1]:.3f} at 10⁶"


def noise() -> str:
    """Draws in which a device finds a power, with −154 dBm as the total in a sub-channel, and as a density per Hz."""
    found = []
    for noise_dbm in (-154.0, -94.0):
        config = load_config(overrides={"radio.noise_dbm": noise_dbm})
        world = World(config)
        draws = [(world.draw(n, t, float(t)), device.samples) for n, device in enumerate(world.fleet) for t in range(1, 501)]
        gains, frequencies = ([getattr(draw, name) for draw, _ in draws] for name in ("gain", "cpu_hz"))
        plan = plan_power(config, gains, frequencies, [samples for _, samples in draws])
        found.append(f"{100 * np.mean(plan.feasible):.1f}")
    return f"{found[0]} %, as a density per Hz {found[1]} %"


def network_bits() -> str:
    """An upload of the networks of figures 6 to 9 and of the digits, float32."""
    from fedtwin.learning.local import model_layout
    from fedtwin.learning.models import build_model

    networks = {"ResNet-18": ("resnet18", (3, 32, 32)), "small-cnn": ("small-cnn", (3, 32, 32)), "mlp": ("mlp", (1, 8, 8))}
    bits = {name: model_layout(build_model(model, shape, 10, 0)).bits for name, (model, shape) in networks.items()}
    return ", ".join(f"{name} {size / 8e6:.3g} MB" for name, size in bits.items())
