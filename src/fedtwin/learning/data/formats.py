"""The canonical files of the catalogued data sets, to arrays and back."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.learning.data.catalog import CIFAR_FILES, FASHION_FILES

Arrays = dict[str, NDArray[Any]]


def fashion_arrays(raw: Mapping[str, bytes]) -> Arrays:
    """idx files: a header of big-endian integers, then bytes."""
    x_train, y_train, x_test, y_test = (raw[name] for name in FASHION_FILES)
    return {
        "x_train": np.frombuffer(x_train, np.uint8, offset=16).reshape(-1, 28, 28, 1),
        "y_train": np.frombuffer(y_train, np.uint8, offset=8),
        "x_test": np.frombuffer(x_test, np.uint8, offset=16).reshape(-1, 28, 28, 1),
        "y_test": np.frombuffer(y_test, np.uint8, offset=8),
    }


def fashion_files(arrays: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    def images(x: NDArray[Any]) -> bytes:
        return np.array([0x803, len(x), 28, 28], ">i4").tobytes() + np.ascontiguousarray(x).tobytes()

    def labels(y: NDArray[Any]) -> bytes:
        return np.array([0x801, len(y)], ">i4").tobytes() + np.ascontiguousarray(y).tobytes()

    contents = (images(arrays["x_train"]), labels(arrays["y_train"]), images(arrays["x_test"]), labels(arrays["y_test"]))
    return dict(zip(FASHION_FILES, contents, strict=True))


def cifar_arrays(raw: Mapping[str, bytes]) -> Arrays:
    """Batches of 10,000 records: a label byte, then the red, green and blue planes."""
    batches = [np.frombuffer(raw[name], np.uint8).reshape(-1, 3073) for name in CIFAR_FILES]
    train = np.concatenate(batches[:-1])

    def images(records: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))

    return {
        "x_train": images(train),
        "y_train": train[:, 0].copy(),
        "x_test": images(batches[-1]),
        "y_test": batches[-1][:, 0].copy(),
    }


def cifar_files(arrays: Mapping[str, NDArray[Any]]) -> dict[str, bytes]:
    x = np.concatenate([arrays["x_train"], arrays["x_test"]])
    y = np.concatenate([arrays["y_train"], arrays["y_test"]])
    records = np.concatenate([y[:, None], x.transpose(0, 3, 1, 2).reshape(len(x), 3072)], axis=1).astype(np.uint8)
    return {name: records[k * 10_000 : (k + 1) * 10_000].tobytes() for k, name in enumerate(CIFAR_FILES)}


def cifar_arrays_from_pngs(folder: Path) -> Arrays:
    """The npm package's form: each batch a PNG of 1024 × 10,000 pixels, one image a row, and labels as JSON."""
    from PIL import Image

    limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
    try:

        def images(name: str) -> NDArray[Any]:
            return np.asarray(Image.open(io.BytesIO((folder / f"{name}.png").read_bytes()))).reshape(-1, 32, 32, 3)

        def labels(name: str) -> NDArray[Any]:
            return np.array(json.loads((folder / f"{name}_lables.json").read_text()), np.uint8)

        return {
            "x_train": np.concatenate([images(f"data_batch_{k}") for k in range(1, 6)]),
            "y_train": labels("train"),
            "x_test": images("test_batch"),
            "y_test": labels("test"),
        }
    finally:
        Image.MAX_IMAGE_PIXELS = limit
