"""The settings of a run as they travel to devices and workers, and as they are taken there."""

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fedtwin import __version__
from fedtwin.config import CodeConfig, Config, LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.live.wire.protocol import MOST_CODE_BYTES, MOST_FILES, misfit
from fedtwin.policies import power_rule
from fedtwin.usercode import source_digest, sources_of

OF_LATER_VERSIONS = (
    "momentum",
    "weight_decay",
    "clip_norm",
    "rate_schedule",
    "rate_rounds",
    "rate_warmup_rounds",
    "augment",
    "compress",
    "top_k",
    "error_feedback",
)
"""Settings that devices of earlier versions do not know: they get them only where they are not what was always done."""


def shared_settings(config: Config) -> dict[str, Any]:
    """The configuration as devices and workers get it, without what lies here only: files, and an aggregation rule.

    Of a model of one's own, or a loss, a metric, an optimiser, they get the digest: everybody must have the same source.
    """
    settings: dict[str, Any] = config.model_dump(mode="json", exclude_none=True)
    settings["fleet"].pop("file", None)
    settings.pop("code", None)
    own = config.learning.own_code if config.learning is not None else {}
    sources = {setting: source_digest(name, config.code.folder) for setting, name in own.items()}
    if sources:
        model = {"model_source": sources.pop("learning.model")} if "learning.model" in sources else {}
        settings["code"] = {**model, **({"sources": sources} if sources else {})}
    settings["policy"]["power"] = power_rule(config)
    for key in ("aggregation", "aggregation_settings"):
        settings.get("learning", {}).pop(key, None)
    for key in OF_LATER_VERSIONS:
        if settings.get("learning", {}).get(key) == LearningConfig.model_fields[key].default:
            del settings["learning"][key]
    return settings


def taken_settings(settings: dict[str, Any]) -> Config:
    """The run's settings as a device takes them: none that is not known here is passed over."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise FedtwinError(
            f"The run has settings that fedtwin {__version__} does not take: {misfit(error)}; install that of the edge server."
        ) from None


def digests_of(code: CodeConfig) -> dict[str, str]:
    """Of all code of the run's own that a device needs, by setting."""
    model = {} if code.model_source is None else {"learning.model": code.model_source}
    return {**model, **code.sources}


def one_digest(code: CodeConfig) -> str | None:
    """Of all of it: its own where it is one piece, else that of the digests; None where there is none."""
    digests = digests_of(code)
    if len(digests) < 2:
        return next(iter(digests.values()), None)
    return hashlib.sha256("".join(f"{setting} {digest}\n" for setting, digest in sorted(digests.items())).encode()).hexdigest()


def shipped_code(config: Config) -> dict[str, str]:
    """The source of all of it, by its path in a folder of code: what ``--ship-code`` gives to devices."""
    own = config.learning.own_code if config.learning is not None else {}
    if not own:
        raise FedtwinError("--ship-code has nothing to ship: no setting of [learning] is code of your own (module:attribute).")
    names = ", ".join(f"{setting} = {name!r}" for setting, name in own.items())
    sources = sources_of(own.values(), config.code.folder)
    size = sum(map(len, sources.values()))
    if not sources or len(sources) > MOST_FILES or size > MOST_CODE_BYTES:
        raise FedtwinError(
            f"--ship-code: {names} has {len(sources)} files of {size} bytes: 1 to {MOST_FILES} files of {MOST_CODE_BYTES} "
            "bytes in all can be shipped."
        )
    try:
        return {path: source.decode() for path, source in sources.items()}
    except UnicodeDecodeError:
        raise FedtwinError(f"--ship-code: the source of {names} is not UTF-8.") from None


def with_code_in(folder: Path | None, config: Config) -> Config:
    """The run's settings, with its own code looked for in a folder of this machine."""
    if folder is None:
        return config
    return config.model_copy(update={"code": config.code.model_copy(update={"folder": str(folder)})})
