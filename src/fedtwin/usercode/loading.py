"""Loads ``module:attribute``: from a folder under names of its own, which shadow nothing, or as Python imports it.

A folder is a package with a private name. Its modules are compiled from their source as it is now, never from a cache, and
find each other by the names they would have as scripts in that folder. Names of the standard library stay its own.
"""

import builtins
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from fedtwin.errors import FedtwinError

PREFIX = "_fedtwin_code_"
INSTALLED = {"site-packages", "dist-packages"}
FOLDERS: dict[str, Path] = {}
"""Folders by their private names."""
MAIN = ("__main__", "__mp_main__")
"""What a script calls itself, and what it is called in a worker process."""
HELD_PREFIX = "object:"
HELD: dict[str, Any] = {}
"""Objects of this process that no module has, by the names they were given."""
_first_seen: dict[int, tuple[Any, bytes]] = {}
"""Sources by the specification of their module, of which a module that is loaded again has a new one; a script by itself."""


def load_object(setting: str, name: str, folder: str | Path | None = None) -> Any:
    """The object that ``setting = "module:attribute"`` names, looked for in ``folder`` first."""
    if name in HELD:
        return HELD[name]
    if name.startswith(HELD_PREFIX):
        raise FedtwinError(
            f"{setting} = {name!r} is an object of another process, which cannot be had here: define it at the top level of a "
            "file, import it from there, and give that."
        )
    try:
        module, attribute = module_of(name, folder), name.partition(":")[2]
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
    except KeyboardInterrupt:
        raise
    except FedtwinError as error:  # a part that is not put together as it has to be
        raise type(error)(f"{setting} = {name!r} cannot be loaded: {str(error).rstrip('.')}.") from None
    except BaseException as error:  # a module that calls sys.exit() too
        from fedtwin.usercode.source import sentence_of_error

        missing = folder is not None and getattr(error, "name", None) == name.partition(":")[0]
        places = f", looked for in {str(folder)!r} and where Python imports from" if missing else ""
        raise FedtwinError(f"{setting} = {name!r} cannot be loaded{places}: {sentence_of_error(error)}.") from None
    return found


def module_of(name: str, folder: str | Path | None = None) -> ModuleType:
    """The module of ``module:attribute``. The script that is being run is not run again to find something in it."""
    module = name.partition(":")[0]
    inside = module_file(Path(folder), module) if folder is not None else None
    if module == main_name() and (inside is None or is_script(inside)):
        return sys.modules["__main__"]
    if folder is not None and is_in(Path(folder), module):
        return importlib.import_module(f"{package_of(Path(folder))}.{module}")
    return importlib.import_module(module)


def main_name() -> str | None:
    """The name by which another process can import the script that is being run; None for a notebook, a prompt, a program."""
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        return None
    name = spec.name if spec is not None else Path(file).stem
    return name if _leads_to(name, file, tuple(sys.path)) else None


@lru_cache(maxsize=64)
def _leads_to(name: str, file: str, path: tuple[str, ...]) -> bool:  # noqa: ARG001
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return False
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == Path(file).resolve()


def is_script(file: Path) -> bool:
    """Whether a file is the script that is being run."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return isinstance(main, str) and file.resolve() == Path(main).resolve()


def module_beside(importer: str, name: str) -> ModuleType:
    """What ``import name`` loads in a module that is loaded, the name without dots in front; nothing that is installed."""
    package, top = importer.partition(".")[0], name.partition(".")[0]
    if top in FOLDERS:
        return importlib.import_module(name)
    if package in FOLDERS and is_in(FOLDERS[package], top):
        return importlib.import_module(f"{package}.{name}")
    spec = importlib.util.find_spec(top)
    if spec is None or top in sys.stdlib_module_names or not INSTALLED.isdisjoint(Path(spec.origin or "").parts):
        raise ImportError(name)
    return importlib.import_module(name)


def is_in(folder: Path, module: str) -> bool:
    """Whether the folder holds the module: as a file, as a package, or as a folder of modules that is nobody else's package."""
    return module_file(folder, module) is not None or _is_namespace(folder, module)


def _is_namespace(folder: Path, module: str) -> bool:
    place = folder.joinpath(*module.split("."))
    if not place.is_dir() or not any(place.rglob("*.py")):
        return False
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        spec = None
    return spec is None or spec.origin is None


def module_file(folder: Path, module: str) -> Path | None:
    place = folder.joinpath(*module.split("."))
    files = (place.with_name(f"{place.name}.py"), place / "__init__.py")
    return next((path for path in files if path.is_file()), None)


def package_of(folder: Path) -> str:
    """The private name of a folder."""
    folder = folder.resolve()
    name = PREFIX + hashlib.sha256(str(folder).encode()).hexdigest()[:12]
    if name not in FOLDERS:
        FOLDERS[name] = folder
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    return name


def own_name(module: str) -> str:
    """The name a module has in its folder, wherever that is; of a script the one it can be imported by."""
    if module in MAIN:
        return main_name() or "__main__"
    return module.partition(".")[2] if module.startswith(PREFIX) else module


def loaded_source(module: ModuleType) -> bytes | None:
    """The source that a module from a folder was made of; of a script, what was first seen: it may be edited while it runs."""
    loader = getattr(module, "__loader__", None)
    if isinstance(loader, _Loader):
        return loader.source
    seen = _first_seen.get(id(_what_names(module))) if module.__name__ in MAIN else None
    return seen[1] if seen is not None else None


def see_source(module: ModuleType, file: Path) -> bytes:
    """The source of a module that Python imported: what was on disk when it was first seen here."""
    named = _what_names(module)
    if id(named) not in _first_seen:
        _first_seen[id(named)] = (named, file.read_bytes())
    return _first_seen[id(named)][1]


def _what_names(module: ModuleType) -> Any:
    """Is another one after the module is loaded again."""
    spec = getattr(module, "__spec__", None)
    return spec if spec is not None else module


def forget_changed_code(folder: str | Path) -> None:
    """If a file of the folder has changed since it was loaded, everything from there will be loaded again."""
    package = package_of(Path(folder))
    names = [name for name in sys.modules if name.startswith(f"{package}.")]
    if any(_has_changed(sys.modules[name]) for name in names):
        for name in [package, *names]:
            sys.modules.pop(name, None)


def _has_changed(module: ModuleType) -> bool:
    """Of a module from a folder."""
    source = loaded_source(module)
    try:
        return source is not None and module.__file__ is not None and Path(module.__file__).read_bytes() != source
    except OSError:
        return True


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the source as it is, and gives the module an ``import`` that looks beside it first."""

    source: bytes = b""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        self.source = Path(self.path).read_bytes()
        return compile(self.source, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_beside(package)}
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Knows the private names."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, module = fullname.partition(".")
        folder = FOLDERS.get(package)
        if folder is None:
            return None
        file = module_file(folder, module) if module else None
        if file is not None:
            inside = [str(file.parent)] if file.name == "__init__.py" else None
            return importlib.util.spec_from_file_location(
                fullname, file, loader=_Loader(fullname, str(file)), submodule_search_locations=inside
            )
        if module and not folder.joinpath(*module.split(".")).is_dir():
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(folder.joinpath(*module.split(".")))] if module else [str(folder)]
        return spec


def _import_beside(package: str) -> Any:
    """``import`` for the modules of a folder: a name that lies there, and is not the standard library's, is that one."""

    def import_(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or top in sys.stdlib_module_names or top == "fedtwin" or not is_in(FOLDERS[package], top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = importlib.import_module(f"{package}.{name}")
        named = list(fromlist or ())
        for one in [*named, *(getattr(module, "__all__", ()) if "*" in named else ())]:
            if one != "*" and not hasattr(module, one) and is_in(FOLDERS[package], f"{name}.{one}"):
                importlib.import_module(f"{package}.{name}.{one}")
        return module if fromlist else sys.modules[f"{package}.{top}"]

    return import_
