"""What the warning of a standstill says. A fleet that the limits keep out is told so at once; one that shows by its first
uploads what it needs is not kept out.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from fedtwin.live.run import events, opening
from fedtwin.live.server.hosting import why_nothing_was_mixed_in
from fedtwin.live.server.standstill import Standstill
from fedtwin.live.views.metrics import Metrics
from tests.live.run.test_live_run import begun
from tests.live.simulated.fleet import Fleet
from tests.live.simulated.loop import run_virtually
from tests.live.simulated.said import Said, listening

TIGHT: dict[str, Any] = {"objective.max_energy_j": 1e-6}


def test_that_all_devices_are_in_quarantine_is_said_though_nobody_is_heard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = begun(tmp_path / "run")
    clock = SimpleNamespace(now=0.0)
    clock.monotonic_s = lambda: clock.now
    context: Any = SimpleNamespace(core=live.core, clock=clock, strangers={}, heard_lately=lambda _: [])
    standstill = Standstill(context, Metrics())

    def warned() -> str:
        caplog.clear()
        clock.now += 100.0
        standstill.look(None)
        return " ".join(f"{record.getMessage()} {record.__dict__['fields']}" for record in caplog.records)

    *most, last = live.core.members
    for name in most:
        live.quarantine(name, "norm: too much")
    assert warned() == ""
    live.quarantine(last, "flood: far too much")
    said = warned()
    assert "no upload was mixed in for 200 s" in said and "all are in quarantine" in said
    assert f"{last} (flood: far too much)" in said and "fedtwin admin release NAME" in said
    live.release(last)
    assert warned() == ""
    live.close()


def test_tasks_that_are_all_overdue_are_a_standstill_and_long_trainings_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    live = begun(tmp_path / "run")
    clock, overdue = SimpleNamespace(monotonic_s=lambda: 0.0), [object()]

    class Busy:
        open: ClassVar = {"one": object(), "two": object()}

        def overdue(self, now_s: float) -> list[object]:
            assert now_s == 7.0
            return overdue

        def __getattr__(self, name: str) -> Any:
            return getattr(live.core, name)

    context: Any = SimpleNamespace(
        core=Busy(), clock=clock, strangers={}, heard_lately=list, run=SimpleNamespace(now_s=lambda: 7.0)
    )
    standstill = Standstill(context, Metrics())
    clock.monotonic_s = lambda: 100.0
    standstill.look(None)
    assert not caplog.records, "one of them is still training"
    overdue.append(object())
    clock.monotonic_s = lambda: 200.0
    standstill.look(None)
    assert "the deadlines of all 2 tasks have passed" in caplog.records[0].__dict__["fields"]["reasons"]
    live.close()


def said_by(fleet: Fleet) -> list[Said]:
    async def main() -> None:
        fleet.start()
        try:
            assert await fleet.until(lambda: fleet.finished, 300.0)
        finally:
            await fleet.stop()

    with listening(fleet.loop) as heard:
        run_virtually(main(), fleet.loop)
    return heard.said


def test_everybody_declines_and_that_is_said_within_seconds_with_the_value_that_would_do(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1, devices=3, rounds=5, **TIGHT)
    said = [one for one in said_by(fleet) if one.level == "error"]
    assert len(said) == 1, "once"
    began_s, ended_s = fleet.happened[0][0], fleet.happened[-1][0]
    assert said[0].at_s < 2.0 < ended_s - began_s, "not at the end"
    sentence = said[0].message
    assert sentence.startswith("everybody declines, nothing is trained: objective.max_energy_j = 1e-06 is too tight, ")
    enough = sentence.split(", ")[2].split()[0]
    run = opening.resume(tmp_path / "run")
    try:
        told = why_nothing_was_mixed_in(run)
    finally:
        run.close()
    assert told is not None and f"{enough} would let 90 % of the devices take part" in told, "and at the end, with exit code 3"
    other = tmp_path / "other"
    other.mkdir()
    settings: dict[str, Any] = {"objective.max_energy_j": float(enough)}
    roomy = Fleet(other, 1, devices=3, rounds=5, **settings)
    assert not [one for one in said_by(roomy) if one.level == "error"]
    assert [event for _, event in roomy.happened if isinstance(event, events.Applied)], "the value that was named is enough"


def test_boards_that_measured_nothing_settle_the_limits_by_their_first_uploads(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"live.limits_from_fleet": ["max_time_s", "max_energy_j"], **TIGHT}
    fleet = Fleet(tmp_path, 1, devices=3, rounds=20, **settings)
    said = said_by(fleet)
    happened = [event for _, event in fleet.happened]
    limits = [event for event in happened if isinstance(event, events.Limits)]
    assert limits and limits[0].devices in (1, 2), "whose uploads came first"
    assert sum(isinstance(event, events.Applied) for event in happened) >= 20
    assert any(one.message.startswith("limits of an update") and "max_time_s" in one.fields for one in said)


def test_a_model_that_never_changed_is_told_of_at_the_end(tmp_path: Path) -> None:
    told = {}
    for buffer_size in (5, 500):
        folder = tmp_path / str(buffer_size)
        folder.mkdir()
        settings: dict[str, Any] = {"learning.aggregation": "fedbuff", "learning.buffer_size": buffer_size}
        said = said_by(Fleet(folder, 1, devices=3, rounds=20, **settings))
        told[buffer_size] = [one for one in said if one.message.startswith("The model never changed: ")]
    assert not told[5] and [one.level for one in told[500]] == ["warning"]
    assert " uploads came, and the aggregation rule made no new one of them" in told[500][0].message
