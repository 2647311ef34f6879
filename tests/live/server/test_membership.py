"""The source of the run's own model goes to who asks for it, if the operator ships it, and to nobody else."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtwin.config import Config, build_config
from fedtwin.errors import FedtwinError
from fedtwin.live.device.agent import Agent, AgentOptions
from fedtwin.live.device.shipped import CodeRules
from fedtwin.live.device.trainers import Update
from fedtwin.live.run import opening
from fedtwin.live.run.live_run import LiveRun
from fedtwin.live.server.context import EdgeContext
from fedtwin.live.server.membership import Membership
from fedtwin.live.wire.nats_transport import connect
from fedtwin.live.wire.protocol import Hello, Subjects, Welcome
from fedtwin.live.wire.settings import shipped_code
from tests.live.brokers import running, until
from tests.live.run.test_live_run import CODEC, weights

SOURCE = "raise SystemExit('an edge server does not load it')\n"


class Reader:
    """Trains nothing: it reads the source that it is given."""

    def __init__(self, *, has_code: bool) -> None:
        self._has_code, self.read = has_code, ""

    def lacks_code(self, config: Config) -> bool:
        assert config.code.folder is None
        return not self._has_code

    def prepare(self, config: Config) -> int:
        self.read = "" if config.code.folder is None else Path(config.code.folder, "mine.py").read_text(encoding="utf-8")
        return 40

    def train(self, model: bytes, round_: int) -> Update:  # noqa: ARG002
        return Update(model, None)

    def stop(self) -> None:
        pass


@pytest.fixture
def run(tmp_path: Path) -> Iterator[LiveRun]:
    (tmp_path / "mine.py").write_text(SOURCE, encoding="utf-8")
    settings = {"learning.model": "mine:net", "learning.dataset": "digits", "fleet.channels": 2, "live.time_scale": 1.0}
    config = build_config({"code": {"folder": str(tmp_path)}}, settings)
    live = opening.begin(tmp_path / "run", config, "main", CODEC.encode(weights(0.0)))
    yield live
    live.close()


def joined(run: LiveRun, folder: Path, trainer: Reader, rules: CodeRules, *, ships: bool) -> None:
    """A device that has said hello to an edge server, and is stopped then."""

    async def scene() -> None:
        transport = await connect([broker.url], name="edge", credentials=None, insecure=False)
        await Membership(EdgeContext(run, transport, code=shipped_code(run.config) if ships else None)).open()
        agent = Agent(AgentOptions("d0", [broker.url], trainer, code=rules))
        working = asyncio.create_task(agent.run())
        await until(lambda: "d0" in run.core.members or working.done())
        agent.stop()
        try:
            await working
        finally:
            await transport.close()

    with running(folder) as broker:
        asyncio.run(scene())


def test_a_device_that_lacks_the_code_and_accepts_it_gets_it(run: LiveRun, tmp_path: Path) -> None:
    trainer = Reader(has_code=False)
    joined(run, tmp_path, trainer, CodeRules(accept=True), ships=True)
    assert trainer.read == SOURCE and "d0" in run.core.members


@pytest.mark.parametrize(("accept", "has_code"), [(False, False), (True, True)])
def test_it_is_not_sent_to_who_has_it_or_does_not_accept_it(
    run: LiveRun, tmp_path: Path, *, accept: bool, has_code: bool
) -> None:
    trainer = Reader(has_code=has_code)
    joined(run, tmp_path, trainer, CodeRules(accept=accept), ships=True)
    assert trainer.read == "" and "d0" in run.core.members


@pytest.mark.parametrize("compress", ["none", "top-k"])
def test_a_device_that_keeps_what_it_left_out_hears_which_run_this_is(tmp_path: Path, compress: str) -> None:
    async def scene(url: str, run: LiveRun) -> Welcome:
        transport = await connect([url], name="edge", credentials=None, insecure=False)
        asking = await connect([url], name="d0", credentials=None, insecure=False)
        try:
            await Membership(EdgeContext(run, transport)).open()
            subject = Subjects("main").hello("d0")
            return Welcome.model_validate_json(await asking.request(subject, Hello().encoded(), timeout_s=5.0))
        finally:
            await asking.close()
            await transport.close()

    heard = []
    with running(tmp_path) as broker:
        for folder in ("one", "two"):
            config = build_config({}, {"learning.compress": compress, "learning.dataset": "digits"})
            live = opening.begin(tmp_path / folder, config, "main", CODEC.encode(weights(0.0)))
            try:
                heard.append(asyncio.run(scene(broker.url, live)).identity)
                assert live.core.began is not None
                assert heard[-1] == (None if compress == "none" else live.core.began.identity)
            finally:
                live.close()
    assert compress == "none" or heard[0] != heard[1]


def test_an_edge_server_that_was_not_told_to_ships_nothing(run: LiveRun, tmp_path: Path) -> None:
    with pytest.raises(FedtwinError, match="the edge server gives none: start it with --ship-code"):
        joined(run, tmp_path, Reader(has_code=False), CodeRules(accept=True), ships=False)
