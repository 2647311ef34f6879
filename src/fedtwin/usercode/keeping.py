"""The source of the user's code, as it is kept beside the records it made, and as it travels."""

from collections.abc import Iterable
from pathlib import Path

from fedtwin.usercode.reaching import reached_by_name


def sources_of(names: Iterable[str], folder: str | Path | None) -> dict[str, bytes]:
    """Every source that ``module:attribute`` reaches, by its path in a folder of code. Nothing is loaded for it."""
    sources = {}
    for name in names:
        reached = reached_by_name(name, folder)
        for module, source in reached.sources.items():
            if " " in module:
                continue
            file = reached.files[module]
            place = Path(*module.split("."))
            path = place / file.name if file.name == "__init__.py" else place.with_name(file.name)
            sources[path.as_posix()] = source
    return sources


def keep_sources(names: Iterable[str], folder: str | Path | None, target: Path) -> bool:
    """Copies every source that ``module:attribute`` reaches to ``target``, under its module's name; False if there is none."""
    sources = sources_of(names, folder)
    for path, source in sources.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_bytes(source)
    return bool(sources)
