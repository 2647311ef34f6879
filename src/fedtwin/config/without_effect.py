"""Settings that a fleet's file stands in place of."""

from pathlib import Path

from fedtwin.config.fleet_csv import read_fleet_csv
from fedtwin.config.schema import Config

DRAWN = ("fleet.radius_m", "fleet.min_distance_m", "fleet.samples_min", "fleet.samples_max", "compute.cpu_hz_min",
         "compute.cpu_hz_max")  # fmt: skip
OF_A_COLUMN = {"max_power_w": "radio", "update_bits": "radio", "cycles_per_sample": "compute"}


def without_effect(config: Config) -> str | None:
    """A sentence where settings are not the defaults, and change nothing: every device of ``fleet.file`` has its own."""
    if config.fleet.file is None:
        return None
    columns = read_fleet_csv(Path(config.fleet.file))[0].own
    names = [*DRAWN, *(f"{section}.{name}" for name, section in OF_A_COLUMN.items() if name in columns)]
    default = Config()
    changed = [f"{name} = {_told(_value(config, name))}" for name in names if _value(config, name) != _value(default, name)]
    return f"{', '.join(changed)}: without effect, the devices of fleet.file have their own." if changed else None


def _value(config: Config, name: str) -> float | str:
    section, key = name.split(".")
    found: float | str = getattr(getattr(config, section), key)
    return found


def _told(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
