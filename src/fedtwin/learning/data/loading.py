"""Where data sets come from: the package, the cache, or files of the user's own. Nothing is ever fetched here."""

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from fedtwin.config import LearningConfig
from fedtwin.config.data_files import files_of_data
from fedtwin.errors import FedtwinError
from fedtwin.files import natural, plain_file
from fedtwin.learning.data.catalog import CATALOG, cached_folder
from fedtwin.learning.data.checking import checked
from fedtwin.learning.data.dataset import ARRAYS, Dataset, other_features
from fedtwin.learning.data.parquet import FEATURES, arrays_of_parquet
from fedtwin.learning.tasks import outputs_of_targets
from fedtwin.usercode.trees import TREES

Arrays = dict[str, NDArray[Any]]
EMBEDDED = "digits"
TEST = "test"
BOTH = ("train", "test")


def load_dataset(name: str, learning: LearningConfig | None = None, parts: Sequence[str] = BOTH) -> Dataset:
    """A data set by name, or files of the user's: a ``.npz``, a ``.parquet`` or a folder of them, one per device.

    ``learning`` says what its targets are. ``parts`` must be there: a device needs no test set, an evaluator only that.
    """
    learning = learning or LearningConfig()
    return _load(name, learning, parts).normalised(learning.normalisation or None)


def _load(name: str, learning: LearningConfig, parts: Sequence[str]) -> Dataset:
    setting = f"learning.dataset = {name!r}"
    if name == EMBEDDED or name in CATALOG:
        if learning.task != "classification":
            raise FedtwinError(f"{setting} has classes: learning.task = {learning.task!r} needs data of your own.")
        data = _embedded(setting) if name == EMBEDDED else _cached(name)
        if learning.outputs:
            outputs_of_targets(learning, setting, [data.y_train, data.y_test])
        return replace(data, given_outputs=learning.outputs)
    path = Path(name)
    if "\0" in name:
        raise FedtwinError(f"{setting} cannot be read: a name holds no NUL.")
    try:
        if path.is_dir():
            return checked(setting, _of_folder(setting, path, parts), learning)
        if path.suffix not in (".npz", ".parquet"):
            known = ", ".join([EMBEDDED, *CATALOG])
            kinds = "a .npz or .parquet file of your own, or a folder of them"
            raise FedtwinError(f"{setting} is unknown: choose one of {known}, or {kinds}.")
        return checked(setting, _required(setting, _of_file(setting, path), parts), learning)
    except OSError as error:
        raise FedtwinError(f"{setting} cannot be read: {error.strerror or error}.") from None


def load_samples(name: str, learning: LearningConfig) -> tuple[Dataset, bool]:
    """The samples to use a model on, as the test set of a data set, and whether they came with targets.

    A ``.npz`` has ``x_test`` and maybe ``y_test``, or ``x`` and ``y``, or those of training; of a folder it is the test set.
    """
    setting = f"DATA = {name!r}"
    if name == EMBEDDED or name in CATALOG:
        data = _load(name, learning, ("test",))
        return replace(data, x_train=data.x_train[:0], y_train=data.y_train[:0]), True
    path, pairs = Path(name), (("x_test", "y_test"), ("x", "y"), ("x_train", "y_train"))
    try:
        if path.is_dir():
            arrays = _of_folder(setting, path, ("test",))
        elif path.suffix == ".parquet":
            arrays = arrays_of_parquet(setting, plain_file(path), TEST, needs_targets=False)
        elif path.suffix == ".npz":
            with plain_file(path).open("rb") as file:
                arrays = _of_npz(setting, file, [array for pair in pairs for array in pair])
        else:
            raise FedtwinError(f"{setting} is not data: a .npz or .parquet file, or a folder of them, is needed.")
    except OSError as error:
        raise FedtwinError(f"{setting} cannot be read: {error.strerror or error}.") from None
    found = next(((arrays[x], arrays.get(y)) for x, y in pairs if x in arrays), None)
    if found is None:
        raise FedtwinError(f"{setting} has no array x_test, x or x_train.")
    samples, targets = found
    whole = learning.task == "classification"
    there = np.zeros(len(samples), np.int64) if whole else np.zeros((len(samples), max(learning.outputs, 1)), np.float32)
    given = {"x_test": samples, "y_test": there if targets is None else targets}
    given |= {FEATURES: arrays[FEATURES]} if FEATURES in arrays else {}
    return checked(setting, given, learning), targets is not None


def _embedded(setting: str) -> Dataset:
    with files("fedtwin.learning.data").joinpath("digits.npz").open("rb") as file:
        arrays = _of_npz(setting, cast(BinaryIO, file))
    return Dataset(arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"])


def _cached(name: str) -> Dataset:
    folder = cached_folder(name)
    if not (folder / "complete").exists():
        raise FedtwinError(f"learning.dataset = {name!r} is not on this machine: run `fedtwin data fetch {name}`.")
    try:
        with TREES:
            x_train, y_train, x_test, y_test = (np.load(folder / f"{array}.npy", mmap_mode="r") for array in ARRAYS)
        return Dataset(x_train, y_train, x_test, y_test)
    except (OSError, ValueError, EOFError) as error:
        raise FedtwinError(
            f"learning.dataset = {name!r} in {str(folder)!r} is damaged ({type(error).__name__}): remove that folder, "
            f"then run `fedtwin data fetch {name}`."
        ) from None


def _of_folder(setting: str, folder: Path, parts: Sequence[str]) -> Arrays:
    """One file per device, by name, and ``test`` for the test set."""
    found = sorted(files_of_data(folder), key=lambda path: natural(path.name))
    devices = [path for path in found if path.stem != TEST]
    gathered: dict[str, list[NDArray[Any]]] = {name: [] for name in ("x_train", "y_train", "client")}
    named: dict[str, NDArray[Any]] = {}
    for number, path in enumerate(devices):
        whose = f"{setting}: {path.name!r}"
        arrays = _required(whose, _of_file(whose, path), ("train",))
        for name in ("x_train", "y_train"):
            part = arrays[name]
            if gathered[name] and part.shape[1:] != gathered[name][0].shape[1:]:
                first = f"{gathered[name][0].shape[1:]} in {devices[0].name!r}"
                raise FedtwinError(f"{whose}: {name} has samples of shape {part.shape[1:]}, and {first}.")
            gathered[name].append(part)
        _require_the_same_features(setting, named, path.name, arrays)
        gathered["client"].append(np.full(len(arrays["y_train"]), number))
    together = {name: np.concatenate(all_) for name, all_ in gathered.items() if all_}
    for path in found:
        if path.stem == TEST:
            arrays = _required(f"{setting}: {path.name!r}", _of_file(f"{setting}: {path.name!r}", path), ("test",))
            _require_the_same_features(setting, named, path.name, arrays)
            together |= {name: arrays[name] for name in ("x_test", "y_test")}
    for needed, what in (("train", "file of a device"), ("test", "file test.npz or test.parquet")):
        if needed in parts and f"x_{needed}" not in together:
            raise FedtwinError(f"{setting} has no {what}.")
    return {**together, FEATURES: next(iter(named.values()))} if named else together


def _require_the_same_features(setting: str, named: dict[str, NDArray[Any]], file: str, arrays: Arrays) -> None:
    """Of all files whose features have names; of the others only their number is known."""
    if FEATURES not in arrays:
        return
    for first, features in named.items():
        if (others := other_features(arrays[FEATURES].tolist(), features.tolist())) is not None:
            raise FedtwinError(f"{setting}: {file!r} has the features {others[0]}, where {first!r} has {others[1]}.")
    named.setdefault(file, arrays[FEATURES])


def _of_file(setting: str, path: Path) -> Arrays:
    if path.suffix == ".parquet":
        return arrays_of_parquet(setting, plain_file(path), TEST if path.stem == TEST else "train")
    with plain_file(path).open("rb") as file:
        return _of_npz(setting, file)


def _of_npz(setting: str, file: BinaryIO, names: Sequence[str] = (*ARRAYS, "client")) -> Arrays:
    try:
        with TREES, np.load(file, allow_pickle=False) as arrays:
            found = {array: arrays[array] for array in names if array in arrays}
            foreign = [array for array, value in found.items() if not isinstance(value, np.ndarray)]
            if foreign:
                raise ValueError(f"{', '.join(foreign)} cannot be read as an array")
            return found
    except (FedtwinError, OSError):
        raise
    except Exception as error:  # every part of a ZIP file has its own: zlib's, LZMA's, a shape that no memory holds
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FedtwinError(f"{setting} is not a .npz of plain arrays: {reason.rstrip('.')}.") from None


def _required(setting: str, arrays: Arrays, parts: Sequence[str]) -> Arrays:
    missing = [array for array in ARRAYS if array[2:] in parts and array not in arrays]
    halves = [f"{'y' if name[0] == 'x' else 'x'}_{name[2:]}" for name in arrays if name in ARRAYS]
    missing += [name for name in halves if name not in arrays and name not in missing]
    if missing:
        raise FedtwinError(f"{setting} has no array {', '.join(missing)}.")
    return arrays
