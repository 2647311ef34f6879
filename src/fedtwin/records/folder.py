"""The run folder. While a run goes on, ``rounds.parquet`` is a folder of finished parts, so a kill at any moment leaves
readable records; when it ends, the parts become one file of the same name. ``summary.json`` is written last."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import Config, to_toml
from fedtwin.errors import FedtwinError
from fedtwin.records.schema import ROUNDS, TRACED_ROUNDS, Row, to_table

ROUNDS_NAME, CONFIG_NAME, SUMMARY_NAME, DEVICES_NAME, START_NAME, FLEET_NAME = (
    "rounds.parquet",
    "config.toml",
    "summary.json",
    "devices.parquet",
    "start.parquet",
    "fleet.csv",
)
ROWS_PER_PART = 10_000
VALUES_PER_PART = 3_000_000


class RunFolder:
    """Writes one run. Nothing that exists is ever overwritten."""

    def __init__(self, path: Path, config: Config, devices: pa.Table, *, trace: bool) -> None:
        self.path = path
        self._trace = trace
        self._rows: list[Row] = []
        self._parts = 0
        self._rows_per_part = ROWS_PER_PART
        if trace:
            self._rows_per_part = max(1, min(ROWS_PER_PART, VALUES_PER_PART // config.fleet.devices))
        make_new_folder(path)
        (path / ROUNDS_NAME).mkdir()
        self._write_config(config)
        pq.write_table(devices, path / DEVICES_NAME)

    def write_start(self, rows: list[Row]) -> None:
        """The first M dispatches, t = 0, which no mean counts."""
        pq.write_table(to_table(rows, trace=self._trace), self.path / START_NAME)

    def add(self, row: Row) -> None:
        self._rows.append(row)
        if len(self._rows) >= self._rows_per_part:
            self.flush()

    def flush(self) -> None:
        """Everything so far is on disk and readable."""
        if not self._rows:
            return
        name = f"part-{self._parts:06d}.parquet"
        unfinished = self.path / ROUNDS_NAME / f".{name}"
        pq.write_table(to_table(self._rows, trace=self._trace), unfinished)
        unfinished.rename(self.path / ROUNDS_NAME / name)
        self._parts += 1
        self._rows.clear()

    def finish(self, summary: Mapping[str, Any]) -> None:
        """The parts become one file, and the summary is written."""
        self.flush()
        parts, whole, old = self.path / ROUNDS_NAME, self.path / ".rounds.parquet", self.path / ".rounds.parts"
        with pq.ParquetWriter(whole, TRACED_ROUNDS if self._trace else ROUNDS) as writer:
            for part in sorted(parts.glob("part-*.parquet")):
                writer.write_table(pq.read_table(part))
        parts.rename(old)
        whole.rename(self.path / ROUNDS_NAME)
        shutil.rmtree(old)
        write_json(self.path / SUMMARY_NAME, summary)

    def _write_config(self, config: Config) -> None:
        if config.fleet.file is not None:
            shutil.copyfile(config.fleet.file, self.path / FLEET_NAME)
            config = config.model_copy(update={"fleet": config.fleet.model_copy(update={"file": FLEET_NAME})})
        (self.path / CONFIG_NAME).write_text(to_toml(config), encoding="utf-8")


def make_new_folder(path: Path) -> None:
    """Creates the folder; one that is there already, or cannot be made, is an error."""
    try:
        if path.exists():
            raise FileExistsError
        path.mkdir(parents=True)
    except FileExistsError:
        raise FedtwinError(
            f"--out {str(path)!r} exists already: name a folder that does not, nothing is overwritten."
        ) from None
    except OSError as error:
        raise FedtwinError(f"--out {str(path)!r} cannot be written: {error.strerror}.") from None


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Whole or not at all."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    unfinished.rename(path)


def read_rounds(path: Path) -> pa.Table:
    """The rounds of a run folder, finished or not."""
    return pq.read_table(path / ROUNDS_NAME)


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a finished run folder, or one sentence about why there is none."""
    try:
        summary: dict[str, Any] = json.loads((path / SUMMARY_NAME).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError):
        raise FedtwinError(f"{str(path)!r} is not the folder of a finished run: {SUMMARY_NAME} cannot be read.") from None
    return summary
