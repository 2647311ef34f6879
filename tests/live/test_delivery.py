"""What an upload took is what the attempt that succeeded took."""

import asyncio
from types import SimpleNamespace
from typing import Any

import nats.errors
import pytest

from fedtwin.live import delivery
from fedtwin.live.delivery import Attempt, Delivery
from fedtwin.live.protocol import Subjects

TOKEN = "0" * 32


class Broker:
    """Plays the broker: every attempt takes its time, and an error if it has one; ``reconnects`` counts what broke."""

    def __init__(self, *attempts: tuple[float, bool]) -> None:
        self.attempts = list(attempts)
        self.stats = {"reconnects": 0}
        self.now_s, self.breaks_during_the_last = 0.0, False
        self.max_payload, self.is_closed = 2**20, False

    def jetstream(self) -> "Broker":
        return self

    async def publish(self, *_: object, **__: object) -> None:
        took_s, works = self.attempts.pop(0)
        self.now_s += took_s
        self.stats["reconnects"] += self.breaks_during_the_last or not works
        if not works:
            raise nats.errors.TimeoutError


def uploaded(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Attempt:
    async def pause(seconds: float) -> None:
        broker.now_s += seconds

    monkeypatch.setattr(delivery, "time", SimpleNamespace(perf_counter=lambda: broker.now_s, monotonic=lambda: broker.now_s))
    monkeypatch.setattr(delivery, "asyncio", SimpleNamespace(sleep=pause))
    client: Any = broker
    name, attempt = asyncio.run(Delivery(client, Subjects("main"), "d0").upload(TOKEN, b"model"))
    assert name is None and not broker.attempts
    return attempt


def test_attempts_that_failed_and_the_pauses_are_not_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker((5.0, False), (5.0, False), (0.25, True))
    attempt = uploaded(broker, monkeypatch)
    assert attempt.wall_s == pytest.approx(0.25) and attempt.steady
    assert broker.now_s > 10.25


def test_an_attempt_in_which_the_connection_broke_is_known_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker((3.0, True))
    broker.breaks_during_the_last = True
    assert not uploaded(broker, monkeypatch).steady
