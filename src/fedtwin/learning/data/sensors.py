"""Windows of vibration and current as boards on machines would record them, with faults to be found. Made, not measured.

Every machine turns at its own speed, with its own sensor gains and noise, and has seen mostly one fault: what one board can
learn alone is not enough for the others. The same seed gives the same bytes.
"""

from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.files import whole_file

Target = Literal["classification", "regression", "multilabel"]
FAULTS = ("imbalance", "bearing", "winding")
LENGTH, SAMPLES_PER_S = 128, 1000.0
MOST_HOURS = 100.0
OFTEN, SELDOM = 0.7, 0.1
TEST = 600
Floats = NDArray[np.float64]


def make_sensors(
    folder: Path, task: Target = "classification", boards: int = 4, samples: int = 300, seed: int = 0
) -> list[Path]:
    """``board-1.npz`` … with ``x_train``, windows of vibration and current, and ``y_train``; ``test.npz`` of all machines."""
    try:
        folder.mkdir(parents=True, exist_ok=False)
    except FileExistsError:
        raise FedtwinError(f"{str(folder)!r} exists already: name a folder that does not, nothing is overwritten.") from None
    except OSError as error:
        raise FedtwinError(f"{str(folder)!r} cannot be written: {error.strerror}.") from None
    made = []
    for board in range(boards):
        x, y = _windows(np.random.default_rng([seed, board]), task, board, boards, samples, at_test=False)
        made.append(_write(folder / f"board-{board + 1}.npz", x_train=x, y_train=y))
    parts = [
        _windows(np.random.default_rng([seed, boards + board]), task, board, boards, -(-TEST // boards), at_test=True)
        for board in range(boards)
    ]
    x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
    return [*made, _write(folder / "test.npz", x_test=x, y_test=y)]


def _write(path: Path, **arrays: NDArray[np.generic]) -> Path:
    with whole_file(path) as draft, draft.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return path


def _windows(
    rng: np.random.Generator, task: Target, board: int, boards: int, count: int, *, at_test: bool
) -> tuple[NDArray[np.float32], NDArray[np.generic]]:
    """Of one machine: what every window shows is drawn first, then the signal for it."""
    grades, y = _targets(rng, task, board, boards, count, at_test=at_test)
    machine = np.random.default_rng([7, board])  # the machine itself is the same in training and test
    shaft_hz, gain, current_a = 24.0 + 6.0 * machine.random(), 0.7 + 0.6 * machine.random(), 4.0 + 4.0 * machine.random()
    time_s = np.arange(LENGTH) / SAMPLES_PER_S
    hz = shaft_hz * (1.0 + 0.03 * rng.normal(size=(count, 1)))
    turn = 2.0 * np.pi * (hz * time_s + rng.random((count, 1)))
    imbalance, bearing, winding = (grades[:, [fault]] for fault in range(len(FAULTS)))
    vibration = (0.5 + 0.9 * imbalance) * np.sin(turn) + 0.25 * np.sin(2.0 * turn) + bearing * _rings(rng, hz, time_s)
    load = 1.0 + 0.1 * rng.normal(size=(count, 1))
    mains = 2.0 * np.pi * (50.0 * time_s + rng.random((count, 1)))
    current = load * np.sin(mains) * (1.0 + 0.35 * winding * np.sin(turn)) + 0.25 * winding * np.sin(3.0 * mains)
    noise = rng.normal(size=(2, count, LENGTH))
    x = np.stack([gain * (vibration + 0.45 * noise[0]), current_a * (current + 0.12 * noise[1])], 1)
    return x.astype(np.float32), y


def _rings(rng: np.random.Generator, hz: Floats, time_s: Floats) -> Floats:
    """A ball passes the damage some three times a turn, and the housing rings at 210 Hz."""
    since_s = (time_s + rng.random((len(hz), 1)) / hz) % (1.0 / (3.1 * hz))
    return np.asarray(1.6 * np.exp(-150.0 * since_s) * np.sin(2.0 * np.pi * 210.0 * since_s))


def _targets(
    rng: np.random.Generator, task: Target, board: int, boards: int, count: int, *, at_test: bool
) -> tuple[Floats, NDArray[np.generic]]:
    """How grave every fault is in every window, and what is to be learned of that."""
    grave = 0.6 + 0.4 * rng.random((count, len(FAULTS)))
    if task == "classification":
        often = np.full(len(FAULTS) + 1, SELDOM)
        often[board % len(often)] = OFTEN
        shares = np.full(len(often), 1.0 / len(often)) if at_test else often / often.sum()
        classes = rng.choice(len(shares), size=count, p=shares)
        return grave * (classes[:, None] == 1 + np.arange(len(FAULTS))), classes
    if task == "multilabel":
        often = np.full(len(FAULTS), SELDOM)
        often[board % len(FAULTS)] = OFTEN
        there = rng.random((count, len(FAULTS))) < (0.4 if at_test else often)
        return grave * there, there.astype(np.uint8)
    wear = rng.random(count)
    if not at_test:  # mostly as worn as this machine is now
        wear = np.where(rng.random(count) < OFTEN, (board + wear) / boards, wear)
    grades = np.stack([0.3 * wear, wear, np.zeros(count)], 1)
    return grades, (MOST_HOURS * (1.0 - wear)).astype(np.float32)
