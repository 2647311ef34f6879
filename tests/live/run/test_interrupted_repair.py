"""A repair that is killed before any step it takes, and done again, ends as one that was not."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedtwin.errors import FedtwinError
from fedtwin.files import write_whole
from fedtwin.live.run import opening
from fedtwin.live.run import repair as repairing
from fedtwin.live.run.snapshots import snapshots_in
from tests.live.run.test_going_on import files_of, finished
from tests.live.run.test_live_run import KilledError
from tests.live.run.test_repair import drop_line, flipped, played


def newest_model(folder: Path) -> None:
    flipped(max((folder / "models").glob("model-*")), -1)


def line_at_the_end(folder: Path) -> None:
    drop_line(folder, 46)


def snapshots_and_line(folder: Path) -> None:
    for snapshot in snapshots_in(folder):
        snapshot.write_bytes(b"")
    drop_line(folder, 38)


def settings_and_model(folder: Path) -> None:
    (folder / "config.toml").write_bytes(b"")
    newest_model(folder)


def segment_is_a_folder(folder: Path) -> None:
    segment = max(folder.glob("ledger-*"))
    segment.unlink()
    (segment / "inside").mkdir(parents=True)


def records_and_model(folder: Path) -> None:
    shutil.rmtree(folder)
    finished(folder, 12)
    flipped(folder / "rounds.parquet", 40)
    newest_model(folder)


@contextmanager
def killed_before(step: int) -> Iterator[list[str]]:
    """The process ends before the step of this number; the steps that were taken."""
    taken: list[str] = []

    def counted(name: str, usual: Callable[..., Any]) -> Callable[..., Any]:
        def one(*given: Any, **more: Any) -> Any:
            if Path(given[0]).name != ".lock" and ".draft" not in Path(given[0]).name:
                if len(taken) == step:
                    raise KilledError
                taken.append(f"{name} {Path(given[0]).name}")
            return usual(*given, **more)

        return one

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fedtwin.live.run.repair.write_whole", counted("write", write_whole))
        for name in ("mkdir", "rename", "unlink"):
            patch.setattr(Path, name, counted(name, getattr(Path, name)))
        yield taken


def repaired(folder: Path) -> None:
    try:
        repairing.repair(folder)
    except FedtwinError as error:
        assert "finished" in str(error)


@pytest.mark.parametrize(
    "damage",
    [newest_model, line_at_the_end, snapshots_and_line, settings_and_model, segment_is_a_folder, records_and_model],
)
def test_a_repair_that_was_killed_is_done_again_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: Callable[[Path], None]
) -> None:
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
    damaged, folder = tmp_path / "damaged", tmp_path / "run"
    played(folder, 12)
    damage(folder)
    shutil.copytree(folder, damaged)
    repaired(folder)
    expected = files_of(folder)
    assert not (folder / "repair.json").exists() and expected != files_of(damaged)
    step = 0
    while True:
        shutil.rmtree(folder)
        shutil.copytree(damaged, folder)
        with killed_before(step) as taken:
            try:
                repaired(folder)
                break
            except KilledError:
                pass
        assert len(taken) == step
        repaired(folder)
        assert files_of(folder) == expected, f"killed after {taken}"
        step += 1
    assert step >= 3


def test_a_resume_finishes_a_repair_that_was_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    played(tmp_path / "run", 5)
    newest_model(tmp_path / "run")
    with killed_before(2), pytest.raises(KilledError):
        repairing.repair(tmp_path / "run")
    assert json.loads((tmp_path / "run" / "repair.json").read_text(encoding="utf-8"))["folder"] == "damaged-1"
    live = opening.resume(tmp_path / "run")
    assert live.core.version == 4
    assert "repaired: the run went back to the last state that verifies" in [record.message for record in caplog.records]
    live.close()
    newest_model(tmp_path / "run")
    (tmp_path / "run" / "repair.json").write_bytes(b"{")
    with pytest.raises(FedtwinError, match=r"repair\.json' is damaged: remove it, and repair the run again"):
        opening.resume(tmp_path / "run")


def test_models_that_can_be_gone_back_to_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second damage after a repair costs no more than it would have before."""
    monkeypatch.setattr("fedtwin.live.run.trail.SEGMENT_LINES", 20)
    folder = tmp_path / "run"
    played(folder, 12, **{"learning.average": "none"})
    kept = sorted(path.name for path in (folder / "models").iterdir())
    newest_model(folder)
    opening.resume(folder, repair=True).close()
    assert sorted(path.name for path in (folder / "models").iterdir()) == kept[:-1]
    newest_model(folder)
    again = opening.resume(folder, repair=True)
    assert again.core.version == int(kept[-3].removeprefix("model-").partition(".")[0]) > 0
    again.close()
