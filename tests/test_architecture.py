"""The rules that a machine keeps: which way imports point, where errors, SQL, the environment and the clock may be.

How large things are is reported by `make check`, which never fails for it.
"""

import ast
import re
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from holdfast.store import queries

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "holdfast"
FILES = sorted(SRC.rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))
KEPT_TEXTS = [
    path
    for folder in ("src", "tests", "docs", "bench", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".sql", ".md", ".toml", ".sh", ".html", ".css", ".js", ".txt", ".yml"}
]

BASICS = {"model", "clock", "identity", "settings"}
BELOW_FACES = BASICS | {"store", "engine", "providers", "tools", "processes", "interop", "eventstream"}
FACES = {"api", "gateway", "dashboard", "cron", "batch", "broker", "torture"}
MAY_IMPORT: dict[str, set[str]] = {  # layer -> the layers below it; faces never import one another
    "model": set(),
    "clock": {"model"},
    "identity": {"model"},
    "settings": {"model"},
    "eventstream": set(),
    "config": BASICS,
    "logs": BASICS,
    "store": BASICS,
    "processes": BASICS | {"store"},
    "providers": BASICS,
    "tools": BASICS | {"store", "processes"},
    "engine": BASICS | {"store"},
    "interop": BASICS | {"store", "engine"},
    "slash": BASICS | {"store", "engine", "interop"},
    **dict.fromkeys(FACES, BELOW_FACES | {"slash"}),
    "assemble": BELOW_FACES,
    "app": BELOW_FACES | FACES | {"assemble", "config", "logs"},
    "pages": BELOW_FACES | FACES | {"app", "assemble", "config"},
    "serve": BELOW_FACES | FACES | {"app", "assemble", "config", "logs", "pages"},
    "brokering": BELOW_FACES | FACES | {"config", "logs", "serve"},
    "library": BELOW_FACES | {"app", "assemble", "config", "logs"},
    "cli": BELOW_FACES
    | {
        "slash",
        "app",
        "assemble",
        "config",
        "library",
        "logs",
        "serve",
        "cron",
        "batch",
        "broker",
        "brokering",
        "torture",
    },
    "__init__": {"library"},
    "__main__": {"cli"},
}

BROAD = {"Exception", "BaseException"}
HANDED_ON = {  # function that catches everything without raising -> where the error goes
    "store/sqlite_writer.py _commit_alone": "to the one who waits for the write",
    "store/sqlite_writer.py _run_in_savepoint": "to the one who waits for the write",
    "engine/toolcall.py _output": "to the model, as the result of the call, and to the log with its traceback",
    "engine/coordinator.py _serve": "to those who watch the session, and to the log with its traceback",
    "gateway/inlet.py _read": "to the dead-letter list, with the payload",
    "gateway/router.py _see_to": "to the dead-letter list, with the payload, and to the log with its traceback",
    "gateway/deliver.py _hand_over": "to the delivery, as a doubt, and to the log with its traceback",
    "gateway/lines.py _run": "to the log; the chat is begun again when it is next looked at",
    "gateway/attend.py _attend": "to the log with its traceback: nothing depends on what is attended to",
    "cron.py work": "to the log with its traceback; schedules are looked at again",
    "gateway/gateway.py work": "to the state of the platform, and to the log with its traceback",
    "engine/coordinator.py _play": "to the one whose turn it was, and to the log with its traceback",
}
ENVIRONMENT = {
    "config.py": "the one reader of settings",
    "providers/local.py": "the embedded model's engine reads its number of threads from there when it is loaded",
}
PRINTS = {
    "__main__.py": "the version, before anything is loaded",
    "logs.py": "warnings, and that the log itself cannot be written",
}
DRIVERS = {
    "app.py": "the errors of a migration that is asked for by hand",
    "cli/doctor.py": "the version of SQLite",
}
UNUSED_QUERIES: set[str] = set()
"""Queries that wait for their caller; each leaves this list with its first use."""


def place(path: Path) -> str:
    return str(path.relative_to(SRC))


def layer(path: Path) -> str:
    inside = path.relative_to(SRC)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def every_node(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree(path)))


def nodes(path: Path, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    return (node for node in every_node(path) if isinstance(node, kinds))


def imported(path: Path) -> Iterator[str]:
    """Every module this one imports, wherever in it."""
    for node in nodes(path, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level:
            yield f"relative import in line {node.lineno}"
        elif node.module == "holdfast":
            yield from (f"holdfast.{alias.name}" for alias in node.names)
        else:
            yield node.module or ""


def ours(path: Path) -> set[str]:
    """The layers of ours that this module imports from."""
    names = [name.split(".") for name in imported(path)]
    return {parts[1] for parts in names if parts[0] == "holdfast" and len(parts) > 1 and not parts[1].startswith("__")}


def functions(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Each node together with the name of the function it stands in."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            yield inner, child
            yield from walk(child, inner)

    return walk(tree(path), "<module>")


def names_in(node: ast.AST | None) -> set[str]:
    return set() if node is None else {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def attributes(path: Path) -> set[str]:
    """Every `a.b` that is read or called, as text."""
    found = nodes(path, ast.Attribute)
    return {f"{node.value.id}.{node.attr}" for node in found if isinstance(node.value, ast.Name)}


@pytest.mark.parametrize("path", FILES, ids=place)
class TestModule:
    def test_imports_only_from_layers_below(self, path: Path) -> None:
        assert layer(path) in MAY_IMPORT, f"say in MAY_IMPORT what {layer(path)} may import"
        assert ours(path) <= MAY_IMPORT[layer(path)] | {layer(path)}
        assert not [name for name in imported(path) if name.startswith("relative")]

    def test_says_what_it_is_for(self, path: Path) -> None:
        assert ast.get_docstring(tree(path)), "a module opens with a sentence"

    def test_never_swallows_an_error(self, path: Path) -> None:
        for name, node in functions(path):
            if isinstance(node, ast.ExceptHandler) and (node.type is None or names_in(node.type) & BROAD):
                raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                assert raises or f"{place(path)} {name}" in HANDED_ON, f"line {node.lineno}"
            if isinstance(node, ast.Call) and "suppress" in ast.unparse(node.func):
                assert not set().union(*map(names_in, node.args)) & BROAD, f"line {node.lineno}"

    def test_keeps_sql_in_the_store(self, path: Path) -> None:
        if layer(path) == "store":
            return
        if place(path) not in DRIVERS:
            assert not {"apsw", "sqlite3", "psycopg"} & {name.split(".")[0] for name in imported(path)}
        for node in nodes(path, ast.Attribute):
            assert node.attr not in {"execute", "executemany", "executescript"}, f"line {node.lineno}"
        for node in nodes(path, ast.Constant):
            sql = isinstance(node.value, str) and re.match(
                r"\s*(SELECT\s.+\sFROM\s|INSERT INTO\s|UPDATE\s\w+\sSET\s|DELETE FROM\s|CREATE (TABLE|INDEX)\s|PRAGMA\s)",
                node.value,
                flags=re.DOTALL,
            )
            assert not sql, f"line {node.lineno}"

    def test_builds_no_sql_from_pieces(self, path: Path) -> None:
        if place(path) == "store/migrate.py":  # a PRAGMA takes no parameters; what is put in is a number of ours
            return
        for node in nodes(path, ast.JoinedStr):
            text = ast.unparse(node)
            assert not re.match(r"f'+\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER)\s", text), f"line {node.lineno}"

    def test_leaves_the_environment_to_the_configuration(self, path: Path) -> None:
        if place(path) not in ENVIRONMENT:
            assert not attributes(path) & {"os.environ", "os.getenv", "os.putenv", "os.environb"}
            assert "environ" not in {alias.name for node in nodes(path, ast.ImportFrom) for alias in node.names}

    def test_prints_only_in_the_command_line(self, path: Path) -> None:
        if layer(path) != "cli" and place(path) not in PRINTS:
            for node in nodes(path, ast.Call):
                assert "print" not in names_in(node.func), f"line {node.lineno}"

    def test_is_handed_its_clock(self, path: Path) -> None:
        if layer(path) in {"model", "engine", "interop", "api", "gateway", "dashboard"}:
            assert not attributes(path) & {"time.time", "time.time_ns", "time.monotonic", "time.sleep", "datetime.now"}


def test_no_layer_is_above_itself() -> None:
    def all_below(name: str, seen: tuple[str, ...] = ()) -> set[str]:
        assert name not in seen, f"{' -> '.join(seen)} -> {name}"
        return {name}.union(*(all_below(lower, (*seen, name)) for lower in MAY_IMPORT[name] if lower in MAY_IMPORT))

    for name in MAY_IMPORT:
        all_below(name)


def test_faces_never_import_one_another() -> None:
    for face in FACES:
        assert not MAY_IMPORT[face] & (FACES | {"cli"})


@pytest.mark.parametrize("entry", HANDED_ON)
def test_every_exception_to_the_rule_on_errors_is_still_needed(entry: str) -> None:
    file, _, function = entry.partition(" ")

    assert any(
        name == function and isinstance(node, ast.ExceptHandler) and names_in(node.type) & BROAD
        for name, node in functions(SRC / file)
    )


@pytest.mark.parametrize(
    ("file", "needed"),
    [
        *((file, r"os\.environ") for file in ENVIRONMENT),
        *((file, r"print\(") for file in PRINTS),
        *((file, "import apsw") for file in DRIVERS),
    ],
)
def test_every_other_exception_is_still_needed(file: str, needed: str) -> None:
    assert re.search(needed, (SRC / file).read_text("utf-8"))


# queries


def query_names() -> tuple[set[str], set[str]]:
    """The queries that the code names in full, and the other words that queries named in part could end with."""
    whole: set[str] = set()
    parts: set[str] = set()
    for path in FILES:
        texts = {node.value for node in nodes(path, ast.Constant) if isinstance(node.value, str)}
        words = {text for text in texts if re.fullmatch(r"[a-z_]+", text)}
        whole |= texts
        for node in nodes(path, ast.JoinedStr):
            head = node.values[0]
            if isinstance(head, ast.Constant) and re.fullmatch(r"[a-z]+\.", str(head.value)):
                parts |= {f"{head.value}{word}" for word in words}
    return whole, parts


def test_every_query_is_used() -> None:
    whole, parts = query_names()

    assert set(queries.load("postgres")) - whole - parts == UNUSED_QUERIES


def test_every_query_that_is_named_exists() -> None:
    known = queries.load() | queries.load("postgres")
    repositories = {name.partition(".")[0] for name in known}
    for path in FILES:
        for node in nodes(path, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"one", "all", "run", "many"} and node.args:
                name = getattr(node.args[0], "value", None)
                if isinstance(name, str) and name.partition(".")[0] in repositories:
                    assert name in known, f"{place(path)} line {node.lineno}"


def test_every_query_has_a_sentence_or_is_plain_from_its_name() -> None:
    for name, sql in queries.load().items():
        lines = [line for line in sql.splitlines() if not line.startswith("--")]
        assert sql.startswith("-- ") or len(lines) <= 3, f"{name} needs a sentence"


def test_queries_read_no_clock() -> None:
    clock = re.compile(r"\b(now|date|datetime|strftime|unixepoch|julianday)\s*\(|\bcurrent_(timestamp|time|date)\b")
    for name, sql in queries.load().items():
        assert not clock.search(sql.lower()), name


# the repository


def test_no_file_mentions_where_it_was_written() -> None:
    here = f"{ROOT}/"

    assert not [path for path in KEPT_TEXTS if here in path.read_text("utf-8")]


def test_tests_use_real_things_and_no_mocks() -> None:
    mocks = re.compile(r"^\s*(import|from) unittest\b", re.MULTILINE)

    assert not [path for path in TEST_FILES if mocks.search(path.read_text("utf-8"))]


def test_packages_of_tests_can_be_told_apart() -> None:
    folders = {path.parent for path in TEST_FILES}

    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


# the network


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0)])
def test_tests_cannot_reach_strangers(address: tuple[object, ...]) -> None:
    family = socket.AF_INET6 if len(address) == 4 else socket.AF_INET
    with socket.socket(family) as one, pytest.raises(PermissionError, match="do not use the network"):
        one.connect(address)
    with (
        socket.socket(family, socket.SOCK_DGRAM) as one,
        pytest.raises(PermissionError, match="do not use the network"),
    ):
        one.sendto(b"x", address)
    with pytest.raises(PermissionError, match="do not use the network"):
        socket.getaddrinfo("holdfast.example", 443)


def test_tests_can_talk_to_this_machine(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        caller.connect(str(tmp_path / "s"))
    socket.getaddrinfo("localhost", 80)
