"""Keeps the source of the user's code beside the records it made."""

from collections.abc import Iterable
from pathlib import Path

from fedtwin.usercode.reaching import reached_by_name


def keep_sources(names: Iterable[str], folder: str | Path | None, target: Path) -> bool:
    """Copies every source that ``module:attribute`` reaches to ``target``, under its module's name; False if there is none.

    Nothing is loaded for it.
    """
    kept = False
    for name in names:
        reached = reached_by_name(name, folder)
        for module, source in reached.sources.items():
            if " " in module:
                continue
            file = reached.files[module]
            place = target.joinpath(*module.split("."))
            path = place / file.name if file.name == "__init__.py" else place.with_name(file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source)
            kept = True
    return kept
