"""A cluster of the user's own: a node is killed, and the run goes on with all it had."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtwin.live.broker.program import executable
from tests.live.brokers import own_port
from tests.live.plant import events_of, plant

NODES = 3
Node = tuple[str, "subprocess.Popen[bytes]"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    """Three NATS servers with JetStream that know each other."""
    ports, routes = [own_port() for _ in range(NODES)], [own_port() for _ in range(NODES)]
    everybody = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    started: list[Node] = []
    try:
        for number, (port, route) in enumerate(zip(ports, routes, strict=True)):
            conf = tmp_path / f"node-{number}.conf"
            conf.write_text(
                f'server_name: "node-{number}"\nlisten: 127.0.0.1:{port}\nmax_payload: 8MB\n'
                f'jetstream {{ store_dir: "{tmp_path}/store-{number}" }}\n'
                f'cluster {{ name: "plant", listen: 127.0.0.1:{route}, routes: [{everybody}] }}\n',
                encoding="utf-8",
            )
            with (tmp_path / f"node-{number}.log").open("wb") as log:
                process = subprocess.Popen([executable(), "-c", str(conf)], stdout=log, stderr=log)
            started.append((f"nats://127.0.0.1:{port}", process))
        yield started
    finally:
        for _, process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_run_on_a_cluster_survives_the_loss_of_a_node(tmp_path: Path, nodes: list[Node]) -> None:
    with plant(tmp_path) as fleet:
        urls = [word for url, _ in nodes for word in ("--server", url)]
        fleet.new_edge(*urls, "--rounds", 90, "--time-scale", 0.2, fleet__devices=3, fleet__channels=3, live__replicas=3)
        for name in ("d0", "d1", "d2"):
            fleet.device(name, nodes[0][0], *urls[2:], "--no-training", "--samples", 40, "--radio", "emulated")
        fleet.wait_for("applied", count=20)
        nodes[1][1].kill()
        nodes[1][1].wait()
        assert fleet.ended("edge") == 0
        summary = json.loads((fleet.run / "summary.json").read_text(encoding="utf-8"))
        tokens = [event["token"] for event in events_of(fleet.run, "applied")]
        assert len(tokens) == len(set(tokens)) == summary["model_version"] > 80
