"""The run folder. While a run goes on, ``rounds.parquet`` is a folder of parts, so a kill at any moment leaves readable
records; when it ends, the parts become one file of the same name. ``summary.json`` is written last.

Parts are cut by the number of rows alone, so a resumed run, which replays its schedule, writes the same parts again.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, get_type_hints

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin import __version__
from fedtwin.config import HASH_FORMAT, CodeConfig, Config, config_hash, load_config, to_toml
from fedtwin.errors import FedtwinError
from fedtwin.records.checksums import require_as_written, write_checked
from fedtwin.records.lock import Lock
from fedtwin.records.schema import EVALUATIONS, REFUSALS, Row, rounds_schema, to_table
from fedtwin.records.summary import Summary
from fedtwin.records.writing import reason_of, telling_of_failed_writes
from fedtwin.usercode import keep_sources

ROUNDS_NAME, CONFIG_NAME, SUMMARY_NAME, DEVICES_NAME, START_NAME, FLEET_NAME, EVALUATIONS_NAME, REFUSALS_NAME, CODE_NAME = (
    "rounds.parquet",
    "config.toml",
    "summary.json",
    "devices.parquet",
    "start.parquet",
    "fleet.csv",
    "evaluations.parquet",
    "refusals.parquet",
    "code",
)
BESIDE_A_SUMMARY = (
    *(CONFIG_NAME, FLEET_NAME, DEVICES_NAME, START_NAME, ROUNDS_NAME, EVALUATIONS_NAME, REFUSALS_NAME),
    *("model.safetensors", "tasks.parquet"),
)
OF_TRAINING = ("test_loss", "test_accuracy", "refusals")
UNFINISHED_NAME, LOCK_NAME, OLD_PARTS, WHOLE = "unfinished.json", ".lock", ".rounds.parts", ".rounds.parquet"
ROWS_PER_PART = 10_000
REPETITIVE = ["arrived", "device", "samples", "staleness", "decline_reason"]
VALUES_PER_PART = 3_000_000
SAVE_EVERY_S = 5.0
P = ParamSpec("P")


def _writes(method: "Callable[Concatenate[RunFolder, P], None]") -> "Callable[Concatenate[RunFolder, P], None]":
    """A full disk is one sentence."""

    @wraps(method)
    def writing(folder: "RunFolder", /, *arguments: P.args, **more: P.kwargs) -> None:
        with telling_of_failed_writes(folder.path):
            method(folder, *arguments, **more)

    return writing


class RunFolder:
    """Writes one run, new or resumed. A new run overwrites nothing. ``name`` is its configuration's hash."""

    def __init__(self, path: Path, config: Config, devices: pa.Table, *, name: str, trace: bool, resume: bool = False) -> None:
        self.path = path
        self._keeps_rounds = config.run.records
        self._schema = rounds_schema(trace=trace, learning=config.learning is not None)
        self._rows: list[Row] = []
        self._parts = 0
        self._saved_at = time.monotonic()
        self._rows_per_part = rows_of_a_full_part(config, trace=trace)
        if resume:
            self._lock = Lock(path / LOCK_NAME)
            self._lay_the_parts_out_again()
            return
        make_new_folder(path)
        self._lock = Lock(path / LOCK_NAME)
        try:
            self._begin(config, devices, name=name, trace=trace)
        except BaseException as error:
            self._lock.release()
            shutil.rmtree(path, ignore_errors=True)
            if isinstance(error, OSError):
                raise FedtwinError(f"--out {str(path)!r} cannot be written: {reason_of(error)}.") from None
            raise

    def _begin(self, config: Config, devices: pa.Table, *, name: str, trace: bool) -> None:
        """From the last of these files on the run can be resumed."""
        if self._keeps_rounds:
            (self.path / ROUNDS_NAME).mkdir()
        write_config(self.path, config)
        pq.write_table(devices, self.path / DEVICES_NAME)
        mark = {"config_hash": name, "hash_format": HASH_FORMAT, "package_version": __version__, "trace": trace}
        write_json(self.path / UNFINISHED_NAME, mark)

    @property
    def rows_per_part(self) -> int:
        """0 where no rounds are kept."""
        return self._rows_per_part if self._keeps_rounds else 0

    def write_start(self, rows: list[Row]) -> None:
        """The first M dispatches, t = 0, which no mean counts."""
        self.write_start_table(to_table(rows, self._schema))

    @_writes
    def write_start_table(self, table: pa.Table) -> None:
        if self._keeps_rounds:
            write_table(table, self.path / START_NAME)

    @_writes
    def write_evaluations(self, evaluations: list[Any]) -> None:
        """All evaluations so far, as tuples in the order of the columns."""
        write_table(table_of(evaluations, EVALUATIONS), self.path / EVALUATIONS_NAME)

    @_writes
    def write_refusals(self, refusals: list[Any]) -> None:
        """All refusals so far, as tuples in the order of the columns; a run that refused nothing has no such file."""
        if refusals:
            write_table(table_of(refusals, REFUSALS), self.path / REFUSALS_NAME)
        else:
            (self.path / REFUSALS_NAME).unlink(missing_ok=True)

    def add(self, row: Row) -> None:
        if not self._keeps_rounds:
            return
        self._rows.append(row)
        if len(self._rows) >= self._rows_per_part:
            self.save()
            self._parts += 1
            self._rows.clear()
        elif len(self._rows) % 100 == 0 and time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Everything so far is on disk and readable; a part that is not full yet is written again later."""
        if self._rows:
            self.save_part(to_table(self._rows, self._schema))
        self._saved_at = time.monotonic()

    def add_part(self, table: pa.Table) -> None:
        """A part as a table, the last one or a full one."""
        if table.num_rows > 0 or self._parts == 0:
            self.save_part(table)
            self._parts += 1

    @_writes
    def save_part(self, table: pa.Table) -> None:
        """The part that is being filled, as it stands."""
        write_table(table, self.path / ROUNDS_NAME / f"part-{self._parts:06d}.parquet", quick=True)

    @_writes
    def finish(self, summary: Mapping[str, Any]) -> None:
        """The parts become one file, and the summary is written."""
        old = self.path / OLD_PARTS
        if self._keeps_rounds:
            self._put_together(old)
        write_summary(self.path, summary)
        shutil.rmtree(old, ignore_errors=True)
        (self.path / UNFINISHED_NAME).unlink(missing_ok=True)

    def release(self) -> None:
        """Another fedtwin may write here now."""
        self._lock.release()

    def _put_together(self, old: Path) -> None:
        self.save()
        parts, whole = self.path / ROUNDS_NAME, self.path / WHOLE
        with pq.ParquetWriter(whole, self._schema, use_dictionary=REPETITIVE) as writer:  # type: ignore[arg-type]
            for part in sorted(parts.glob("part-*.parquet"))[: self._parts + bool(self._rows)]:
                writer.write_table(pq.read_table(part))
        parts.rename(old)
        whole.rename(parts)

    @_writes
    def _lay_the_parts_out_again(self) -> None:
        """Wherever a run was killed, also while it put its parts together, they are a folder again."""
        if not self._keeps_rounds:
            return
        parts, old = self.path / ROUNDS_NAME, self.path / OLD_PARTS
        if parts.is_file():
            parts.unlink()
        if old.exists() and not parts.exists():
            old.rename(parts)
        parts.mkdir(exist_ok=True)


def rows_of_a_full_part(config: Config, *, trace: bool) -> int:
    """Fewer where every row holds lists over all devices."""
    return max(1, min(ROWS_PER_PART, VALUES_PER_PART // config.fleet.devices)) if trace else ROWS_PER_PART


def write_config(folder: Path, config: Config) -> None:
    """The settings of a run, with the fleet and the code they name beside them; reading them back there gives the same run."""
    if config.fleet.file is not None:
        shutil.copyfile(config.fleet.file, folder / FLEET_NAME)
        config = config.model_copy(update={"fleet": config.fleet.model_copy(update={"file": FLEET_NAME})})
    if config.learning is not None and config.learning.dataset.endswith(".npz"):
        dataset = str(Path(config.learning.dataset).resolve())
        config = config.model_copy(update={"learning": config.learning.model_copy(update={"dataset": dataset})})
    kept = keep_sources(config.own_code.values(), config.code.folder, folder / CODE_NAME)
    config = config.model_copy(update={"code": CodeConfig(folder=CODE_NAME if kept else None)})
    (folder / CONFIG_NAME).write_text(to_toml(config), encoding="utf-8")


def table_of(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, type=kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_table(table: pa.Table, path: Path, *, quick: bool = False) -> None:
    """Whole or not at all; ``quick`` for what is written again at the end."""
    unfinished = path.with_name(f".{path.name}")
    if quick:
        pq.write_table(table, unfinished, compression="none", use_dictionary=False, write_statistics=False)
    else:
        pq.write_table(table, unfinished)
    unfinished.rename(path)


def read_unfinished(path: Path) -> tuple[Config, bool]:
    """The configuration of an unfinished run, and whether it is traced; anything else in the folder is an error."""
    if (path / SUMMARY_NAME).exists():
        raise FedtwinError(f"--resume {str(path)!r}: this run is finished, there is nothing to resume.")
    try:
        mark = json.loads((path / UNFINISHED_NAME).read_text(encoding="utf-8"))
        begun, known_hash, trace = (mark[name] for name in ("package_version", "config_hash", "trace"))
    except (OSError, ValueError, LookupError, TypeError):
        raise FedtwinError(f"--resume {str(path)!r} is not the folder of an unfinished run.") from None
    config = load_config(path / CONFIG_NAME)
    if mark.get("hash_format") != HASH_FORMAT:
        raise FedtwinError(f"--resume {str(path)!r}: an older fedtwin began this run and named it otherwise: run it anew.")
    if known_hash != config_hash(config):
        raise FedtwinError(f"--resume {str(path)!r}: config.toml, or a file or code it names, has changed since the run began.")
    if begun != __version__:
        raise FedtwinError(f"--resume {str(path)!r}: the run was begun by fedtwin {begun}, and this is {__version__}.")
    return config, bool(trace)


def clear_rounds(path: Path) -> None:
    """The rounds that an unfinished run has written are gone; it will write them again."""
    for part in (path / ROUNDS_NAME).glob("*.parquet"):
        part.unlink()


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
    unfinished.write_bytes(json_bytes(data))
    unfinished.rename(path)


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """The last file of a finished run, with the checksums of all of them."""
    code = (path.relative_to(folder).as_posix() for path in (folder / CODE_NAME).rglob("*.py"))
    write_checked(folder, {SUMMARY_NAME: json_bytes(summary)}, [*BESIDE_A_SUMMARY, *code], fsync=False)


def json_bytes(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()


def _is_summary(found: Any) -> bool:
    """All that a summary must have, of the right types; a mean may be missing where there was nothing to take it of."""
    hints = {name: kind for name, kind in get_type_hints(Summary).items() if name not in OF_TRAINING}
    right = all(isinstance(found[name], kind if kind is not float else int | float) for name, kind in hints.items())
    return right and isinstance(found["scheme"], str) and isinstance(found["seed"], int)


def read_summary(path: Path) -> dict[str, Any]:
    """The summary of a finished run folder, or one sentence about why there is none that can be believed."""
    if (path / SUMMARY_NAME).is_file():
        require_as_written(path, SUMMARY_NAME, CONFIG_NAME)
    try:
        summary: dict[str, Any] = json.loads((path / SUMMARY_NAME).read_text(encoding="utf-8"))
        if not _is_summary(summary):
            raise ValueError
    except (OSError, ValueError, LookupError, RecursionError, AttributeError):
        raise FedtwinError(f"{str(path)!r} is not the folder of a finished run: {SUMMARY_NAME} cannot be read.") from None
    return summary
