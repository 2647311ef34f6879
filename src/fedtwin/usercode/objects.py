"""A name for an object that somebody holds in a script or a notebook, under which ``load_object`` finds it again.

Where a module has it as an attribute, that is ``module:attribute``, as if the user had written it: another process finds it,
and a run's folder keeps its source. Any other object gets a name that only this process knows, with the digest of its code.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from fedtwin.errors import FedtwinError
from fedtwin.usercode.digest import digest_of
from fedtwin.usercode.loading import FOLDERS, HELD, HELD_PREFIX, MAIN, load_object, main_name, own_name
from fedtwin.usercode.reaching import is_users, reached_by_name
from fedtwin.usercode.trees import tree_of

DIGITS = 12


def name_of_object(setting: str, value: Any, folder: str | None = None) -> tuple[str, str | None]:
    """The object's name, and the folder in which that is looked for: ``folder``, or its own where none is given."""
    for module, attribute in _places(value):
        name = f"{own_name(module.__name__)}:{attribute}"
        inside = FOLDERS.get(module.__name__.partition(".")[0])
        where = str(inside) if inside is not None and folder is None else folder
        if _is_found(setting, name, where, value):
            if getattr(getattr(module, "__spec__", None), "_initializing", False):
                raise FedtwinError(
                    f"{setting}: {name!r} is being imported and starts a run with it meanwhile: put what starts runs under "
                    "`if __name__ == '__main__':`."
                )
            return name, where
    return _hold(value), folder


def only_here(name: str) -> bool:
    """Whether a name means something in this process only: it is held here, or in a notebook."""
    return name.startswith(HELD_PREFIX) or (name.startswith("__main__:") and main_name() is None)


def sentence_of_only_here(setting: str, name: str, why: str) -> str:
    """``why`` it must be had elsewhere."""
    return (
        f"{setting} = {name!r}: {why}, and this name is known to one process only: define it at the top level of a file "
        "(mine.py), and give it as mine.POLICY after `import mine`, or by the name 'mine:POLICY'."
    )


def _places(value: Any) -> Iterator[tuple[ModuleType, str]]:
    """Modules of which the object is an attribute: those its code comes from, the script itself, any other of the user's."""
    parts = (value, getattr(value, "score", None), getattr(value, "lead", None), type(value))
    near = [str(getattr(part, "__module__", None)) for part in parts]
    others = sorted(name for name in list(sys.modules) if is_users(name))
    for name in dict.fromkeys([*near, "__main__", *others]):
        module = sys.modules.get(name)
        if isinstance(module, ModuleType):
            attributes = [name for name, held in list(vars(module).items()) if held is value]
            for attribute in sorted(attributes, key=lambda name: name.startswith("_")):
                if _stays_bound(module, attribute):
                    yield module, attribute


def _stays_bound(module: ModuleType, attribute: str) -> bool:
    """The module's source binds the name once and in no loop, so that it means the same object whenever the file is loaded."""
    try:
        tree = tree_of(Path(str(module.__file__)).read_bytes())
    except (AttributeError, OSError, SyntaxError, ValueError):
        return True
    return list(_bindings(tree, attribute)) in ([], [False])


def _bindings(node: ast.AST, name: str, in_loop: bool = False) -> Iterator[bool]:
    """For every place outside of functions and classes that binds a name: whether that is in a loop."""
    for part in ast.iter_child_nodes(node):
        match part:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if part.name == name:
                    yield in_loop
                continue
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                continue
            case ast.Name(id=bound, ctx=ast.Store()) if bound == name:
                yield in_loop
            case ast.alias() if (part.asname or part.name.partition(".")[0]) == name:
                yield in_loop
        yield from _bindings(part, name, in_loop or isinstance(part, ast.For | ast.AsyncFor | ast.While))


def _is_found(setting: str, name: str, folder: str | None, value: Any) -> bool:
    """Under its name, as the very same object, in a file whose source or distribution counts."""
    if name.partition(":")[0] in MAIN:
        return False
    try:
        reached = reached_by_name(name, folder)
        return bool(reached.files or reached.distributions) and load_object(setting, name, folder) is value
    except (FedtwinError, OSError):
        return False


def _hold(value: Any) -> str:
    """Under the name it has in the notebook, or that of its code."""
    main = vars(sys.modules["__main__"]) if "__main__" in sys.modules else {}
    code = getattr(getattr(value, "score", value), "__name__", type(value).__name__)
    label = next((name for name, held in list(main.items()) if held is value and not name.startswith("_")), code)
    name = f"{HELD_PREFIX}{label.strip('<>')}-{digest_of(value)[:DIGITS]}"
    HELD[name] = value
    return name
