"""Files that are there whole or not at all, and ``SHA256SUMS`` beside them, which ``sha256sum --check`` reads too."""

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from fedtwin.errors import FedtwinError, FedtwinWarning
from fedtwin.files import plain_file
from fedtwin.processes import interrupts_kept_for_later

SUMS_NAME = "SHA256SUMS"


def write_checked(folder: Path, files: Mapping[str, bytes], beside: Iterable[str] = (), *, fsync: bool = True) -> None:
    """Writes files and the checksums of them, and of those ``beside`` them that are there; the last file comes last."""
    sums = {name: _digest_of(folder / name) for name in beside if (folder / name).is_file() and name not in files}
    sums |= {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    text = "".join(f"{sums[name]}  {name}\n" for name in sorted(sums))
    write_together(folder, {SUMS_NAME: text.encode(), **files}, fsync=fsync)


def write_together(folder: Path, files: Mapping[str, bytes], *, fsync: bool = True) -> None:
    """Every file is complete beside its place before the first one takes it; if one cannot be written, none does."""
    drafts = {folder / f".{name}": folder / name for name in files}
    try:
        for draft, data in zip(drafts, files.values(), strict=True):
            with draft.open("wb") as file:
                file.write(data)
                file.flush()
                if fsync:
                    os.fsync(file.fileno())
        with interrupts_kept_for_later():
            for draft, path in drafts.items():
                draft.replace(path)
    except BaseException:
        for draft in drafts:
            if draft.is_file():
                draft.unlink()
        raise


def require_as_written(folder: Path, *names: str) -> None:
    """The files still have the checksums they were written with; otherwise one sentence."""
    try:
        lines = plain_file(folder / SUMS_NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        sentence = f"{str(folder)!r} has no {SUMS_NAME}: whether {names[0]} is as it was written cannot be told."
        warnings.warn(sentence, FedtwinWarning, stacklevel=3)
        return
    except OSError as error:
        raise FedtwinError(f"{str(folder / SUMS_NAME)!r} cannot be read: {error.strerror}.") from None
    for name in names:
        try:
            digest = _digest_of(folder / name)
        except OSError as error:
            raise FedtwinError(f"{str(folder / name)!r} cannot be read: {error.strerror}.") from None
        if f"{digest}  {name}" not in lines:
            raise FedtwinError(f"{str(folder / name)!r} is not as it was written: its checksum is not the one in {SUMS_NAME}.")


def names_written(folder: Path) -> set[str]:
    """The files that the checksums name; none where there are no checksums."""
    try:
        lines = plain_file(folder / SUMS_NAME).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {line.partition("  ")[2] for line in lines}


def _digest_of(path: Path) -> str:
    with plain_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def warn_if_changed(folder: Path) -> None:
    """The settings or the code of a finished run that is run again are not what they were: legal, and worth a sentence."""
    try:
        lines = [line.split("  ", 1) for line in plain_file(folder / SUMS_NAME).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError):
        return
    named = {line[1]: line[0] for line in lines if len(line) == 2}
    asked = [name for name in named if name in ("config.toml", "sweep.toml") or name.startswith("code/")]
    changed = [name for name in asked if not (folder / name).is_file() or _digest_of(folder / name) != named[name]]
    if changed:
        sentence = f"{str(folder)!r} is not as it was written: {', '.join(changed)} changed since, so this is another run."
        warnings.warn(sentence, FedtwinWarning, stacklevel=2)
