"""The live fleet from Python: a broker, an edge server and devices without the command line."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fedtwin import live
from fedtwin.config import build_config
from fedtwin.errors import FedtwinError
from fedtwin.live.event_loop import StopSignals
from fedtwin.processes import runs_with
from tests.live.plant import events_of, until, write_model

DEVICE = """
import sys
from pathlib import Path
from fedtwin import live
live.run_device(sys.argv[1], [sys.argv[2]], live.NoTrainer(40), run="mine", radio="emulated", distance_m=50.0)
"""


def test_a_run_is_served_and_gone_on_with_from_python(tmp_path: Path) -> None:
    config = build_config({}, {"fleet.devices": 2, "fleet.channels": 2, "run.rounds": 6, "live.time_scale": 0.2})
    model = write_model(tmp_path / "initial.safetensors")
    with live.local_broker(tmp_path / "broker") as broker, live.LocalFleet(tmp_path / "fleet") as fleet:
        for name in ("d0", "d1"):
            fleet.start(name, [sys.executable, "-W", "error", "-c", DEVICE, name, broker.url])
        place = live.Place([broker.url])
        served = live.serve(config, tmp_path / "run", run="mine", place=place, initial=model, evaluator=False)
        assert served.summary["rounds"] == 6 and served.exit_code == 0 and served.error is None
        assert len(events_of(tmp_path / "run", "joined")) == 2
        with pytest.raises(FedtwinError, match="this run is finished"):
            live.resume(tmp_path / "run", place=place)
        with pytest.raises(FedtwinError, match="exists already"):
            live.serve(config, tmp_path / "run", place=place, initial=model)


def test_a_local_fleet_starts_goes_on_and_leaves_nothing_behind(tmp_path: Path) -> None:
    config = build_config({}, {"fleet.devices": 1, "fleet.channels": 1, "run.rounds": 100_000, "live.time_scale": 0.2})
    model = write_model(tmp_path / "initial.safetensors")
    with live.LocalFleet(tmp_path / "fleet") as fleet:
        fleet.edge("--initial", model, "--no-evaluator", config=config)
        url = fleet.url()
        fleet.device("d0", url, "--no-training", "--samples", 40, "--radio", "emulated")
        until(lambda: events_of(fleet.run, "applied"), "an upload")
        fleet.kill("edge")
        fleet.edge("--initial", model, "--no-evaluator", config=config)
        until(lambda: events_of(fleet.run, "resumed"), "the run goes on")
        assert fleet.url() == url
        broker = int(fleet.broker_record()["pid"])
    assert not runs_with(broker, str(fleet.run.resolve())) and not (fleet.run / ".lock").exists()
    assert all(process.returncode == 0 for process in fleet.processes.values())


@pytest.mark.slow
def test_the_fleet_in_the_docs_works_as_it_stands(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    page = (Path(__file__).parents[2] / "docs" / "live.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n# fleet\.py\n(.*?)```", page, re.DOTALL)
    assert code is not None
    command = [sys.executable, "-W", "error", "-c", code.group(1)]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    tables = [f"{name}.parquet" for name in ("devices", "evaluations", "rounds", "start", "tasks")]
    assert ran.stdout == f"0 {tables}\n", ran.stderr


def test_an_edge_server_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with live.LocalFleet(tmp_path) as fleet:
        fleet.edge("--initial", tmp_path / "missing", "--no-evaluator")
        with pytest.raises(FedtwinError, match=r"The edge server ended: --initial '.*missing' cannot be read"):
            fleet.url()


def test_bad_names_are_one_sentence() -> None:
    with pytest.raises(FedtwinError, match="NAME 'a b' is not allowed"):
        live.run_device("a b", ["nats://127.0.0.1:1"], live.NoTrainer(1))
    with pytest.raises(FedtwinError, match="--radio 'loud' is not allowed"):
        live.run_device("a", ["nats://127.0.0.1:1"], live.NoTrainer(1), radio="loud")
    with pytest.raises(FedtwinError, match="--run '' is not allowed"):
        live.run_evaluator([], run="")


def test_outside_the_main_thread_signals_are_left_alone() -> None:
    troubles: list[BaseException] = []

    def enter() -> None:
        try:
            with StopSignals():
                pass
        except BaseException as error:
            troubles.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert not troubles


@pytest.mark.parametrize("name", live.__all__)
def test_every_public_name_is_there_and_explained(name: str) -> None:
    assert (getattr(live, name).__doc__ or "").strip() and name in dir(live)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        live.nothing_like_it  # noqa: B018


def test_nothing_of_nats_is_imported_before_it_is_needed() -> None:
    code = "import sys, fedtwin.live; print('nats' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
