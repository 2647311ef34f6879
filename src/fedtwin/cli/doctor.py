"""``fedtwin doctor``: what stands in the way of a run, and what to do about it."""

import platform
import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedtwin.cli.live_options import CredentialsOption, InsecureOption, RunName, ServerOption, begin_command
from fedtwin.cli.options import JsonOption
from fedtwin.cli.screen import print_json
from fedtwin.errors import FedtwinError

if TYPE_CHECKING:
    from fedtwin.live.checkup import Finding

NOT_WELL = 1
LEAST_ROOM_BYTES = 500 * 2**20
EXTRAS = {
    "live": ("cryptography", "prometheus_client", "pyarrow"),
    "learn": ("torch",),
    "sim": ("matplotlib", "numba", "pyarrow", "scipy"),
}


def doctor(
    folder: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="Folder of a run to look at.")] = None,
    server: ServerOption = None,
    run_name: RunName = "main",
    credentials: CredentialsOption = None,
    insecure: InsecureOption = False,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="Samples of a device, read as it would.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at connection, rights, clock, data path, disk, certificates and data; exit code 1 where something is wrong."""
    begin_command(run_name, "error", "text")
    from fedtwin.live.checkup import check_certificates, check_server

    found = [_extras()]
    if credentials is not None:
        found += check_certificates(credentials, server or [])
    if server:
        found += check_server(server, run=run_name, credentials=credentials, insecure=insecure)
    found += _disk(folder or Path.cwd())
    if folder is not None:
        found.append(_run(folder))
    if data is not None:
        found.append(_data(data, folder))
    well = all(one.ok for one in found)
    if as_json:
        print_json({"ok": well, "findings": [one._asdict() for one in found]})
    else:
        for one in found:
            _say(one)
    if not well:
        raise typer.Exit(NOT_WELL)


def _say(one: "Finding") -> None:
    from fedtwin.live.logs import printable

    todo = f" -> {one.todo}" if one.todo else ""
    typer.echo(f"{'ok' if one.ok else 'problem':8}{one.what:22}{printable(one.words + todo)}")


def _extras() -> "Finding":
    from fedtwin.live.checkup import Finding

    there = [name for name, libraries in EXTRAS.items() if all(map(find_spec, libraries))]
    lacking = [name for name in EXTRAS if name not in there]
    words = f"{platform.python_version()}, extras: {', '.join(there) or 'none'}"
    return Finding("Python", True, f"{words}{'; not installed: ' + ', '.join(lacking) if lacking else ''}")


def _disk(folder: Path) -> list["Finding"]:
    from fedtwin.live.checkup import Finding

    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return [Finding("disk", False, f"{folder} cannot be written: {error.strerror}", "run this as the user who owns it")]
    words, enough = f"{folder} can be written, {free / 2**30:.1f} GiB are free", free >= LEAST_ROOM_BYTES
    return [Finding("disk", enough, words, None if enough else "make room: a broker that meets a full disk stores nothing")]


def _run(folder: Path) -> "Finding":
    """Whether its files can be read and verified, and whether it goes on, or could."""
    from fedtwin.extras import require
    from fedtwin.live.checkup import Finding
    from fedtwin.records.checksums import names_written, require_as_written
    from fedtwin.records.files import LOCK_NAME, SUMMARY_NAME
    from fedtwin.records.lock import is_held

    try:
        require("fedtwin doctor RUN", "live", "pyarrow")
        from fedtwin.live.run.ledger import LEDGER_NAME, first_lines
        from fedtwin.live.run.opening import check_resumable
        from fedtwin.runs.status import Watched

        run: dict[str, Any] = Watched(folder).look()["run"]
        is_finished = (folder / SUMMARY_NAME).exists()
        if is_finished and (written := names_written(folder)):
            require_as_written(folder, *sorted(written))
        if first_lines(folder / LEDGER_NAME) and not (is_finished or is_held(folder / LOCK_NAME)):
            check_resumable(folder)
    except FedtwinError as error:
        return Finding("run", False, str(error).rstrip("."), _help_for(folder))
    words = f"{run['state']}, round {run['round']} of {run['rounds']}, {run['uploads']} uploads"
    if is_finished and run["state"] != "finished":
        words = f"its records say that it is finished, its ledger says: {words}"
        return Finding("run", False, words, "the ledger was cut or changed: the records are what the run left")
    well = run["state"] in ("running", "finished", "waiting", "stopped")
    return Finding("run", well, words, None if well else "; ".join(run["why"]))


def _help_for(folder: Path) -> str:
    """By what is in a folder that cannot be read as a run."""
    from fedtwin.live.run.past import has_ledger
    from fedtwin.records.files import CONFIG_NAME

    if has_ledger(folder):
        return "fedtwin edge --resume RUN --repair, where it is damaged"
    if (folder / CONFIG_NAME).is_file():
        return "make the run again from its config.toml, in another folder"
    return "name the folder of a run"


def _data(data: str, folder: Path | None) -> "Finding":
    """By the run's task where there is a run, else by any that fits."""
    from fedtwin.config import LearningConfig, load_config
    from fedtwin.learning.data.loading import load_dataset
    from fedtwin.live.checkup import Finding

    tries = [LearningConfig(), LearningConfig(task="regression"), LearningConfig(task="multilabel")]
    trouble = ""
    try:
        if folder is not None and (learning := load_config(folder / "config.toml").learning) is not None:
            tries = [learning]
    except FedtwinError as error:
        return Finding("data", False, str(error).rstrip("."), "name the folder of a run")
    for learning in tries:
        try:
            found = load_dataset(data, learning, ["train"])
        except FedtwinError as error:
            trouble = trouble or str(error).rstrip(".")
            continue
        shape = "x".join(map(str, found.x_train.shape[1:]))
        return Finding("data", True, f"{data}: {len(found.x_train)} samples of shape {shape}")
    return Finding("data", False, trouble, "docs/data.md says what a file must have")
