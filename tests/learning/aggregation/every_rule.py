"""Every rule of fedtwin's own, in every way it can be set that takes another path, for tests that hold all to one word."""

from typing import Any

SYNC = {"run.mode": "sync"}


def _rule(name: str, buffer_size: int | None = None, **own: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"learning.aggregation": name}
    found |= {f"learning.aggregation_settings.{key}": value for key, value in own.items()}
    return found | ({} if buffer_size is None else {"learning.buffer_size": buffer_size})


RULES: dict[str, dict[str, Any]] = {
    "fedasync": {},
    "fedavg": SYNC,
    "fedbuff": _rule("fedbuff", 3),
    "window": _rule("window", size=4),
    "change": _rule("change"),
    "fedavgm": SYNC | _rule("fedavgm", momentum=0.8, rate=0.9),
    "ca2fl": _rule("ca2fl", 3),
    "ca2fl, N given": _rule("ca2fl", 2, devices=40),
    "ca2fl, eight bits": _rule("ca2fl", 3, int8_beyond=0),
    "ca2fl, eight bits beyond four": _rule("ca2fl", 3, int8_beyond=4),
    "ca2fl, synchronous": SYNC | _rule("ca2fl", 3),
    "fadas": _rule("fadas", 3, rate=0.01),
    "fadas, bound": _rule("fadas", 1, rate=0.4, delay="bound", delay_threshold=2),
    "fadas, no delay": _rule("fadas", 2, rate=0.01, delay="none"),
}
EACH_ONCE = ("fedasync", "fedavg", "fedbuff", "window", "change", "fedavgm", "ca2fl, eight bits beyond four", "fadas")
