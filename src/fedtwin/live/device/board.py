"""The machine a device agent runs on: what it is, and what its operating system lets us measure."""

import os
import platform
from pathlib import Path

CPU_FREQUENCY = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")
CPU_INFO = Path("/proc/cpuinfo")
RAPL = Path("/sys/class/powercap")
TEMPERATURE = Path("/sys/class/thermal/thermal_zone0/temp")


def hardware() -> dict[str, str]:
    """A few words about the machine, for people."""
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "cores": str(os.cpu_count() or 1),
    }


def cpu_hz() -> float | None:
    """The CPU frequency right now, where the system tells."""
    try:
        return 1e3 * float(CPU_FREQUENCY.read_text())
    except (OSError, ValueError):
        pass
    try:
        for line in CPU_INFO.read_text().splitlines():
            if line.lower().startswith("cpu mhz"):
                return 1e6 * float(line.partition(":")[2])
    except (OSError, ValueError):
        pass
    return None


def temperature_c() -> float | None:
    try:
        return float(TEMPERATURE.read_text()) / 1000.0
    except (OSError, ValueError):
        return None


class EnergyMeter:
    """RAPL counters of all packages, where they are readable. They count the whole package, not one process."""

    def __init__(self, root: Path = RAPL) -> None:
        self._counters = []
        for folder in sorted(root.glob("intel-rapl:?")):
            counter, most = folder / "energy_uj", folder / "max_energy_range_uj"
            try:
                self._counters.append((counter, int(most.read_text())))
                counter.read_text()
            except (OSError, ValueError):
                self._counters = []
                break

    @property
    def readable(self) -> bool:
        return bool(self._counters)

    def read(self) -> list[int]:
        """Microjoules of every package so far."""
        return [int(counter.read_text()) for counter, _ in self._counters]

    def joules_since(self, before: list[int]) -> float:
        """The counters wrap around."""
        now = self.read()
        return sum((b - a) % (most + 1) for a, b, (_, most) in zip(before, now, self._counters, strict=True)) / 1e6
