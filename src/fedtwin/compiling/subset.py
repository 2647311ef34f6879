"""The part of Python that compiled code computes with the same bits: what is not understood completely is refused.

A function is read as source and played with kinds in place of values (``kinds``): every operation has to be one of those
below, on kinds for which compiled code does what Python does. Names are looked up by what they mean now, not by what they
are called.
"""

import ast
import builtins
import math
from collections.abc import Iterable
from contextlib import suppress
from types import FunctionType
from typing import Any

from fedtwin import draws
from fedtwin.compiling import guarded
from fedtwin.compiling.kinds import (
    MOST_EXACT,
    MOST_WHOLE,
    Kind,
    Number,
    Real,
    Record,
    Truth,
    Tuple,
    UnclearError,
    Whole,
    WholeOrReal,
    Word,
    as_real,
    join,
    kind_of_value,
    words,
)
from fedtwin.usercode import code_of_function

Scope = dict[str, Kind]
Plain = Any
BUILTINS = {getattr(builtins, name): name for name in ("abs", "min", "max", "float", "int", "bool", "len")}
WORDS: set[Any] = {draws.mix, draws.stream, draws.word}
MOST_ITEMS = 64
MOST_TURNS = 8


class Reading:
    """All the functions that one function calls, understood: what each of their names means."""

    def __init__(self, replaced: dict[Plain, Plain] | None = None, records: Iterable[Any] = ()) -> None:
        self.replaced = replaced or {}
        self.records = list(records)
        self.names: dict[FunctionType, dict[str, Any]] = {}
        self._known: dict[tuple[FunctionType, tuple[Kind, ...]], Kind] = {}
        self._open: list[FunctionType] = []

    def read(self, function: Any, kinds: list[Kind]) -> Kind:
        """The kind of what the function gives for such arguments, or a ``UnclearError``."""
        if not isinstance(function, FunctionType):
            raise UnclearError(f"{getattr(function, '__name__', type(function).__name__)} is no plain function")
        if function in self._open:
            raise UnclearError(f"{function.__name__} calls itself")
        key = function, tuple(kinds)
        if key not in self._known:
            self._open.append(function)
            try:
                self._known[key] = _Function(self, function).result(kinds)
            except UnclearError as refusal:
                raise (
                    refusal if str(refusal).startswith("in ") else UnclearError(f"in {function.__name__}: {refusal}")
                ) from None
            finally:
                self._open.pop()
        return self._known[key]


class _Function:
    """One function, played once for kinds of arguments."""

    def __init__(self, reading: Reading, function: FunctionType) -> None:
        self._reading, self._function = reading, function
        node = code_of_function(function)
        if isinstance(node, str):
            raise UnclearError(node)
        self._node = node
        self._names = reading.names.setdefault(function, {})
        self._results: list[Kind] = []
        self._left: list[list[Scope]] = []
        self._again: list[list[Scope]] = []

    def result(self, kinds: list[Kind]) -> Kind:
        scope = self._arguments(kinds)
        if isinstance(self._node, ast.Lambda):
            return self._value(self._node.body, scope)
        if self._block(self._node.body, scope) is not None:
            raise UnclearError("it may end without a return")
        kind = self._results[0]
        for other in self._results[1:]:
            kind = join(kind, other)
        return kind

    def _arguments(self, kinds: list[Kind]) -> Scope:
        arguments = self._node.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise UnclearError("it takes * or keyword-only arguments")
        names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        defaults = self._function.__defaults__ or ()
        missing = names[len(kinds) :]
        if len(kinds) > len(names) or len(missing) > len(defaults):
            raise UnclearError(f"it takes {len(names)} arguments, not {len(kinds)}")
        kinds = [*kinds, *(self._constant(default, f"the default of {name}") for name, default in _last(missing, defaults))]
        return dict(zip(names, kinds, strict=True))

    # Statements

    def _block(self, statements: list[ast.stmt], scope: Scope) -> Scope | None:
        """The scope after the statements; None where none is reached."""
        current: Scope | None = scope
        for statement in statements:
            if current is None:
                raise UnclearError(f"line {statement.lineno} is never reached")
            current = self._statement(statement, current)
        return current

    def _statement(self, node: ast.stmt, scope: Scope) -> Scope | None:
        match node:
            case ast.Return(value=ast.expr() as value):
                self._results.append(self._value(value, scope))
                return None
            case ast.Assign(targets=[target], value=value):
                return self._assigned(target, self._value(value, scope), scope)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                return self._assigned(target, self._value(value, scope), scope)
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                kind = self._binary(op, self._local(name, scope), self._value(value, scope))
                return self._assigned(target, kind, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self._test(test, scope)
                return _joined(self._block(body, dict(scope)), self._block(orelse, dict(scope)))
            case ast.While(test=test, body=body, orelse=[]):
                return self._loop(body, scope, test=test)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=called, args=args, keywords=[]), body=body, orelse=[]):
                if self._meaning(called, scope) is not range or not 1 <= len(args) <= 3:
                    raise UnclearError(f"the loop in line {node.lineno} is not over range()")
                return self._loop(body, scope, over=(name, self._bound_of_range(args, scope)))
            case ast.Break():
                self._left[-1].append(dict(scope))
                return None
            case ast.Continue():
                self._again[-1].append(dict(scope))
                return None
            case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                return scope
        raise UnclearError(f"{_what(node)} in line {node.lineno} is not for compiled code")

    def _assigned(self, target: ast.expr, kind: Kind, scope: Scope) -> Scope:
        match target, kind:
            case ast.Name(id=name), _:
                return {**scope, name: kind}
            case ast.Tuple(elts=elements), Tuple(items=items) if len(elements) == len(items):
                for element, item in zip(elements, items, strict=True):
                    if not isinstance(element, ast.Name):
                        break
                    scope = {**scope, element.id: item}
                else:
                    return scope
        raise UnclearError(f"the assignment in line {target.lineno} is not to names")

    def _loop(
        self, body: list[ast.stmt], scope: Scope, *, test: ast.expr | None = None, over: tuple[str, int] | None = None
    ) -> Scope | None:
        """Played until nothing new comes out; a whole number that grows with every turn has no bound."""
        ends: list[Scope] = []
        for _ in range(MOST_TURNS):
            if test is not None:
                self._test(test, scope)
            self._left.append([])
            self._again.append([])
            begun = {**scope, over[0]: Whole(over[1])} if over is not None else dict(scope)
            after = self._block(body, begun)
            ends += self._left.pop()
            again = [one for one in (after, *self._again.pop()) if one is not None]
            wider: Scope | None = scope
            for one in again:
                wider = _joined(wider, one)
            assert wider is not None
            if wider == scope:
                left: Scope | None = None if isinstance(test, ast.Constant) and test.value is True else scope
                for end in ends:
                    left = _joined(left, end)
                return left
            scope = wider
        raise UnclearError("a whole number grows in a loop: make it a float")

    def _bound_of_range(self, args: list[ast.expr], scope: Scope) -> int:
        bounds = []
        for arg in args:
            kind = self._value(arg, scope)
            if not isinstance(kind, Whole):
                raise UnclearError("range() of what is no whole number")
            bounds.append(kind.bound)
        if sum(bounds) > MOST_EXACT:
            raise UnclearError("range() may be wider than 2**53")
        return max(bounds)

    # Expressions

    def _value(self, node: ast.expr, scope: Scope) -> Kind:
        match node:
            case ast.Constant(value=value):
                return self._constant(value, repr(value))
            case ast.Name(id=name):
                return scope[name] if name in scope else self._constant(self._meaning(node, scope), name)
            case ast.Attribute(value=holder, attr=field) if isinstance(record := self._held(holder, scope), Record):
                return self._field(record, field)
            case ast.Attribute():
                return self._constant(self._meaning(node, scope), ast.unparse(node))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self._test(operand, scope)
                return Truth()
            case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
                return self._signed(op, self._value(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._value(left, scope), self._value(right, scope))
            case ast.BoolOp(values=values):
                kinds = [self._value(value, scope) for value in values]
                return self._all_alike(kinds)
            case ast.Compare(left=left, ops=ops, comparators=others):
                return self._compared(ops, [self._value(one, scope) for one in (left, *others)])
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._test(test, scope)
                return join(self._value(body, scope), self._value(orelse, scope))
            case ast.Call(func=called, args=args, keywords=keywords):
                return self._call(called, args, keywords, scope)
            case ast.Tuple(elts=elements) if elements:
                return Tuple(tuple(self._value(element, scope) for element in elements))
            case ast.Subscript(value=value, slice=index):
                return self._item(self._value(value, scope), index, scope)
        raise UnclearError(f"{_what(node)} in line {node.lineno} is not for compiled code")

    def _test(self, node: ast.expr, scope: Scope) -> None:
        """Only whether it is true counts, so ``and`` and ``or`` may be of different kinds."""
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                self._test(value, scope)
            return
        kind = self._value(node, scope)
        if not isinstance(kind, Number):
            raise UnclearError(f"{words(kind)} stands where true or false is needed")

    def _held(self, node: ast.expr, scope: Scope) -> Kind | None:
        """The kind of a local name, or of a field of one: what ``view.state`` in ``view.state.mean`` is."""
        match node:
            case ast.Name(id=name):
                return scope.get(name)
            case ast.Attribute(value=holder, attr=field):
                record = self._held(holder, scope)
                return self._field(record, field) if isinstance(record, Record) else None
        return None

    def _field(self, record: Record, field: str) -> Kind:
        kind = dict(record.fields).get(field)
        if kind is None:
            raise UnclearError(f"a {record.name} has no {field} that is for compiled code")
        return kind

    def _all_alike(self, kinds: list[Kind]) -> Kind:
        kind = kinds[0]
        for other in kinds[1:]:
            kind = join(kind, other)
        if not isinstance(kind, Number):
            raise UnclearError(f"{words(kind)} stands where true or false is needed")
        return kind

    def _signed(self, op: ast.unaryop, kind: Kind) -> Kind:
        match kind:
            case Whole() | Real():
                return kind
            case Truth():
                return Whole(1)
            case WholeOrReal() if isinstance(op, ast.UAdd):
                return kind
            case WholeOrReal():
                raise UnclearError("the sign changes of a number that is whole on one path and real on another: write 0.0")
        raise UnclearError(f"{words(kind)} stands where a number is needed")

    def _binary(self, op: ast.operator, left: Kind, right: Kind) -> Kind:
        one, other = _counted(left), _counted(right)
        if isinstance(op, ast.Pow):
            raise UnclearError("it uses **, which compiled code rounds otherwise: math.pow does not")
        if not isinstance(op, ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod):
            raise UnclearError(f"the operator {_what(op)} is not for compiled code")
        if isinstance(one, Whole) and isinstance(other, Whole) and not isinstance(op, ast.Div):
            return Whole(_bound(op, one.bound, other.bound))
        as_real(one)
        as_real(other)
        mixed = isinstance(one, WholeOrReal) or isinstance(other, WholeOrReal)
        if mixed and not isinstance(op, ast.Div) and not (isinstance(one, Real) or isinstance(other, Real)):
            raise UnclearError("a number is whole on one path and real on another: write 0.0 for 0, or float(…)")
        if mixed and isinstance(op, ast.FloorDiv | ast.Mod):
            raise UnclearError("// or % of a number that is whole on one path and real on another: write 0.0 for 0")
        return Real()

    def _compared(self, ops: list[ast.cmpop], kinds: list[Kind]) -> Kind:
        for op in ops:
            if not isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq):
                raise UnclearError(f"the operator {_what(op)} is not for compiled code")
        if not all(isinstance(kind, Whole) for kind in kinds):
            for kind in kinds:
                as_real(kind)
        return Truth()

    def _item(self, kind: Kind, index: ast.expr, scope: Scope) -> Kind:
        place = self._value(index, scope)
        if not isinstance(kind, Tuple) or not isinstance(place, Whole) or len(kind.items) > MOST_ITEMS:
            raise UnclearError(f"an item of {words(kind)} is taken: only of tuples of at most {MOST_ITEMS} numbers")
        if len({type(item) for item in kind.items}) != 1 or not isinstance(kind.items[0], Whole | Real):
            raise UnclearError("an item is taken of a tuple that mixes whole and real numbers")
        found: Kind = kind.items[0]
        for item in kind.items[1:]:
            found = join(found, item)
        return found

    def _call(self, called: ast.expr, args: list[ast.expr], keywords: list[ast.keyword], scope: Scope) -> Kind:
        function = self._meaning(called, scope)
        if any(isinstance(arg, ast.Starred) for arg in args) or any(keyword.arg is None for keyword in keywords):
            raise UnclearError("it calls a function with * or **")
        kinds = [self._value(arg, scope) for arg in args]
        if isinstance(function, FunctionType) and function not in WORDS and function is not draws.uniform:
            named = {str(keyword.arg): self._value(keyword.value, scope) for keyword in keywords}
            return self._reading.read(function, _in_order(function, kinds, named))
        if any(function is record for record in self._reading.records):
            named = {str(keyword.arg): self._value(keyword.value, scope) for keyword in keywords}
            return _made_record(function, kinds, named)
        if keywords:
            raise UnclearError("it calls a function that is not its own with keywords")
        if function in WORDS:
            if not all(isinstance(kind, Whole | Word) for kind in kinds):
                raise UnclearError("a random word is drawn from what is no whole number")
            return Word()
        if function is draws.uniform:
            if kinds != [Word()]:
                raise UnclearError("a uniform number is drawn from what is no random word")
            return Real()
        try:
            name, own = guarded.NAMES.get(function), BUILTINS.get(function)
        except TypeError:
            name = own = None
        if name is not None:
            return _of_math(name, kinds)
        if own is not None:
            return self._of_builtin(own, kinds)
        raise UnclearError(f"it calls {ast.unparse(called)}, of which compiled code may make other numbers")

    def _of_builtin(self, name: str, kinds: list[Kind]) -> Kind:
        match name, kinds:
            case (("min" | "max"), [_, _, *_]):
                for kind in kinds:
                    as_real(kind)
                return self._all_alike([_counted(kind) for kind in kinds])
            case "abs", [Whole() | Real() | WholeOrReal() as kind]:
                return kind
            case "float", [Whole() | Real() | WholeOrReal() as kind]:
                as_real(kind)
                return Real()
            case "int", [Whole() | Truth() as kind]:
                return _counted(kind)
            case "bool", [Whole() | Real() | Truth() | WholeOrReal()]:
                return Truth()
            case "len", [Tuple(items=items)]:
                return Whole(len(items))
        of = " and ".join(words(kind) for kind in kinds) or "nothing"
        instead = ": math.floor and math.ceil are" if name == "int" else ""
        raise UnclearError(f"it calls {name}() of {of}, which is not for compiled code{instead}")

    # Names

    def _local(self, name: str, scope: Scope) -> Kind:
        if name not in scope:
            raise UnclearError(f"{name} may be used before it is set")
        return scope[name]

    def _meaning(self, node: ast.expr, scope: Scope) -> Any:
        """What a name of the module, a closure or Python means, or an attribute of ``math``."""
        match node:
            case ast.Name(id=name):
                return self._named(name, scope)
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name not in scope:
                if self._named(name, scope) is not math:
                    raise UnclearError(f"it uses {name}.{attribute}, and only math is looked into")
                if attribute not in (*guarded.CONSTANTS, *guarded.REAL, *guarded.TRUTH, *guarded.WHOLE):
                    raise UnclearError(f"it uses math.{attribute}, of which compiled code may make other numbers")
                return getattr(math, attribute)
        raise UnclearError(f"{ast.unparse(node)} in line {node.lineno} is not for compiled code")

    def _named(self, name: str, scope: Scope) -> Any:
        function, code = self._function, self._function.__code__
        if name in scope or name in code.co_varnames or name in code.co_cellvars:
            raise UnclearError(f"{name} may be used before it is set, or is no function")
        if name in code.co_freevars:
            try:
                value = (function.__closure__ or ())[code.co_freevars.index(name)].cell_contents
            except ValueError:
                raise UnclearError(f"{name} is not set") from None
        elif name in function.__globals__:
            value = function.__globals__[name]
        elif hasattr(builtins, name):
            return getattr(builtins, name)
        else:
            raise UnclearError(f"{name} is not set")
        with suppress(TypeError, ValueError):  # what has no hash
            value = self._reading.replaced.get(value, value)
        self._names[name] = value
        return value

    def _constant(self, value: Any, name: str) -> Kind:
        kind = kind_of_value(value)
        if kind is None or (isinstance(kind, Tuple) and len(kind.items) > MOST_ITEMS):
            of = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
            raise UnclearError(f"it uses {name}, a {of}: only int, float, bool and short tuples of them are compiled")
        return kind


def _counted(kind: Kind) -> Kind:
    """True and False count as 1 and 0."""
    return Whole(1) if isinstance(kind, Truth) else kind


def _bound(op: ast.operator, one: int, other: int) -> int:
    match op:
        case ast.Mult():
            bound = one * other
        case ast.FloorDiv():
            bound = one
        case ast.Mod():
            bound = other
        case _:
            bound = one + other
    if bound > MOST_WHOLE:
        raise UnclearError("a whole number may exceed 64 bits: make it a float")
    return bound


def _of_math(name: str, kinds: list[Kind]) -> Kind:
    if len(kinds) != {**guarded.REAL, **guarded.TRUTH, **guarded.WHOLE}[name]:
        raise UnclearError(f"it calls math.{name} with {len(kinds)} arguments")
    for kind in kinds:
        as_real(kind)
        if isinstance(kind, Truth):
            raise UnclearError(f"it calls math.{name} of true or false")
    if name in guarded.WHOLE:
        return Whole(int(guarded.MOST_FLOOR))
    return Truth() if name in guarded.TRUTH else Real()


def _made_record(record: Any, kinds: list[Kind], named: dict[str, Kind]) -> Kind:
    """A declared NamedTuple, every field of it given: Python would take a float as it is, and so does compiled code."""
    given = dict(zip(record._fields, kinds, strict=False)) | named
    if len(kinds) + len(named) != len(record._fields) or set(given) != set(record._fields):
        raise UnclearError(f"it makes a {record.__name__} without giving each of {', '.join(record._fields)} once")
    for field, kind in given.items():
        if not isinstance(kind, Real):
            raise UnclearError(f"it makes a {record.__name__} whose {field} is {words(kind)}: a real number is needed")
    return Record(record.__name__, tuple((field, Real()) for field in record._fields))


def _in_order(function: FunctionType, kinds: list[Kind], named: dict[str, Kind]) -> list[Kind]:
    """Arguments given by name, in their places; a default may be left out only behind the last that is given."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    ordered = list(kinds)
    for name in names[len(kinds) :]:
        if not named:
            break
        if name not in named:
            raise UnclearError(f"it calls {function.__name__} by names and leaves {name} out")
        ordered.append(named.pop(name))
    if named:
        raise UnclearError(f"it calls {function.__name__} with {', '.join(named)}, which it does not take")
    return ordered


def _last(missing: list[str], defaults: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return list(zip(missing, defaults[len(defaults) - len(missing) :], strict=True))


def _joined(one: Scope | None, other: Scope | None) -> Scope | None:
    """What holds whichever way was taken: a name that is set on one only may not be used."""
    if one is None or other is None:
        return one if other is None else other
    return {name: join(one[name], other[name]) for name in one if name in other}


def _what(node: ast.AST) -> str:
    return type(node).__name__
