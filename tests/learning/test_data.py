"""Data sets: the embedded one, a user's own, and fetching from a real local server with real checksums."""

import gzip
import hashlib
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedtwin.config import LearningConfig
from fedtwin.errors import FedtwinError
from fedtwin.learning.data import Dataset, catalog, fetch, load_dataset
from fedtwin.learning.data.formats import cifar_arrays, cifar_files, fashion_arrays, fashion_files
from fedtwin.learning.notices import notices
from tests.conftest import Cli

rng = np.random.default_rng(0)
ARRAYS = {
    "x_train": rng.integers(0, 255, (30, 28, 28, 1), np.uint8),
    "y_train": np.arange(30, dtype=np.uint8) % 10,
    "x_test": rng.integers(0, 255, (10, 28, 28, 1), np.uint8),
    "y_test": np.arange(10, dtype=np.uint8),
}


class Server(BaseHTTPRequestHandler):
    """Serves bytes with ranges; can break off in the middle of a file, once."""

    def __init__(self, files: dict[str, bytes], log: list[str], break_at: dict[str, int], *rest: Any) -> None:
        self.files, self.log, self.break_at = files, log, break_at
        super().__init__(*rest)

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        begin = int(self.headers["Range"].split("=")[1].rstrip("-")) if self.headers["Range"] else 0
        self.log.append(f"{name} from {begin}")
        if name not in self.files:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = self.files[name][begin:]
        self.send_response(HTTPStatus.PARTIAL_CONTENT if begin else HTTPStatus.OK)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.break_at.pop(name, len(body))])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, bytes], list[str], dict[str, int]]]:
    """A tiny Fashion-MNIST on a local server, catalogued with its own checksums; packages are out of reach."""
    canonical = fashion_files(ARRAYS)
    files = {f"{name}.gz": gzip.compress(content) for name, content in canonical.items()}
    log: list[str] = []
    break_at: dict[str, int] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, files, log, break_at))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    entry = catalog.KnownSet(
        "tiny",
        {name: hashlib.md5(content).hexdigest() for name, content in canonical.items()},
        tuple(f"http://127.0.0.1:{server.server_port}/{name}" for name in files),
        "package",
        "",
    )
    monkeypatch.setitem(catalog.CATALOG, "fashion-mnist", entry)
    monkeypatch.setenv("FEDTWIN_DATA", str(tmp_path / "cache"))

    def no_package(*_: object) -> Any:
        raise OSError("no package here")

    monkeypatch.setattr(fetch, "_from_package", no_package)
    yield files, log, break_at
    server.shutdown()
    server.server_close()


Shop = tuple[dict[str, bytes], list[str], dict[str, int]]


def test_fetch_checks_caches_and_fetches_once(shop: Shop) -> None:
    _, log, _ = shop
    with pytest.raises(FedtwinError, match="run `fedtwin data fetch fashion-mnist`"):
        load_dataset("fashion-mnist")
    assert fetch.fetch("fashion-mnist") == "official source"
    assert len(log) == 4 and fetch.fetch("fashion-mnist") == "cache" and len(log) == 4
    data = load_dataset("fashion-mnist")
    assert all(np.array_equal(getattr(data, name), array) for name, array in ARRAYS.items())
    fetch.verify("fashion-mnist")
    assert [path.name for path in catalog.cache_root().iterdir()] == ["fashion-mnist"]


def test_an_interrupted_download_goes_on(shop: Shop) -> None:
    _, log, break_at = shop
    break_at["train-images-idx3-ubyte.gz"] = 5000
    with pytest.raises(FedtwinError, match="could not be fetched"):
        fetch.fetch("fashion-mnist")
    assert fetch.fetch("fashion-mnist") == "official source"
    assert "train-images-idx3-ubyte.gz from 5000" in log


def test_a_wrong_checksum_is_refused_and_nothing_is_cached(shop: Shop) -> None:
    files, _, _ = shop
    good = dict(files)
    files["t10k-labels-idx1-ubyte.gz"] = gzip.compress(b"\0" * 18)
    with pytest.raises(FedtwinError, match="the checksum of t10k-labels-idx1-ubyte does not match"):
        fetch.fetch("fashion-mnist")
    with pytest.raises(FedtwinError, match="not on this machine"):
        load_dataset("fashion-mnist")
    files.update(good)
    assert fetch.fetch("fashion-mnist") == "official source", "the damaged file is not kept"


def test_a_damaged_cache_is_found(shop: Shop) -> None:
    assert shop and fetch.fetch("fashion-mnist")
    np.save(catalog.cached_folder("fashion-mnist") / "y_test.npy", np.zeros(10, np.uint8))
    with pytest.raises(FedtwinError, match="is damaged: the checksum of t10k-labels"):
        fetch.verify("fashion-mnist")
    (catalog.cached_folder("fashion-mnist") / "y_test.npy").write_bytes(b"no")
    with pytest.raises(FedtwinError, match="is damaged"):
        fetch.verify("fashion-mnist")


def test_an_unknown_name_and_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FedtwinError, match="cannot be fetched: choose one of fashion-mnist, cifar-10"):
        fetch.fetch("mnist")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDTWIN_DATA", str(tmp_path / "file"))
    with pytest.raises(FedtwinError, match="cannot be written"):
        fetch.fetch("cifar-10")


def test_canonical_forms_and_arrays_are_inverse() -> None:
    assert all(np.array_equal(array, ARRAYS[name]) for name, array in fashion_arrays(fashion_files(ARRAYS)).items())
    colour = {
        "x_train": rng.integers(0, 255, (50_000, 32, 32, 3), np.uint8),
        "y_train": rng.integers(0, 10, 50_000).astype(np.uint8),
        "x_test": rng.integers(0, 255, (10_000, 32, 32, 3), np.uint8),
        "y_test": rng.integers(0, 10, 10_000).astype(np.uint8),
    }
    assert all(np.array_equal(array, colour[name]) for name, array in cifar_arrays(cifar_files(colour)).items())


def test_digits_are_embedded() -> None:
    data = load_dataset("digits")
    assert (len(data.y_train), len(data.y_test), data.classes, data.shape) == (1437, 360, 10, (1, 8, 8))


def test_a_users_own_arrays(tmp_path: Path) -> None:
    good: dict[str, Any] = {
        "x_train": rng.normal(size=(20, 8, 8)),
        "y_train": np.arange(20) % 3,
        "x_test": rng.normal(size=(5, 8, 8)),
        "y_test": np.arange(5) % 3,
    }
    np.savez(tmp_path / "good.npz", **good)
    data = load_dataset(str(tmp_path / "good.npz"))
    assert data.shape == (1, 8, 8) and data.classes == 3
    found = data.normalisation()
    assert found.mean[0] == pytest.approx(good["x_train"].mean(), abs=1e-6)
    assert found.std[0] == pytest.approx(good["x_train"].std(), abs=1e-6)
    for change, sentence in (
        ({"y_test": None}, "has no array y_test"),
        ({"y_test": np.arange(4)}, "with one label each"),
        ({"y_test": np.arange(5) - 1}, "whole numbers from 0"),
        ({"y_test": np.arange(5) / 2}, "whole numbers from 0"),
        ({"x_test": np.full((5, 8, 8), np.nan)}, "finite"),
        ({"x_test": np.zeros((5, 9, 8))}, "differ in shape"),
        ({"x_train": np.zeros((20, 8))}, "are not rows"),
        ({"x_train": np.zeros((20, 0, 8))}, "are not images"),
        ({"x_test": np.zeros((5, 8, 8), np.longdouble)}, "x_test is .*, not uint8, float16, float32 or float64"),
        ({"x_test": np.zeros((5, 8, 8), np.int64)}, "x_test is int64, not uint8"),
        ({"x_train": np.full((20, 8, 8), 1e300)}, r"x_train holds 1e\+300, and images must be finite numbers in float32"),
        ({"x_test": np.full((5, 8, 8), -1e39)}, r"x_test holds -1e\+39, and images must be finite numbers in float32"),
        ({"x_test": np.full((5, 8, 8), 1e30)}, r"x_test holds 1e\+30, .* standard deviations .* at most 1e\+09 are allowed"),
        ({"y_train": np.where(np.arange(20) == 7, 5_000_000, 1)}, "y_train holds the label 5000000, .* must be below 1000"),
        ({"y_test": np.array([0, 1, 2, 2**63, 1], np.uint64)}, "y_test holds the label 9223372036854775808, .* below 1000"),
    ):
        arrays: dict[str, Any] = {name: array for name, array in {**good, **change}.items() if array is not None}
        np.savez(tmp_path / "bad.npz", **arrays)
        with pytest.raises(FedtwinError, match=sentence):
            load_dataset(str(tmp_path / "bad.npz"))
        with pytest.raises(FedtwinError, match=r"learning.dataset = .*bad\.npz"):
            load_dataset(str(tmp_path / "bad.npz"))
    (tmp_path / "text.npz").write_text("no")
    with pytest.raises(FedtwinError, match=r"not a \.npz of plain arrays"):
        load_dataset(str(tmp_path / "text.npz"))


@pytest.mark.parametrize(
    "x", [1.7e9 + rng.random((20, 8, 8)), 1e15 + rng.normal(size=(20, 8, 8)), 5 + 1e-12 * rng.normal(size=(20, 8, 8))]
)
def test_images_that_float32_makes_alike_are_refused(tmp_path: Path, x: np.ndarray) -> None:
    y = np.arange(20) % 3
    np.savez(tmp_path / "alike.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    with pytest.raises(FedtwinError, match=r"alike\.npz': x_train holds .* in float32 .* subtract"):
        load_dataset(str(tmp_path / "alike.npz"))
    two = (x > np.median(x)).astype(np.float64)
    np.savez(tmp_path / "two.npz", x_train=two, y_train=y, x_test=two, y_test=y)
    assert load_dataset(str(tmp_path / "two.npz")).classes == 3


def test_images_that_are_all_alike_are_told() -> None:
    x, y = np.full((40, 8, 8, 1), 7, np.uint8), np.arange(40) % 4
    (sentence,) = notices(LearningConfig(dataset="mine.npz"), Dataset(x, y, x, y), [np.arange(20), np.arange(20, 40)])
    assert "every pixel of x_train is 7: there is nothing to learn" in sentence


def _header(shape: str) -> bytes:
    words = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(words).to_bytes(2, "little") + words.encode()


def _patched(path: Path, local_at: int, central_at: int, value: int) -> None:
    """Two bytes of the first member's header, where it lies and in the directory at the end."""
    raw = bytearray(path.read_bytes())
    for begin in (raw.index(b"PK\3\4") + local_at, raw.index(b"PK\1\2") + central_at):
        raw[begin : begin + 2] = value.to_bytes(2, "little")
    path.write_bytes(bytes(raw))


@pytest.mark.parametrize(
    "damage", ["method", "version", "patched", "encrypted", "huge", "more than huge", "lzma", "no array", "name"]
)
def test_a_broken_npz_is_one_sentence(tmp_path: Path, damage: str) -> None:
    path = tmp_path / ("a\0b.npz" if damage == "name" else "broken.npz")
    shapes = {"huge": "(100000000000000,)", "more than huge": "(99999999999999999999,)"}
    content = b"no array" if damage == "no array" else _header(shapes[damage]) if damage in shapes else b"x" * 99
    if damage != "name":
        kind = zipfile.ZIP_LZMA if damage == "lzma" else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", kind) as archive:
            for name in ARRAYS:
                archive.writestr(f"{name}.npy", content)
    if damage in ("method", "version", "patched", "encrypted"):
        places = {"method": (8, 10, 77), "version": (4, 6, 99), "patched": (6, 8, 32), "encrypted": (6, 8, 1)}
        _patched(path, *places[damage])
    if damage == "lzma":
        raw = bytearray(path.read_bytes())
        at = raw.index(b"x_train.npy") + len(b"x_train.npy")
        raw[at + 4 : at + 30] = b"\xff" * 26
        path.write_bytes(bytes(raw))
    with pytest.raises(FedtwinError, match=r"^learning.dataset = .*\.npz' (is not a \.npz of plain arrays|cannot be read)"):
        load_dataset(str(path))


@pytest.mark.parametrize("kind", [">f4", ">f8", "<f8", "f2"])
def test_images_of_any_byte_order_are_trained_on(tmp_path: Path, kind: str) -> None:
    from fedtwin.learning.local import Images

    x, y = rng.normal(size=(20, 8, 8)).astype(kind), np.arange(20).astype(">i4") % 3
    np.savez(tmp_path / "good.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    images = Images(load_dataset(str(tmp_path / "good.npz")))
    assert images.x_test.shape == (20, 1, 8, 8) and images.y_test.tolist() == y.tolist()


def test_a_stray_label_is_told_at_once(cli: Cli, tmp_path: Path) -> None:
    x, y = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 4
    y[3] = 5_000_000
    np.savez(tmp_path / "stray.npz", x_train=x, y_train=y, x_test=x, y_test=y % 4)
    done = cli("run", "--set", "learning.dataset=stray.npz", "--out", "run")
    assert done.returncode == 2 and "holds the label 5000000" in done.stderr and len(done.stderr.splitlines()) == 1


def test_labels_that_leave_gaps_are_told() -> None:
    x, y = (np.arange(2560) % 256).astype(np.uint8).reshape(40, 8, 8, 1), np.arange(40) % 4
    data, gaps = Dataset(x, y, x, y), Dataset(x, np.where(y == 2, 9, y), x, y % 2)
    learning, shares = LearningConfig(dataset="mine.npz"), [np.arange(20), np.arange(20, 40)]
    assert notices(learning, data, shares) == []
    (sentence,) = notices(learning, gaps, shares)
    assert "labels up to 9, and no image for 6 of them, such as 2: the network gets 10 outputs" in sentence
    assert notices(LearningConfig(), gaps, shares) == []


def test_the_command_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDTWIN_DATA", str(tmp_path / "cache"))
    listed = cli("data", "list")
    assert listed.returncode == 0 and "digits" in listed.stdout and listed.stdout.count("not fetched") == 2
    plotted = cli("data", "plot", "--set", "learning.partition=dirichlet", "--out", "mix.png")
    assert plotted.returncode == 0 and (tmp_path / "mix.png").stat().st_size > 5000
    for arguments, sentence in (
        (["data", "plot", "--out", "mix.png"], "exists already"),
        (["data", "fetch", "mnist"], "choose one of fashion-mnist, cifar-10"),
        (["data", "verify", "cifar-10"], "run `fedtwin data fetch cifar-10`"),
        (["data", "plot", "--out", "mix.xyz"], "must end in .png or .svg"),
    ):
        done = cli(*arguments)
        assert done.returncode == 2 and sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_outputs_below_the_classes_of_a_built_in_set_are_a_sentence() -> None:
    with pytest.raises(FedtwinError, match=r"'digits' has the label 9, and learning.outputs = 5: labels count from 0"):
        load_dataset("digits", LearningConfig(outputs=5))
