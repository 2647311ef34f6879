"""A reader's own code, which imports nothing from the engine, re-derives every decision from the records of a traced run."""

import json
import math
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy.optimize import brentq

from fedtwin import simulate
from tests.conftest import run_cli

RUNS = {
    "cu-ucb": ["--policy", "cu-ucb", "--rounds", "1500"],
    "with declines": ["--policy", "CU-UCB", "--rounds", "500", "--set", "objective.max_time_s=0.7"],
    "odd D_min": ["--policy", "CU-UCB", "--rounds", "500", "--set", "objective.min_mean_samples=0.1"],
    "energy only": ["--policy", "CU-UCB", "--rounds", "300", "--set", "objective.energy_weight=1"],
    "on-arrival": ["--policy", "cu-ucb", "--rounds", "500", "--set", "policy.feedback=on-arrival"],
    "queue-only": ["--policy", "As-Q-only", "--rounds", "500"],
    "fairness": ["--policy", "As-fairness", "--rounds", "500"],
    "sync": ["--policy", "Sy-fairness", "--rounds", "500"],
    "sync, timeout": ["--policy", "Sy-fairness", "--rounds", "500", "--set", "run.sync_timeout_s=0.6"],
    "sync, early timeout": ["--policy", "Sy-fairness", "--rounds", "200", "--set", "run.sync_timeout_s=0.2"],
    "random": ["--policy", "Random", "--rounds", "500"],
    "random, optimal power": ["--policy", "Random", "--rounds", "300", "--set", "policy.power=optimal"],
    "genie": ["--policy", "genie", "--rounds", "300"],
}
OWN = {
    "max_power_w": "[0.005, 0.1]",
    "cycles_per_sample": "[2e6, 9e6]",
    "update_bits": "[2e6, 9e6]",
    "max_time_s": "[0.6, 1.5]",
    "max_energy_j": "[0.3, 2.0]",
    "samples_spread": "[0.0, 0.9]",
}
"""Each by itself, in a run where costs decide from the first on, then all together."""
SHORT = ["--rounds", "120", "--set", "policy.bonus_scale=0"]
RUNS |= {name: [*SHORT, "--set", f"fleet.{name}={pair}"] for name, pair in OWN.items()}
OF_ALL = [word for name, pair in OWN.items() for word in ("--set", f"fleet.{name}={pair}")]
RUNS |= {
    "all their own": [*SHORT, *OF_ALL],
    "all their own, full power": ["--policy", "As-fairness", *SHORT, *OF_ALL],
    "all their own, sync": ["--policy", "Sy-fairness", *SHORT, *OF_ALL],
}
CHANGED = {
    "max_power_w": ("power_w", "upload_s", "upload_j", "cost", "device"),
    "cycles_per_sample": ("compute_s", "compute_j", "cost", "device"),
    "update_bits": ("upload_s", "upload_j", "cost", "device"),
    "max_time_s": ("power_w", "upload_s", "upload_j", "cost", "device"),
    "max_energy_j": ("power_w", "upload_s", "upload_j", "cost", "device"),
    "samples_spread": ("samples", "compute_s", "compute_j", "cost", "device", "queue"),
}
OPTIMAL = {"cu-ucb", "queue-only", "genie"}


class Reader:
    """The paper's equations once more, slow and plain."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = tomllib.loads((folder / "config.toml").read_text())
        self.rounds = pd.read_parquet(folder / "rounds.parquet")
        self.devices = pd.read_parquet(folder / "devices.parquet")
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.start = pd.read_parquet(folder / "start.parquet") if (folder / "start.parquet").exists() else self.rounds[:0]
        self.radio, self.compute, self.goal = (self.config[name] for name in ("radio", "compute", "objective"))
        self.noise_w = 1e-3 * 10 ** (self.radio["noise_dbm"] / 10)
        power = self.config["policy"]["power"]
        self.optimal = power == "optimal" or (power == "scheme" and self.config["policy"]["name"] in OPTIMAL)

    def own(self, device: int) -> Any:
        """The device's p_max, c, z, T_max and E_max."""
        return self.devices.loc[device]

    def upload_s(self, device: int, gain: float, power_w: float) -> float:
        rate = self.radio["bandwidth_hz"] * math.log1p(power_w * gain / self.noise_w) / math.log(2)
        return float(self.own(device).update_bits / rate)

    def cost(self, device: int, time_s: float, energy_j: float) -> float:
        weight, own = self.goal["energy_weight"], self.own(device)
        return float((1 - weight) * time_s / own.max_time_s + weight * energy_j / own.max_energy_j)

    def power(self, row: Any) -> float:
        """Roots of the constraints and of the derivative by Brent's method; 0 for a decline."""
        own = self.own(row.device)
        if not self.optimal:
            return float(own.max_power_w)
        work = row.samples * own.cycles_per_sample
        time_left = own.max_time_s - work / row.cpu_hz
        energy_left = own.max_energy_j - self.compute["capacitance"] * work * row.cpu_hz**2
        if time_left <= 0 or energy_left <= 0:
            return 0.0

        def root(rising: Any) -> float:
            return math.exp(brentq(lambda log_p: rising(math.exp(log_p)), -60, 40, xtol=1e-13, rtol=1e-15))

        def upload_s(power_w: float) -> float:
            return self.upload_s(row.device, row.gain, power_w)

        full_power_s = upload_s(own.max_power_w)
        if full_power_s > time_left:
            return 0.0
        low = root(lambda p: time_left - upload_s(p))
        high = own.max_power_w
        if high * full_power_s > energy_left:
            if self.faintest_j(row) > energy_left:
                return 0.0
            high = min(high, root(lambda p: p * upload_s(p) - energy_left))
        if low > high:
            return 0.0
        theta_t = (1 - self.goal["energy_weight"]) / own.max_time_s
        theta_e = self.goal["energy_weight"] / own.max_energy_j
        if theta_t == 0:
            return low
        g = row.gain / self.noise_w
        best = root(lambda p: theta_e * (math.log1p(p * g) * (1 + p * g) / g - p) - theta_t)
        return float(min(max(best, low), high))

    def faintest_j(self, row: Any) -> float:
        """What the upload costs at a power that goes to 0."""
        nats = self.own(row.device).update_bits * math.log(2) / self.radio["bandwidth_hz"]
        return float(nats * self.noise_w / row.gain)


@pytest.fixture(scope="module", params=RUNS)
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    folder = tmp_path_factory.mktemp("traced") / "run"
    done = run_cli("run", *RUNS[request.param], "--trace", "--out", folder)
    assert done.returncode == (3 if "early" in request.param else 0), done.stderr  # then every upload is dropped
    return Reader(folder)


def test_power_time_energy_and_cost(reader: Reader) -> None:
    sync = reader.config["run"]["mode"] == "sync"
    rows = reader.rounds
    timeout_s = reader.config["run"].get("sync_timeout_s", math.inf)
    slowest = (rows.compute_s + rows.upload_s).groupby(rows["round"]).transform("max").clip(upper=timeout_s)
    for row, slowest_s in zip(rows.itertuples(), slowest, strict=True):
        power_w = reader.power(row)
        assert (power_w == 0) == row.declined
        if row.declined:
            continue
        assert row.power_w == pytest.approx(power_w, rel=1e-9)
        own = reader.own(row.device)
        assert row.power_w <= own.max_power_w
        work = row.samples * own.cycles_per_sample
        assert row.compute_s == pytest.approx(work / row.cpu_hz, rel=1e-9)
        assert row.upload_s == pytest.approx(reader.upload_s(row.device, row.gain, row.power_w), rel=1e-9)
        computing_s, sending_s = row.compute_s, row.upload_s
        if timeout_s < math.inf:
            assert row.dropped == (row.compute_s + row.upload_s > timeout_s)
            computing_s = min(row.compute_s, timeout_s)
            sending_s = min(row.upload_s, timeout_s - computing_s)
        spent_j = reader.compute["capacitance"] * row.cpu_hz**3 * computing_s
        assert row.compute_j == pytest.approx(spent_j, rel=1e-9)
        assert row.upload_j == pytest.approx(row.power_w * sending_s, rel=1e-9)
        time_s = slowest_s if sync else row.compute_s + row.upload_s
        assert row.cost == pytest.approx(reader.cost(row.device, time_s, row.compute_j + row.upload_j), rel=1e-9)
        assert row.time_ok == (row.compute_s + row.upload_s <= own.max_time_s * (1 + 1e-9))
        assert row.energy_ok == (row.compute_j + row.upload_j <= own.max_energy_j * (1 + 1e-9))


def test_samples_stray_as_far_as_the_device_says(reader: Reader) -> None:
    for row in reader.rounds.itertuples():
        own = reader.devices.loc[row.device]
        assert abs(row.samples - own.samples) <= own.samples * own.samples_spread + 1e-9


@pytest.mark.parametrize("name", OWN)
def test_a_quantity_of_its_own_changes_what_it_should_in_both_engines(name: str) -> None:
    settings = {"run.rounds": 120, "policy.bonus_scale": 0.0}
    own = {**settings, f"fleet.{name}": tomllib.loads(f"pair = {OWN[name]}")["pair"]}
    before, after = (simulate({**given, "run.engine": "readable"}) for given in (settings, own))
    for column in CHANGED[name]:
        assert not before.rounds[column].equals(after.rounds[column]), column
    for column in ("path_gain", "cpu_hz_mean", "samples"):
        assert before.devices[column].equals(after.devices[column]), "what was drawn before stays"
    compiled = simulate({**own, "run.engine": "compiled"})
    assert compiled.rounds.equals(after.rounds) and compiled.summary == after.summary


@pytest.mark.parametrize("scheme", ["CU-UCB", "As-fairness", "Sy-fairness", "twin-dpp", "genie"])
@pytest.mark.parametrize("engine", ["readable", "compiled"])
def test_equal_values_for_all_devices_change_not_one_bit(scheme: str, engine: str) -> None:
    settings = {"run.rounds": 200, "policy.name": scheme, "run.engine": engine, "objective.max_time_s": 0.8}
    same = {"max_power_w": 1.0, "cycles_per_sample": [5e6, 5e6], "update_bits": 8e6, "max_time_s": 0.8, "max_energy_j": 1.2}
    one, other = simulate(settings), simulate({**settings, **{f"fleet.{key}": value for key, value in same.items()}})
    assert other.rounds.equals(one.rounds) and other.summary == one.summary and other.devices.equals(one.devices)


def test_what_was_dropped_is_in_the_summary(reader: Reader) -> None:
    rows, summary = reader.rounds, reader.summary
    taken = rows[~rows.declined]
    rounds = rows["round"].max()
    if "sync_timeout_s" not in reader.config["run"]:
        assert "dropped" not in rows and not {"drops", "wasted_energy_j"} & summary.keys()
        in_time = taken
    else:
        dropped, in_time = taken[taken.dropped], taken[~taken.dropped]
        assert len(dropped) > 0
        assert summary["drops"] == len(dropped)
        assert summary["wasted_energy_j"] == pytest.approx((dropped.compute_j + dropped.upload_j).sum(), rel=1e-9)
    assert summary["rounds"] == len(taken)
    assert summary["mean_energy_j"] == pytest.approx((taken.compute_j + taken.upload_j).mean(), rel=1e-9)
    per_device = in_time.groupby("device").samples.sum().reindex(reader.devices.device, fill_value=0)
    assert summary["least_mean_samples"] == pytest.approx(per_device.min() / rounds, rel=1e-9)


def test_queues_indices_and_the_choice(reader: Reader) -> None:
    policy, d_min = reader.config["policy"], reader.goal["min_mean_samples"]
    on_arrival = policy["feedback"] == "on-arrival"
    samples, ranks = reader.devices.samples.tolist(), reader.devices.tie_rank.tolist()
    for row in reader.start[~reader.start.declined].itertuples():
        samples[row.device] = row.samples
    fleet = range(len(samples))
    queues = [0.0 for _ in fleet]
    selections = [0 for _ in fleet]
    costs: dict[int, list[float]] = defaultdict(list)
    in_flight: dict[int, float] = {}
    last_round = 0
    declined_now: set[int] = set()
    for round_, rows in reader.rounds.groupby("round", sort=True):
        assert round_ == last_round + 1, "a round without any row would leave a gap"
        last_round = round_
        declined_now.clear()
        taken = rows[~rows.declined]
        arrived = rows.arrived.iloc[0]
        if on_arrival and not math.isnan(arrived) and int(arrived) in in_flight:
            costs[int(arrived)].append(in_flight.pop(int(arrived)))
        for row in rows.itertuples():
            assert list(row.queues) == pytest.approx(queues, rel=1e-9, abs=1e-9)
            assert row.queue == pytest.approx(queues[row.device], rel=1e-9, abs=1e-9)
            assert row.total_queue == pytest.approx(sum(queues), rel=1e-9, abs=1e-9)
            candidates = [n for n in fleet if row.available[n]]
            assert row.device == min(candidates, key=lambda n: (row.indices[n], ranks[n]))
            assert not declined_now & set(candidates)
            if row.declined:
                declined_now.add(row.device)
            for n in fleet:
                expected = None
                if policy["name"] == "cu-ucb":
                    bonus = math.sqrt(3 * math.log(round_) / (2 * len(costs[n]))) if costs[n] else 0.0
                    bonus *= policy["bonus_scale"]
                    mean = sum(costs[n]) / len(costs[n]) if costs[n] else 0.0
                    expected = policy["v"] * max(mean - bonus, 0) - queues[n] * samples[n]
                elif policy["name"] == "queue-only":
                    expected = -queues[n] * samples[n]
                elif policy["name"] == "fairness":
                    expected = selections[n]
                if expected is not None:
                    assert row.indices[n] == pytest.approx(expected, rel=1e-9, abs=1e-6)
        for row in taken.itertuples():
            samples[row.device] = row.samples
            selections[row.device] += 1
            if on_arrival:
                in_flight[row.device] = row.cost
            else:
                costs[row.device].append(row.cost)
        chosen = set(taken.device)
        queues = [max(queues[n] + d_min - (samples[n] if n in chosen else 0), 0.0) for n in fleet]
