"""Settings that a fleet's file, or a range that its devices are drawn from, stands in place of."""

from pathlib import Path

from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.config.schema import Config

DRAWN = ("fleet.radius_m", "fleet.min_distance_m", "fleet.samples_min", "fleet.samples_max", "compute.cpu_hz_min",
         "compute.cpu_hz_max")  # fmt: skip
OF_A_DEVICE = {"max_power_w": "radio", "update_bits": "radio", "cycles_per_sample": "compute"}


def without_effect(config: Config) -> str | None:
    """A sentence where settings are not the defaults, and change nothing: every device has its own."""
    if config.fleet.file is not None:
        columns = read_fleet_csv(Path(config.fleet.file))[0].own
        names, whose = [*DRAWN, *(_setting(name) for name in OF_A_DEVICE if name in columns)], "of fleet.file"
    else:
        ranges = [name for name in OF_A_DEVICE if getattr(config.fleet, name) is not None]
        names, whose = [_setting(name) for name in ranges], "drawn by a range of [fleet]"
    default = Config()
    changed = [f"{name} = {_told(_value(config, name))}" for name in names if _value(config, name) != _value(default, name)]
    return f"{', '.join(changed)}: without effect, the devices {whose} have their own." if changed else None


def _setting(name: str) -> str:
    return f"{OF_A_DEVICE[name]}.{name}"


def _value(config: Config, name: str) -> float | str:
    section, key = name.split(".")
    found: float | str = getattr(getattr(config, section), key)
    return found


def _told(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
