"""Which modules the user's code reaches by its import statements, and what each of them is.

Nothing is imported to find out. Modules that are imported by computed names are not seen.
"""

import ast
import importlib.metadata
import importlib.util
import re
import site
import sys
import sysconfig
from functools import cache, lru_cache
from importlib.machinery import PathFinder
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from fedtwin.usercode.loading import (
    FOLDERS,
    INSTALLED,
    MAIN,
    PREFIX,
    is_in,
    is_script,
    loaded_source,
    module_file,
    own_name,
    package_of,
    see_source,
)
from fedtwin.usercode.source import is_ours
from fedtwin.usercode.trees import tree_of


class Reached(NamedTuple):
    """Sources of the user's by module name, with their files; and ``name==version`` of the distributions beside them."""

    sources: dict[str, bytes]
    files: dict[str, Path]
    distributions: set[str]


def reached_from(*modules: ModuleType) -> Reached:
    """Modules that are loaded, and all that they import, directly or not."""
    reached = Reached({}, {}, set())
    for module in modules:
        _add(own_name(module.__name__), FOLDERS.get(module.__name__.partition(".")[0]), reached)
    return reached


def reached_by_name(name: str, folder: str | Path | None = None) -> Reached:
    """The module of ``module:attribute``, and all that it imports; nothing is loaded."""
    reached = Reached({}, {}, set())
    module = name.partition(":")[0]
    inside = Path(folder).resolve() if folder is not None and is_in(Path(folder), module) else None
    _add(module, inside, reached)
    return reached


def _add(name: str, folder: Path | None, reached: Reached) -> None:
    if name.partition(".")[0] in {"fedtwin", *sys.builtin_module_names}:
        return
    file = _file_of(name, folder)
    if file is None or is_ours(str(file)) or file in reached.files.values():
        return
    if folder is not None and not file.resolve().is_relative_to(folder):
        folder = None  # what is imported from elsewhere does not look into the folder itself
    if _is_standard(file):
        return
    distribution = _distribution_of(name, file)
    if distribution is not None:
        if distribution.partition("==")[0] not in _what_fedtwin_needs():
            reached.distributions.add(distribution)
        return
    source = _source_of(name, file, folder)
    key = name if name not in reached.sources else f"{name} in another place"
    reached.sources[key], reached.files[key] = source, file
    for parent in _parents(name):
        _add(parent, folder, reached)
    for imported in _imports(source, name, is_package=file.name == "__init__.py"):
        if folder is not None and imported.partition(".")[0] in sys.stdlib_module_names:
            continue
        _add(imported, folder, reached)


def _parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:k]) for k in range(1, len(parts))]


def _source_of(name: str, file: Path, folder: Path | None) -> bytes:
    """What was loaded, as far as is known; of a module that Python imported, what was on disk when it was first seen."""
    module = sys.modules.get(f"{package_of(folder)}.{name}" if folder is not None else name)
    if module is None and is_script(file):
        module = sys.modules["__main__"]
    if module is None:
        return file.read_bytes()
    source = loaded_source(module)
    return source if source is not None else see_source(module, file)


@lru_cache(maxsize=1024)
def _imports(source: bytes, name: str, *, is_package: bool) -> tuple[str, ...]:
    """Every module that may be meant by an import statement, wherever in the source it stands."""
    try:
        tree = tree_of(source)
    except (SyntaxError, ValueError):
        return ()
    package = name if is_package else name.rpartition(".")[0]
    found: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(dict.fromkeys(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
            found[base] = None
            found.update(dict.fromkeys(f"{base}.{alias.name}" for alias in node.names))
    return tuple(one for one in found if one)


def _file_of(name: str, folder: Path | None) -> Path | None:
    if folder is not None and (file := module_file(folder, name)) is not None:
        return file
    loaded = sys.modules.get(name)
    file_of_loaded = getattr(loaded, "__file__", None)
    if isinstance(file_of_loaded, str) and Path(file_of_loaded).is_file():
        return Path(file_of_loaded)
    try:
        return _on_path(name)
    except (ImportError, ValueError, AttributeError):
        return None


def _on_path(name: str) -> Path | None:
    parts = name.split(".")
    spec = importlib.util.find_spec(parts[0])
    for k in range(1, len(parts)):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[: k + 1]), spec.submodule_search_locations)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return Path(spec.origin)


@cache
def _standard_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[name]).resolve() for name in ("stdlib", "platstdlib"))


@cache
def _installed_folders() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    more = [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(Path(path).resolve() for path in (paths["purelib"], paths["platlib"], *more))


@cache
def _is_standard(file: Path) -> bool:
    file = file.resolve()
    installed = any(file.is_relative_to(folder) for folder in _installed_folders())
    return not installed and any(file.is_relative_to(folder) for folder in _standard_folders())


def _distribution_of(name: str, file: Path) -> str | None:
    """``name==version`` of the distribution that installed a module; None for the user's own files, and editable installs.

    Where several share the top name, and none says that the file is its own, all of them.
    """
    if not _is_installed(file):
        return None
    named = sorted(set(_distributions().get(name.partition(".")[0], ())))
    owners = [one for one in named if len(named) > 1 and file.resolve() in _files_of(one)] or named
    return " ".join(f"{_normal(one)}=={_version(one)}" for one in owners) or None


@cache
def _version(distribution: str) -> str:
    """Read once: thousands of modules may be loaded, and each is asked whether it is the user's."""
    return importlib.metadata.version(distribution)


@cache
def _files_of(distribution: str) -> frozenset[Path]:
    return frozenset(Path(str(file.locate())).resolve() for file in importlib.metadata.files(distribution) or ())


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


@cache
def _what_fedtwin_needs() -> frozenset[str]:
    """Distributions whose versions are fedtwin's own affair, as they are for built-in policies and models."""
    needed = importlib.metadata.requires("fedtwin") or []
    return frozenset(_normal(re.split(r"[^A-Za-z0-9._-]", requirement)[0]) for requirement in needed)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@cache
def is_users_file(file: str) -> bool:
    """Whether code that stands in a file is the user's own; what stands in none was made by ``exec``, or typed."""
    if file.startswith("<"):
        return not file.startswith("<frozen")
    return not is_ours(file) and not _is_standard(Path(file)) and not _is_installed(Path(file))


@cache
def _is_installed(file: Path) -> bool:
    """A package that brings parts for fedtwin is the user's own, installed or not: it counts by its source."""
    file = file.resolve()
    inside = [file.relative_to(folder).parts[0] for folder in _installed_folders() if file.is_relative_to(folder)]
    inside += [name for folder, name in pairwise(file.parts) if folder in INSTALLED]  # of an environment beside this one, too
    return bool(inside) and inside[0].removesuffix(".py") not in _packages_with_parts()


@cache
def _packages_with_parts() -> frozenset[str]:
    """Top names of the packages that have entry points of fedtwin's groups."""
    groups = [group for group in importlib.metadata.entry_points().groups if group.startswith("fedtwin.")]
    points = [point for group in groups for point in importlib.metadata.entry_points(group=group)]
    return frozenset(point.module.partition(".")[0] for point in points)


def is_users(module: str) -> bool:
    """Whether a module that is loaded is the user's own: not fedtwin's, the standard library's or an installed one."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if module.startswith(PREFIX):
        return True
    if not isinstance(file, str) or module.partition(".")[0] == "fedtwin":
        return module in MAIN
    return not _is_standard(Path(file)) and _distribution_of(module, Path(file)) is None
