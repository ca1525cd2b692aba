"""Decides whether Python code is harmless, so that it needs no approval."""

import ast

FUNCTIONS = frozenset({"print", "len", "sum", "min", "max", "sorted", "int", "float", "str", "round", "abs", "range"})
ATTRIBUTES = frozenset(
    {"__version__", "__file__", "version", "version_info", "executable", "prefix", "path", "maxsize"}
)
PLAIN_NODES = (
    ast.Module,
    ast.Expr,
    ast.Import,
    ast.alias,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.BinOp,
    ast.operator,
    ast.UnaryOp,
    ast.unaryop,
    ast.Compare,
    ast.cmpop,
    ast.Attribute,
    ast.Tuple,
    ast.List,
    ast.JoinedStr,
    ast.FormattedValue,
)


def is_harmless_python(code: str) -> bool:
    """Whether Python code can only compute and print: no attributes but versions and paths, no calls but a few."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, PLAIN_NODES):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS):
            return False
        if isinstance(node, ast.Attribute) and node.attr not in ATTRIBUTES:
            return False
        if isinstance(node, ast.alias) and node.asname in FUNCTIONS:
            return False
    return True
