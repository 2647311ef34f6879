"""The source behind a function: its syntax tree, certain to be what runs, and where in it an error came from."""

import ast
import importlib.util
import linecache
import re
import sys
import traceback
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType

from fedtwin.usercode.loading import PREFIX, loaded_source
from fedtwin.usercode.trees import tree_of

OURS = str(Path(__file__).resolve().parent.parent)
CHANGED = "its source has changed since it was loaded"
PRIVATE = re.compile(rf"{PREFIX}[0-9a-f]+\\.?")
FunctionNode = ast.FunctionDef | ast.Lambda


@cache
def is_ours(file: str) -> bool:
    """Whether a file is a part of fedtwin."""
    return bool(file) and Path(file).resolve().is_relative_to(OURS)


def code_of_function(function: FunctionType) -> FunctionNode | str:
    """The syntax tree of a function, or a reason why there is none: no source, or another one than what was loaded."""
    code = function.__code__
    try:
        text = source_text(function)
        if not text:
            return "its source cannot be read"
        tree, codes = _parsed(text)
    except (RecursionError, MemoryError):
        return "it is nested too deeply"
    except (SyntaxError, ValueError):
        return CHANGED
    if code not in codes:
        return CHANGED
    nodes = [node for node in ast.walk(tree) if _may_be(node, code)]
    if len(nodes) != 1:
        return "several functions, or one that is no plain def or lambda, stand in its line"
    node = nodes[0]
    assert isinstance(node, ast.FunctionDef | ast.Lambda)
    return node


def source_text(function: FunctionType) -> str:
    """The source of the file that a function comes from."""
    module = sys.modules.get(str(function.__module__))
    kept = (
        loaded_source(module)
        if module is not None and getattr(module, "__file__", None) == function.__code__.co_filename
        else None
    )
    if kept is not None:
        return importlib.util.decode_source(kept)
    file = function.__code__.co_filename
    if file == "<string>":  # of exec, and of python -c: which of them cannot be told
        return ""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file, function.__globals__))


@lru_cache(maxsize=256)
def _parsed(text: str) -> tuple[ast.Module, frozenset[CodeType]]:
    tree = tree_of(text)
    found: set[CodeType] = set()
    _collect(compile(text, "<source>", "exec", dont_inherit=True), found)
    return tree, frozenset(found)


def _collect(code: CodeType, found: set[CodeType]) -> None:
    found.add(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _collect(constant, found)


def _may_be(node: ast.AST, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    if isinstance(node, ast.FunctionDef):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        return node.name == code.co_name and first == code.co_firstlineno
    return False


def sentence_of_error(error: BaseException) -> str:
    """An exception as a part of a sentence: its kind and first line, and file and line of the user's code it came from."""
    words = PRIVATE.sub("", str(error)).strip().splitlines()
    what = f"{type(error).__name__}: {words[0].rstrip('.')}" if words else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_file() and not is_ours(frame.filename) and "importlib" not in frame.filename:
            return f"{what} ({frame.filename}, line {frame.lineno})"
    return what
