"""The files of a run's folder: their names, and how each of them is written, whole or not at all."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fedtwin.config import CodeConfig, Config, to_toml
from fedtwin.config.data_files import is_file_of_data
from fedtwin.errors import FedtwinError
from fedtwin.files import whole_file
from fedtwin.records.checksums import write_checked
from fedtwin.usercode import keep_sources, only_here, sentence_of_only_here

CONFIG_NAME, FLEET_NAME, CODE_NAME, SUMMARY_NAME = "config.toml", "fleet.csv", "code", "summary.json"
ROUNDS_NAME, START_NAME, DEVICES_NAME = "rounds.parquet", "start.parquet", "devices.parquet"
EVALUATIONS_NAME, REFUSALS_NAME = "evaluations.parquet", "refusals.parquet"
UNFINISHED_NAME, LOCK_NAME = "unfinished.json", ".lock"
BESIDE_A_SUMMARY = (
    *(CONFIG_NAME, FLEET_NAME, DEVICES_NAME, START_NAME, ROUNDS_NAME, EVALUATIONS_NAME, REFUSALS_NAME),
    *("model.safetensors", "model-best.safetensors", "model-plain.safetensors", "tasks.parquet"),
)


def make_new_folder(path: Path) -> None:
    """Creates the folder; one that is there already, or cannot be made, is an error."""
    try:
        if path.exists():
            raise FileExistsError
        path.mkdir(parents=True)
    except FileExistsError:
        raise FedtwinError(
            f"out = {str(path)!r} exists already: name a folder that does not, nothing is overwritten."
        ) from None
    except OSError as error:
        raise FedtwinError(f"out = {str(path)!r} cannot be written: {error.strerror}.") from None


def write_config(folder: Path, config: Config) -> None:
    """The settings of a run, with the fleet and the code they name beside them; reading them back there gives the same run."""
    for setting, name in config.own_code.items():
        if only_here(name) or name.startswith("__main__:"):
            why = "the folder of a run keeps the source of its code, to run it again"
            raise FedtwinError(sentence_of_only_here(setting, name, why))
    if config.fleet.file is not None:
        shutil.copyfile(config.fleet.file, folder / FLEET_NAME)
        config = config.model_copy(update={"fleet": config.fleet.model_copy(update={"file": FLEET_NAME})})
    if config.learning is not None and is_file_of_data(config.learning.dataset):
        dataset = str(Path(config.learning.dataset).resolve())
        config = config.model_copy(update={"learning": config.learning.model_copy(update={"dataset": dataset})})
    kept = keep_sources(config.own_code.values(), config.code.folder, folder / CODE_NAME)
    config = config.model_copy(update={"code": CodeConfig(folder=CODE_NAME if kept else None)})
    (folder / CONFIG_NAME).write_text(to_toml(config), encoding="utf-8")


def write_table(table: pa.Table, path: Path, *, quick: bool = False) -> None:
    """Whole or not at all, with a checksum in every page; ``quick`` for what is written again at the end."""
    less: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False} if quick else {}
    with whole_file(path) as draft:
        pq.write_table(table, draft, write_page_checksum=True, **less)


def write_mark(folder: Path, mark: Mapping[str, Any]) -> None:
    """The last file of a run that begins, with the checksums of those that are there."""
    _write_with_checksums(folder, UNFINISHED_NAME, mark)


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    """The last file of a finished run, with the checksums of all of them."""
    _write_with_checksums(folder, SUMMARY_NAME, summary)


def _write_with_checksums(folder: Path, name: str, data: Mapping[str, Any]) -> None:
    code = (path.relative_to(folder).as_posix() for path in (folder / CODE_NAME).rglob("*.py"))
    write_checked(folder, {name: json_bytes(data)}, [*BESIDE_A_SUMMARY, *code], fsync=False)


def json_bytes(data: Mapping[str, Any]) -> bytes:
    return (json.dumps(data, indent=2, allow_nan=False) + "\n").encode()
