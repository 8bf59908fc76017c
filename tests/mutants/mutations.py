"""Mutants of the package: one comparison, constant, operator, condition or call is another."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

# The function of the mutated package that says whether a mutant is on.
SWITCH = "_is_mutant"
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
}


@dataclass(frozen=True, order=True)
class Mutant:
    """A place, by what stands there: a function that moves to another file takes it along.

    ``number`` counts equal places of one function.
    """

    room: str
    function: str
    before: str
    after: str
    number: int

    def __str__(self) -> str:
        return f"{self.room} {self.function}: {self.before} -> {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """A node with its mutation; None if it has none."""
    twin: ast.AST = copy.deepcopy(node)
    match twin:
        case ast.Compare(ops=[op]) if type(op) in OPERATORS:
            twin.ops = [OPERATORS[type(op)]()]  # type: ignore[list-item]
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in OPERATORS:
            twin.op = OPERATORS[type(op)]()  # type: ignore[assignment]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
        case ast.Constant(value=bool() as value):
            twin.value = not value
        case ast.Constant(value=int() as value):
            twin.value = value + 1
        case ast.IfExp(test=ast.Name() | ast.Attribute() | ast.Call() as test):
            twin.test = ast.UnaryOp(ast.Not(), test)
        case ast.Expr(value=ast.Call()):
            return ast.Pass()
        case _:
            return None
    return twin


class Mutator(ast.NodeTransformer):
    """Finds all mutants of a module, and builds those in that have a number."""

    def __init__(self, room: str, numbers: Mapping[Mutant, int] | None = None) -> None:
        self.room, self.numbers, self.found = room, numbers or {}, list[Mutant]()
        self._path, self._in_function, self._seen = list[str](), False, Counter[tuple[str, str, str]]()

    def visit(self, node: ast.AST) -> ast.AST:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._inside(node, is_function=True)
            case ast.ClassDef():
                return self._inside(node, is_function=False)
            case ast.JoinedStr() | ast.pattern() | ast.Raise() | ast.Assert():
                return node  # texts of errors are no logic, patterns no expressions
            case ast.AnnAssign(value=ast.expr() as value):
                node.value = self.visit(value)  # type: ignore[assignment]
                return node
        mutated = changed(node) if self._in_function else None
        mutant = self._named(node, mutated) if mutated is not None else None
        number = self.numbers.get(mutant) if mutant is not None else None
        node = self.generic_visit(node)
        if number is None:
            return node
        assert mutated is not None
        switch = ast.Call(ast.Name(SWITCH, ast.Load()), [ast.Constant(number)], [])
        if isinstance(node, ast.stmt):
            return ast.If(switch, [mutated], [node])  # type: ignore[list-item]
        return ast.IfExp(switch, mutated, node)  # type: ignore[arg-type]

    def _inside(self, node: ast.AST, *, is_function: bool) -> ast.AST:
        before, self._in_function = self._in_function, is_function
        self._path.append(node.name)  # type: ignore[attr-defined]
        node.body = [self.visit(statement) for statement in node.body]  # type: ignore[attr-defined]
        self._path.pop()
        self._in_function = before
        return node

    def _named(self, node: ast.AST, mutated: ast.AST) -> Mutant:
        place = (".".join(self._path), ast.unparse(node), ast.unparse(mutated))
        self._seen[place] += 1
        self.found.append(Mutant(self.room, *place, self._seen[place]))
        return self.found[-1]
