"""The settings of a run as they travel to devices and workers, and as they are taken there."""

from pathlib import Path
from typing import Any

from fedtwin.config import Config
from fedtwin.policies import power_rule
from fedtwin.usercode import source_digest


def shared_settings(config: Config) -> dict[str, Any]:
    """The configuration as devices and workers get it, without what lies here only: files, and an aggregation rule.

    Of a model of one's own they get the digest: everybody must have the same source.
    """
    settings: dict[str, Any] = config.model_dump(mode="json", exclude_none=True)
    settings["fleet"].pop("file", None)
    settings.pop("code", None)
    if (model := config.own_code.get("learning.model")) is not None:
        settings["code"] = {"model_source": source_digest(model, config.code.folder)}
    settings["policy"]["power"] = power_rule(config)
    for key in ("aggregation", "aggregation_settings"):
        settings.get("learning", {}).pop(key, None)
    return settings


def with_code_in(folder: Path | None, config: Config) -> Config:
    """The run's settings, with its own code looked for in a folder of this machine."""
    if folder is None:
        return config
    return config.model_copy(update={"code": config.code.model_copy(update={"folder": str(folder)})})
