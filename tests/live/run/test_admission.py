"""What is let in, and what is believed of it, whatever a device says."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedtwin.config import Config, LiveConfig, build_config
from fedtwin.formulas.terms import terms_of
from fedtwin.learning.layout import Weights, layout_of
from fedtwin.live.run import events
from fedtwin.live.run.admission import (
    Admitted,
    NotAdmitted,
    admit,
    admit_bytes,
    admit_failure,
    bad_claim,
    bad_weights,
    believe,
    find_task,
)
from fedtwin.live.run.core import Core
from fedtwin.live.run.model import LiveModel, digest_of, model_path
from fedtwin.live.run.state import State
from fedtwin.live.run.trail import Kept
from fedtwin.live.wire.protocol import Done, Hello, Reading
from fedtwin.live.wire.tensors import Codec
from tests.live.hostile import ACCEPT

CONFIG = build_config({}, {"fleet.devices": 3, "fleet.channels": 2, "live.max_staleness": 5})
TERMS = terms_of(CONFIG)
NO_COUNTERS = np.zeros(0, np.int64)

seconds = st.floats(0, 1e9)
joules = st.floats(0, 1e12)
sources = st.sampled_from(["measured", "modelled"])


def done_with(**changes: object) -> Done:
    nothing = Reading(value=0.1, source="modelled")
    done = Done(
        token="0" * 32,
        version=0,
        samples=50,
        model_bytes=0,
        cpu_hz=1e9,
        cpu_source="modelled",
        power_w=0.1,
        compute_s=nothing,
        upload_s=nothing,
        compute_j=nothing,
        upload_j=nothing,
        link_s=nothing,
    )
    return done.model_copy(update=changes)


@given(
    times=st.tuples(seconds, seconds), energies=st.tuples(joules, joules), origins=st.tuples(sources, sources),
    elapsed_s=st.floats(0, 1e6), cpu_hz=st.floats(1e8, 3e10), power_w=st.floats(0, 1), tolerance_s=st.floats(1e-3, 10),
    scale=st.floats(0.01, 10),
)  # fmt: skip
def test_no_report_makes_an_update_look_faster_or_cheaper_than_the_clock_and_the_model_allow(
    times: tuple[float, float], energies: tuple[float, float], origins: tuple[str, str], elapsed_s: float, cpu_hz: float,
    power_w: float, tolerance_s: float, scale: float,
) -> None:  # fmt: skip
    live = LiveConfig(clock_tolerance_s=tolerance_s, time_scale=scale)
    readings = {
        "compute_s": Reading(value=times[0], source="measured"),
        "upload_s": Reading(value=times[1], source="measured"),
        "compute_j": Reading(value=energies[0], source=origins[0]),
        "upload_j": Reading(value=energies[1], source=origins[1]),
    }
    believed = believe(done_with(cpu_hz=cpu_hz, power_w=power_w, **readings), elapsed_s, TERMS, live)
    total_s, slack = believed.compute_s + believed.upload_s, 1e-9 * (1.0 + elapsed_s)
    assert abs(total_s - elapsed_s) <= tolerance_s / scale + 0.05 * elapsed_s + slack
    assert believed.compute_s >= 0.0 and believed.upload_s >= 0.0
    if not believed.agrees:
        assert total_s == pytest.approx(elapsed_s)
    modelled = 2e-28 * cpu_hz**3 * believed.compute_s, power_w * believed.upload_s
    for energy_j, reported_j, source, model_j in zip(
        (believed.compute_j, believed.upload_j), energies, origins, modelled, strict=True
    ):
        assert energy_j == reported_j if source == "measured" else energy_j == pytest.approx(model_j, rel=0.0101)
    energy_j = believed.compute_j + believed.upload_j
    assert believed.cost == pytest.approx(0.5 * total_s / 1.0 + 0.5 * energy_j / 1.2)
    assert believed.reported_s == times[0] + times[1]


@given(
    model=arrays(np.float32, 6, elements=st.floats(-1e3, 1e3, width=32)),
    upload=arrays(np.float32, 6),
    bound=st.floats(0.1, 100),
)
def test_only_finite_weights_within_the_bound_come_in(model: np.ndarray, upload: np.ndarray, bound: float) -> None:
    reason = bad_weights(Weights(model, NO_COUNTERS), Weights(upload, NO_COUNTERS), LiveConfig(max_change=bound))
    if not np.isfinite(upload).all():
        assert reason is not None and reason.startswith("not finite: ")
        return
    size = math.sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(upload, model, strict=True)))
    allowed = bound * max(math.sqrt(sum(float(value) ** 2 for value in model)), 1.0)
    assume(abs(size - allowed) > 1e-3 * allowed)  # single precision may go either way there
    assert (reason is None) == (size < allowed)
    assert reason is None or reason.startswith("norm: ")


@pytest.mark.parametrize(
    ("steps", "reason"),
    [(0, None), (10**9, None), (-1, "is negative"), (10**9 + 4, "grew by more than"), (2**63 - 1, "grew by more than")],
)
def test_counters_neither_run_backwards_nor_away(steps: int, reason: str | None) -> None:
    floats = np.zeros(2, np.float32)
    model, upload = (Weights(floats, np.array([value], np.int64)) for value in (3, steps))
    found = bad_weights(model, upload, LiveConfig())
    assert (found is None) == (reason is None) and (reason or "") in (found or "")


def test_no_bound_is_infinite() -> None:
    """A model whose norm overflows would allow anything."""
    model, upload = (Weights(np.full(4, value, np.float32), NO_COUNTERS) for value in (3e38, -3e38))
    assert str(bad_weights(model, upload, LiveConfig())).startswith("norm: ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"samples": 49}, "samples: 49, and 50 were announced: are there two devices of this name?"),
        ({"cpu_hz": 0.99e8}, "range: cpu_hz = 9.9e+07"),
        ({"cpu_hz": 3.01e10}, "range: cpu_hz = 3.01e+10"),
        ({"power_w": 1.01}, "range: power_w = 1.01 is over max_power_w"),
        ({"compute_j": Reading(value=0.0, source="measured")}, "range: compute_j = 0 J in 0.1 s"),
        ({"upload_j": Reading(value=1.1e3, source="measured")}, "range: upload_j = 1100 J in 0.1 s"),
        ({"upload_j": Reading(value=1.1e3, source="modelled")}, None),  # replaced by the model's
    ],
)
def test_claims(changes: dict[str, object], reason: str | None) -> None:
    assert bad_claim(core_with_tasks(CONFIG), "d0", done_with(**changes), CONFIG) == reason


def core_with_tasks(config: Config) -> Core:
    """Three devices, of which two have a task each, with the tokens aa… and bb…."""
    core = Core(config)
    for number in range(3):
        core.apply(core.join(f"d{number}", Hello(samples=50), 0.0))
    core.apply(core.start(0.0))
    for digit in "ab":
        asked = core.next_ask(0.0)
        assert isinstance(asked, events.Asked)
        core.apply(asked)
        core.apply(core.answered(asked, ACCEPT, digit * 32, 0.0))
    return core


def owner_of(core: Core, token: str) -> str:
    return core.names[core.open[token].sent.device]


@pytest.mark.parametrize("late", ["mix", "refuse"])
def test_a_token_is_bound_to_device_and_version_and_good_once(late: str) -> None:
    core = core_with_tasks(build_config({}, {"fleet.devices": 3, "fleet.channels": 2, "live.late": late}))
    first, second = "a" * 32, "b" * 32
    owner = owner_of(core, first)
    assert find_task(core, owner, first, 0).task is core.open[first]
    for stranger in {*core.names, "unknown"} - {owner}:
        found = find_task(core, stranger, first, 0)
        assert found.task is None and found.attack and str(found.reason).startswith("foreign token: ")
    wrong = find_task(core, owner, first, 1)
    assert wrong.task is None and wrong.attack and wrong.reason == "version: the task has 0, the result 1"
    unknown = find_task(core, owner, "c" * 32, 0)
    assert unknown.task is None and not unknown.attack and unknown.reason == "unassigned: no such task"

    task = core.open[first]
    core.apply(core.give_up(task, 9.0, "the deadline has passed", "offline"))
    found = find_task(core, owner, first, 0)
    if late == "mix":
        assert found.task is task and found.late and found.reason is None
    else:
        assert found.task is None and not found.attack and str(found.reason).startswith("late: ")
    assert find_task(core, owner_of(core, second), first, 0).attack  # a task given up is still nobody else's

    other = owner_of(core, second)
    core.apply(core.give_up(core.open[second], 9.0, "quarantined: norm", "quarantined"))
    assert find_task(core, other, second, 0).reason == "duplicate: the task was refused before"


def test_an_upload_of_a_model_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    core, token = core_with_tasks(CONFIG), "a" * 32
    owner = owner_of(core, token)
    for version, reason in ((5, None), (6, "stale: 6 versions behind")):
        monkeypatch.setattr(State, "version", version)
        assert find_task(core, owner, token, 0).reason == reason


FLOATS = np.linspace(-1.0, 1.0, 4, dtype=np.float32)
CODEC = Codec(layout_of({"w": ((4,), False)}))
BODY = CODEC.encode(Weights(FLOATS + np.float32(0.5), NO_COUNTERS))
UPLOADS: dict[str, tuple[dict[str, object], bytes | None, str | None, bool, bool]] = {
    "honest": ({}, BODY, None, False, False),
    "another-version": ({"version": 3}, BODY, "version: ", True, False),
    "no-bytes": ({}, None, "missing: ", False, True),
    "claim": ({"samples": 49}, BODY, "samples: ", True, False),
    "fewer-bytes": ({}, BODY[:-1], "size: ", True, False),
    "other-tensors": ({}, CODEC.encode(Weights(FLOATS, NO_COUNTERS)).replace(b'"w"', b'"v"'), "shape: ", True, False),
    "not-finite": ({}, CODEC.encode(Weights(FLOATS * np.float32(np.nan), NO_COUNTERS)), "not finite: ", True, False),
}


@pytest.mark.parametrize("kind", UPLOADS)
def test_one_verdict_on_an_upload(kind: str, tmp_path: Path) -> None:
    changes, body, reason, attack, ends_the_task = UPLOADS[kind]
    core, token = core_with_tasks(CONFIG), "a" * 32
    model = model_in(tmp_path)
    done = done_with(token=token, model_bytes=len(BODY)).model_copy(update=changes)
    verdict = admit(core, model, owner_of(core, token), done, body, arrived_s=0.2, now_s=9.0)
    task = core.open[token]
    if reason is None:
        assert isinstance(verdict, Admitted) and verdict.task is task and not verdict.late
        assert (verdict.weights.floats == FLOATS + np.float32(0.5)).all() and (verdict.start.floats == FLOATS).all()
        assert verdict.elapsed_s == 0.2 and verdict.believed == believe(done, 0.2, core.terms, core.live)
    else:
        assert isinstance(verdict, NotAdmitted) and verdict.reason.startswith(reason), verdict
        assert (verdict.attack, verdict.task is task) == (attack, ends_the_task)
    assert set(core.open) == {token, "b" * 32} and not core.refusals, "a verdict changes nothing"


def test_a_clock_that_was_set_back_buys_nothing(tmp_path: Path) -> None:
    core, token = core_with_tasks(CONFIG), "a" * 32
    done = done_with(token=token, model_bytes=len(BODY))
    verdict = admit(core, model_in(tmp_path), owner_of(core, token), done, BODY, arrived_s=-5.0, now_s=9.0)
    assert isinstance(verdict, Admitted) and verdict.elapsed_s == 9.0


def test_bytes_before_their_result(tmp_path: Path) -> None:
    core, model, token = core_with_tasks(CONFIG), model_in(tmp_path), "a" * 32
    owner, other = owner_of(core, token), owner_of(core, "b" * 32)
    most = model.most_upload_bytes
    assert admit_bytes(core, model, owner, token, most) is None
    for name, of, size, reason, attack in (
        (owner, token, most + 1, "size: ", True),
        (other, token, most, "foreign token: ", True),
        (owner, "c" * 32, most, "unassigned: ", False),
    ):
        found = admit_bytes(core, model, name, of, size)
        assert found is not None and found.reason.startswith(reason) and found.attack == attack and found.task is None


def test_a_failure_ends_the_task_of_its_device_only() -> None:
    core, token = core_with_tasks(CONFIG), "a" * 32
    owner, other = owner_of(core, token), owner_of(core, "b" * 32)
    assert admit_failure(core, owner, token) is core.open[token]
    assert admit_failure(core, other, token) == NotAdmitted("foreign token: the task is another device's", attack=True)
    core.apply(core.give_up(core.open[token], 9.0, "the deadline has passed", "offline"))
    assert admit_failure(core, owner, token) == NotAdmitted("late: the task had been given up")


def model_in(folder: Path) -> LiveModel:
    data = CODEC.encode(Weights(FLOATS, NO_COUNTERS))
    model_path(folder, 0).write_bytes(data)
    return LiveModel(folder, CONFIG, Kept(models={0: digest_of(data)}), fsync=False)
