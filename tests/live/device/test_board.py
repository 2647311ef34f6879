"""What the operating system tells of a machine, with folders in place of its own."""

from pathlib import Path

import pytest

from fedtwin.live.device import board
from fedtwin.live.wire.protocol import Hello

MOST = 1_000_000


def package(root: Path, number: int, value: int, most: int = MOST) -> Path:
    folder = root / f"intel-rapl:{number}"
    folder.mkdir()
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    (folder / "energy_uj").write_text(f"{value}\n")
    return folder / "energy_uj"


def test_energy_is_the_sum_over_the_packages(tmp_path: Path) -> None:
    counters = [package(tmp_path, 0, 100), package(tmp_path, 1, 5000)]
    (tmp_path / "intel-rapl:0:0").mkdir()  # a part of a package, counted with it
    meter = board.EnergyMeter(tmp_path)
    before = meter.read()
    assert meter.readable and before == [100, 5000]
    counters[0].write_text("400100\n")
    counters[1].write_text("7000\n")
    assert meter.joules_since(before) == pytest.approx(0.402)


def test_counters_that_wrapped_around_have_gone_on(tmp_path: Path) -> None:
    counters = [package(tmp_path, 0, MOST - 10), package(tmp_path, 1, 50, most=2 * MOST)]
    meter = board.EnergyMeter(tmp_path)
    before = meter.read()
    counters[0].write_text("89\n")
    counters[1].write_text("50\n")
    assert meter.joules_since(before) == pytest.approx(100e-6), "10 to the end, 1 to begin anew, 89"


@pytest.mark.parametrize("damage", ["max_energy_range_uj", "energy_uj"])
def test_counters_that_cannot_be_read_are_none(tmp_path: Path, damage: str) -> None:
    package(tmp_path, 0, 1)
    package(tmp_path, 1, 1)
    (tmp_path / "intel-rapl:1" / damage).unlink()
    assert not board.EnergyMeter(tmp_path).readable
    assert not board.EnergyMeter(tmp_path / "nowhere").readable


def test_the_cpu_frequency_has_two_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "CPU_FREQUENCY", tmp_path / "frequency")
    monkeypatch.setattr(board, "CPU_INFO", tmp_path / "info")
    assert board.cpu_hz() is None
    (tmp_path / "info").write_text("processor : 0\ncpu MHz\t\t: 2596.144\ncpu MHz : 1.0\n")
    assert board.cpu_hz() == pytest.approx(2.596144e9)
    (tmp_path / "frequency").write_text("1800000\n")
    assert board.cpu_hz() == pytest.approx(1.8e9)
    (tmp_path / "frequency").write_text("<unknown>\n")
    (tmp_path / "info").write_text("cpu MHz : fast\n")
    assert board.cpu_hz() is None


def test_the_temperature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board, "TEMPERATURE", tmp_path / "temp")
    assert board.temperature_c() is None
    (tmp_path / "temp").write_text("48500\n")
    assert board.temperature_c() == 48.5


def test_the_hardware_fits_into_a_hello() -> None:
    words = Hello(hardware=board.hardware()).hardware
    assert set(words) == {"machine", "system", "python", "cores"} and int(words["cores"]) >= 1
