"""A device that floods is cut, sees why, and a person lets it back: with certificates and without."""

import subprocess
from pathlib import Path

import pytest

from fedtwin.live.broker.provisioning import provision, revoke
from tests.conftest import FEDTWIN
from tests.live.brokers import RUN, own_port
from tests.live.floods import FLOODER, flooding
from tests.live.plant import Plant, events_of, plant


def released(fleet: Plant, name: str, *place: object) -> subprocess.CompletedProcess[str]:
    command = [*FEDTWIN, "admin", "release", name, "--server", fleet.url(), *map(str, place)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=fleet.folder)


@pytest.mark.slow
@pytest.mark.parametrize("tls", [True, False])
def test_a_device_that_was_cut_comes_back(tmp_path: Path, tls: bool) -> None:
    folder, edge_place, own_place, order_place = tmp_path / "fleet", list[object](), list[object](), list[object]()
    if tls:
        provision(folder, run=RUN, server_names=[], devices=[FLOODER])
        edge_place = ["--credentials", folder, "--listen", f"127.0.0.1:{own_port()}"]
        own_place, order_place = ["--credentials", folder / "devices" / FLOODER], ["--credentials", folder / "operator"]
    with plant(tmp_path) as fleet:
        fleet.new_edge(
            "--rounds", 10**6, *edge_place, fleet__devices=1, fleet__channels=1, live__heartbeat_s=0.2, live__warn_after_s=2
        )  # fmt: skip
        fleet.device(FLOODER, fleet.url(), "--no-training", "--samples", 50, *own_place)
        fleet.wait_for("applied", count=3)
        with flooding(tmp_path, fleet.url(), "hellos", tls=tls):
            fleet.wait_for("quarantined")
            fleet.wait(lambda: "floods the broker and is" in fleet.log("edge"), "the cut")
        fleet.wait(lambda: "all are in quarantine: hostile (flood: " in fleet.log("edge"), "a warning")
        sentence = "authorization violation" if tls else "every connection is ended as soon as it is made"
        fleet.wait(lambda: sentence in fleet.log(FLOODER).lower(), "a sentence for the device")
        assert "--credentials" not in fleet.log(FLOODER)
        applied = len(events_of(fleet.run, "applied"))

        assert released(fleet, "nobody", *order_place).returncode == 2
        done = released(fleet, FLOODER, *order_place)
        assert done.returncode == 0 and done.stdout.startswith("hostile is released: it was in quarantine (flood: "), done
        assert ("its certificate is good again" in done.stdout) == tls
        fleet.wait_for("applied", count=applied + 3)
        again = released(fleet, FLOODER, *order_place)
        assert again.returncode == 2 and "nothing to release" in again.stderr
        if tls:
            assert revoke(folder, FLOODER)
            by_a_person = released(fleet, FLOODER, *order_place)
            assert by_a_person.returncode == 2 and "was revoked by a person" in by_a_person.stderr
            assert released(fleet, FLOODER, *own_place).returncode == 2, "a device gives no orders"
