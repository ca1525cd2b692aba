"""The rules that CI enforces: import direction, error handling, and where SQL, the environment and the clock are used.

Each rule is one test that lists every violation. `make check` reports sizes but never fails because of them.
"""

import ast
import re
import socket
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from holdfast.store import queries

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "holdfast"
FILES = sorted(SRC.rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("*.py"))
TEXT_FILES = [
    path
    for folder in ("src", "tests", "docs", "bench", "scripts")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".sql", ".md", ".toml", ".sh", ".html", ".css", ".js", ".txt", ".yml"}
]
MAX_MODULES = 36
"""Modules in one package; a larger package needs subpackages."""

BASICS = {
    "clock",
    "installation",
    "process_lookup",
    "process_slots",
    "model",
    "safe_fetch",
    "settings",
    "stdio_pipes",
    "supervisor",
    "tasks",
}
SERVICES = BASICS | {"store", "engine", "providers", "tools", "instructions", "processes", "interop", "sse"}
SERVICES |= {"http_connection", "http_server", "websocket_connection"}
FACES = {"acp", "api", "gateway", "dashboard", "cron", "batch", "broker", "mcp_server", "telemetry", "torture"}
WIRING = SERVICES | {"slash", "config", "logs", "wiring"}
MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "clock": {"model"},
    "installation": set(),
    "process_lookup": {"model"},
    "settings": {"model"},
    "tasks": {"model"},
    "sse": {"tasks", "model"},
    "http_connection": {"model"},
    "process_slots": set(),
    "shared_listener": {"process_slots", "tasks"},
    "http_server": {"http_connection", "websocket_connection", "shared_listener", "process_slots", "model"},
    "websocket_connection": {"http_connection"},
    "safe_fetch": {"model"},
    "stdio_pipes": {"model"},
    "supervisor": {"model", "tasks"},
    "process_memory": set(),
    "setting_errors": {"model", "settings"},
    "config": BASICS | {"process_memory", "setting_errors"},
    "logs": BASICS,
    "store": BASICS,
    "processes": BASICS | {"store"},
    "providers": BASICS,
    "tools": BASICS | {"store", "processes"},
    "instructions": BASICS | {"store", "tools"},
    "engine": BASICS | {"store"},
    "interop": BASICS | {"store", "engine"},
    "slash": BASICS | {"store", "engine", "interop", "instructions", "tools"},
    **dict.fromkeys(FACES, SERVICES | {"slash"}),
    "wiring": WIRING | FACES,
    "library": WIRING,
    "cli": WIRING | {"library", "cron", "batch", "broker", "gateway", "torture"},
    "adapters": WIRING,
    "__init__": {"library"},
    "__main__": {"cli"},
}
"""The layers below each layer. Interfaces never import each other."""

ENGINE = "holdfast.engine."
ENGINE_ORDER: tuple[set[str], ...] = (
    {"context", "outbound", "process_port", "notifications", "stats", "file_rewind"},
    {"compaction", "admission"},
    {"streaming"},
    {"delegation"},
    {"spending"},
    {"turn"},
    {"liveness"},
    {"reset", "session_actions", "auto_titles", "rewinds", "goals", "decisions"},
    {"scheduler", "explain"},
    {"submission"},
    {"engine"},
)
"""The parts of the engine, the lowest first. Each imports from those before it."""
BROAD = {"Exception", "BaseException"}
CATCHES_EVERYTHING = {
    "store/postgres/group_commit.py find_first_statement": "raised again when the work runs alone",
    "store/postgres/write_threads.py _run_alone": "to the caller that waits for the write",
    "store/postgres/write_threads.py _run_all": "raised again when the write runs alone",
    "store/sqlite/writer.py _commit_alone": "to the caller that waits for the write",
    "store/sqlite/writer.py _run_in_savepoint": "to the caller that waits for the write",
    "engine/turn/tool_call.py _output": "to the model, as the result of the call, and to the log with its traceback",
    "providers/local/model_server.py answer": "to the worker, as the failure of the reply",
    "supervisor.py _run": "to the report of the task: log with traceback, count, status",
    "engine/liveness/heartbeat.py _beat_on": "to the report of the heartbeat: log with traceback, count, status",
    "store/postgres/failover.py _watch": "to the report of the watch: log with traceback, count, status",
    "engine/scheduler.py _serve": "to the watchers of the session, and to the log with its traceback",
    "gateway/intake.py _read_payload": "to the dead-letter list, with the payload",
    "gateway/attachments.py fetch_attachments": "to the model and the sender, and to the log with its traceback",
    "gateway/inbox_worker.py _process": "to the dead-letter list, with the payload, and to the log with its traceback",
    "gateway/delivery.py _send_part": "to the delivery, as an unknown outcome, and to the log with its traceback",
    "gateway/chat_queues.py _run": "to the log; the next message of the chat starts its queue again",
    "gateway/live_preview.py _run": "to the log with its traceback: nothing depends on a preview",
    "gateway/gateway.py work": "to the state of the platform, and to the log with its traceback",
    "adapters/shared_store.py _run": "to everybody who uses the store; raised again once it is open",
    "engine/scheduler.py _play": "to the caller whose turn it was, and to the log with its traceback",
}
"""Functions that catch every exception without raising, and where they report it."""
ENVIRONMENT = {
    "config.py": "reads the settings",
    "providers/local/model_server.py": "the embedded model's engine reads its number of threads from there when it is loaded",
    "tools/backends/relay.py": "a program of its own, which passes its environment on to its clients",
}
PRINTS = {
    "__main__.py": "the version, before anything is loaded",
    "logs.py": "warnings, and that the log itself cannot be written",
}
DRIVERS = {
    "wiring/store.py": "the errors of `holdfast migrate`",
    "cli/doctor.py": "the version of SQLite",
}
UNUSED_QUERIES: set[str] = set()
"""Queries without a caller."""


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
    """Every module that this one imports, inside functions as well."""
    for node in nodes(path, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level:
            yield f"relative import in line {node.lineno}"
        elif node.module == "holdfast":
            yield from (f"holdfast.{alias.name}" for alias in node.names)
        else:
            yield node.module or ""


def module_name(path: Path) -> str:
    parts = ("holdfast", *path.relative_to(SRC).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(path: Path) -> Iterator[str]:
    """The dotted names that this module imports: modules, and members of modules."""
    for node in nodes(path, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def engine_part(name: str) -> str:
    """The part of the engine that a module belongs to. The services hold the bus, so they are one part with `live`."""
    part = name.removeprefix(ENGINE).partition(".")[0]
    return "streaming" if part == "services" else part


def imported_layers(path: Path) -> set[str]:
    """The layers that this module imports from."""
    names = [name.split(".") for name in imported(path)]
    return {parts[1] for parts in names if parts[0] == "holdfast" and len(parts) > 1 and not parts[1].startswith("__")}


def functions(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Each node with the name of the function around it."""

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


def violations(found: Iterator[str]) -> None:
    """Fails with the whole list."""
    listed = list(found)
    assert not listed, "\n".join(["", *listed])


def test_modules_import_only_from_layers_below() -> None:
    def found() -> Iterator[str]:
        for path in FILES:
            if layer(path) not in MAY_IMPORT:
                yield f"{place(path)}: MAY_IMPORT does not name {layer(path)}"
                continue
            upward = imported_layers(path) - MAY_IMPORT[layer(path)] - {layer(path)}
            yield from (f"{place(path)} imports {name}" for name in sorted(upward))
            yield from (f"{place(path)}: {name}" for name in imported(path) if name.startswith("relative"))

    violations(found())


def test_modules_have_no_import_cycles() -> None:
    names = {module_name(path): path for path in FILES}
    graph = {
        name: {found for found in imported_names(path) if found in names and found != name}
        for name, path in names.items()
        if name != "holdfast"
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        raise AssertionError(" -> ".join(e.args[1])) from None


def test_parts_of_the_engine_import_only_from_those_before_them() -> None:
    rank = {part: number for number, parts in enumerate(ENGINE_ORDER) for part in parts}

    def found() -> Iterator[str]:
        for path in FILES:
            name = module_name(path)
            if not name.startswith(ENGINE):
                continue
            part = engine_part(name)
            if part not in rank:
                yield f"{name} has no place in ENGINE_ORDER"
            others = {engine_part(one) for one in imported_names(path) if one.startswith(ENGINE)} & rank.keys()
            yield from (f"{name} imports {other}" for other in others - {part} if rank[other] >= rank.get(part, 0))

    violations(found())


def test_packages_are_small_enough_to_read() -> None:
    sizes = Counter(path.parent for path in FILES if path.name != "__init__.py")
    large = (f"{place(folder)}: {count} modules" for folder, count in sizes.items() if count > MAX_MODULES)

    violations(large)


def test_every_class_name_is_used_once() -> None:
    named: dict[str, list[str]] = {}
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(place(path))

    violations(f"{name}: {', '.join(places)}" for name, places in sorted(named.items()) if len(places) > 1)


def test_every_module_has_a_docstring() -> None:
    violations(place(path) for path in FILES if not ast.get_docstring(tree(path)))


def test_no_error_is_swallowed() -> None:
    def found() -> Iterator[str]:
        for path in FILES:
            for name, node in functions(path):
                if isinstance(node, ast.ExceptHandler) and (node.type is None or names_in(node.type) & BROAD):
                    raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                    if not raises and f"{place(path)} {name}" not in CATCHES_EVERYTHING:
                        yield f"{place(path)} line {node.lineno}: {name} catches everything"
                is_suppress = isinstance(node, ast.Call) and "suppress" in ast.unparse(node.func)
                if is_suppress and set().union(*map(names_in, node.args)) & BROAD:
                    yield f"{place(path)} line {node.lineno}: suppresses everything"

    violations(found())


SQL = re.compile(
    r"\s*(SELECT\s.+\sFROM\s|INSERT INTO\s|UPDATE\s\w+\sSET\s|DELETE FROM\s|CREATE (TABLE|INDEX)\s|PRAGMA\s)", re.DOTALL
)


def test_only_the_store_uses_sql() -> None:
    def found() -> Iterator[str]:
        for path in FILES:
            if layer(path) == "store":
                continue
            drivers = {"apsw", "sqlite3", "psycopg"} & {name.split(".")[0] for name in imported(path)}
            if drivers and place(path) not in DRIVERS:
                yield f"{place(path)} imports {drivers}"
            for node in nodes(path, ast.Attribute):
                if node.attr in {"execute", "executemany", "executescript"}:
                    yield f"{place(path)} line {node.lineno} calls {node.attr}"
            for node in nodes(path, ast.Constant):
                if isinstance(node.value, str) and SQL.match(node.value):
                    yield f"{place(path)} line {node.lineno} contains SQL"

    violations(found())


def test_no_sql_is_built_from_strings() -> None:
    built = re.compile(r"f'+\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER)\s")
    exempt = "store/sqlite/migrate.py"  # a PRAGMA takes no parameters; the code inserts its own number

    violations(
        f"{place(path)} line {node.lineno}"
        for path in FILES
        if place(path) != exempt
        for node in nodes(path, ast.JoinedStr)
        if built.match(ast.unparse(node))
    )


def test_only_the_configuration_reads_the_environment() -> None:
    def found() -> Iterator[str]:
        for path in FILES:
            names = {alias.name for node in nodes(path, ast.ImportFrom) for alias in node.names}
            reads = attributes(path) & {"os.environ", "os.getenv", "os.putenv", "os.environb"}
            if place(path) not in ENVIRONMENT and (reads or "environ" in names):
                yield place(path)

    violations(found())


def test_only_the_command_line_prints() -> None:
    violations(
        f"{place(path)} line {node.lineno}"
        for path in FILES
        if layer(path) != "cli" and place(path) not in PRINTS
        for node in nodes(path, ast.Call)
        if "print" in names_in(node.func)
    )


def test_code_that_depends_on_time_takes_a_clock() -> None:
    clocks = {"time.time", "time.time_ns", "time.monotonic", "time.sleep", "datetime.now"}
    layers = {"model", "engine", "interop", "api", "gateway", "dashboard"}

    violations(f"{place(path)}" for path in FILES if layer(path) in layers and attributes(path) & clocks)


STARTS_TASKS = re.compile(r"\b(create_task|ensure_future|TaskGroup|run_coroutine_threadsafe)\s*\(")
MAY_START_TASKS = {"tasks.py", "supervisor.py"}


def test_tasks_are_started_only_where_they_are_supervised() -> None:
    """A task belongs to the supervisor or, if it cannot outlive its caller, to a helper of `tasks.py`."""
    starting = (place(path) for path in FILES if STARTS_TASKS.search(path.read_text("utf-8")))
    violations(name for name in starting if name not in MAY_START_TASKS)


def test_the_layers_have_an_order() -> None:
    TopologicalSorter({name: below - {name} for name, below in MAY_IMPORT.items()}).prepare()


def test_interfaces_never_import_each_other() -> None:
    for face in FACES:
        assert not MAY_IMPORT[face] & (FACES | {"cli"})


def test_every_exemption_is_still_needed() -> None:
    def found() -> Iterator[str]:
        for entry in CATCHES_EVERYTHING:
            file, _, function = entry.partition(" ")
            if not any(
                name == function and isinstance(node, ast.ExceptHandler) and names_in(node.type) & BROAD
                for name, node in functions(SRC / file)
            ):
                yield entry
        for file in ENVIRONMENT:
            if "os.environ" not in (SRC / file).read_text("utf-8"):
                yield file
        for file in PRINTS:
            if "print(" not in (SRC / file).read_text("utf-8"):
                yield file
        for file in DRIVERS:
            if "import apsw" not in (SRC / file).read_text("utf-8"):
                yield file

    violations(found())


# queries


def query_names() -> tuple[set[str], set[str]]:
    """The queries that the code names in full, and those that it may name by joining a prefix and a word."""
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


def test_every_named_query_exists() -> None:
    known = queries.load() | queries.load("postgres")
    repositories = {name.partition(".")[0] for name in known}
    for path in FILES:
        for node in nodes(path, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"one", "all", "run", "many"} and node.args:
                name = getattr(node.args[0], "value", None)
                if isinstance(name, str) and name.partition(".")[0] in repositories:
                    assert name in known, f"{place(path)} line {node.lineno}"


def test_every_long_query_has_a_comment() -> None:
    for name, sql in queries.load().items():
        lines = [line for line in sql.splitlines() if not line.startswith("--")]
        assert sql.startswith("-- ") or len(lines) <= 3, f"{name} needs a comment"


def test_queries_read_no_clock() -> None:
    clock = re.compile(r"\b(now|date|datetime|strftime|unixepoch|julianday)\s*\(|\bcurrent_(timestamp|time|date)\b")
    for name, sql in queries.load().items():
        assert not clock.search(sql.lower()), name


# the repository


def test_no_file_contains_the_path_of_this_checkout() -> None:
    here = f"{ROOT}/"

    assert not [path for path in TEXT_FILES if here in path.read_text("utf-8")]


def test_tests_use_real_things_and_no_mocks() -> None:
    mocks = re.compile(r"^\s*(import|from) unittest\b", re.MULTILINE)

    assert not [path for path in TEST_FILES if mocks.search(path.read_text("utf-8"))]


def test_every_folder_of_tests_is_a_package() -> None:
    folders = {path.parent for path in TEST_FILES}

    assert not [folder for folder in folders if not (folder / "__init__.py").exists()]


# the network


@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("2001:db8::1", 80, 0, 0)])
def test_tests_cannot_reach_other_machines(address: tuple[object, ...]) -> None:
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


def test_tests_can_use_loopback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as caller:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        caller.connect(str(tmp_path / "s"))
    socket.getaddrinfo("localhost", 80)
