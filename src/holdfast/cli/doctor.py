"""`holdfast doctor`: check settings, sandbox and store."""

import platform
from typing import TYPE_CHECKING

import click
import msgspec

import holdfast
from holdfast.cli import context, errors, model_setup, render
from holdfast.clock import format_local_time
from holdfast.interop.documents.tasks import TaskItem
from holdfast.interop.serialization import format_time
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted
from holdfast.supervisor import TaskStatus, decode_statuses

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.health.sqlite import StoreHealth
    from holdfast.tools.sandbox import Sandbox


@click.command()
@context.json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Check the installation.

    Changes nothing. Of secrets, it shows only whether they are set.
    """
    settings = context.settings()
    health, sandbox = _health(settings), _sandbox(settings)
    warnings = [*settings.warnings, *_permission_warnings(settings), *_sandbox_warnings(sandbox), *health.warnings]
    warnings += model_setup.model_warnings(settings.home, settings.model)
    health = msgspec.structs.replace(health, problems=[*health.problems, *_platform_problems(settings)])
    if as_json:
        render.print_json(_document(settings, health, warnings) | {"sandbox": _sandbox_document(sandbox)})
    else:
        _print(settings, health, sandbox, warnings)
    if health.problems:
        ctx.exit(errors.FAILED)


def _health(settings: "Settings") -> "StoreHealth":
    from holdfast.wiring.store import examine_store

    return examine_store(settings)


def _sandbox(settings: "Settings") -> "Sandbox":
    from holdfast import config
    from holdfast.model.errors import Unsupported
    from holdfast.tools.sandbox import Sandbox
    from holdfast.wiring.tools import make_sandbox

    try:
        return make_sandbox(settings, config.environment())
    except Unsupported as e:
        return Sandbox(settings.home, reason=str(e))


def _sandbox_document(sandbox: "Sandbox") -> dict[str, object]:
    return {"active": sandbox.program is not None, "program": sandbox.program, "reason": sandbox.reason or None}


def _sandbox_warnings(sandbox: "Sandbox") -> list[str]:
    if sandbox.program is not None:
        return []
    return [f"no sandbox, so commands that tools run can read the home: {sandbox.reason}; see docs/security.md"]


def _platform_problems(settings: "Settings") -> list[str]:
    """What keeps messaging platforms from starting: wrong settings, and missing client libraries."""
    from holdfast.gateway.platforms import registry
    from holdfast.gateway.recipes import find_problems
    from holdfast.installation import command_to_add

    problems: list[str] = []
    for name, table in settings.gateway.platforms.items():
        kind = str(table.get("kind", name))
        problems += find_problems(name, table)
        if kind not in registry.KINDS:
            continue
        if not registry.is_installed(kind):
            problems.append(f"[gateway.{name}] needs a client library; run: {command_to_add(registry.KINDS[kind])}")
        elif part := registry.find_missing_part(kind, table):
            problems.append(
                f"[gateway.{name}] cannot read {part}; run: {command_to_add(registry.KINDS[kind])} (or set encryption = false)"
            )
    return problems


def _permission_warnings(settings: "Settings") -> list[str]:
    home = settings.home
    if home.is_dir() and home.stat().st_mode & 0o077:
        return [f"other users can read {home}; run: chmod 700 {home}"]
    return []


def _document(settings: "Settings", health: "StoreHealth", warnings: list[str]) -> dict[str, object]:
    store = msgspec.structs.asdict(health)
    store["workers"] = [
        {
            "id": one.id,
            "kind": one.kind,
            "host": one.host,
            "pid": one.pid,
            "last_heartbeat_at": format_time(one.beat_at),
            "tasks": [TaskItem.from_status(task) for task in decode_statuses(one.tasks)],
        }
        for one in health.workers
    ]
    del store["problems"], store["warnings"]
    return {
        "ok": not health.problems,
        **_versions(),
        "settings": settings.display_values(),
        "store": store,
        "problems": health.problems,
        "warnings": warnings,
    }


def _versions() -> dict[str, str]:
    import apsw

    return {
        "version": holdfast.__version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": platform.platform(),
    }


def _print(settings: "Settings", health: "StoreHealth", sandbox: "Sandbox", warnings: list[str]) -> None:
    render.print_text(render.bold("Version"))
    _facts(_versions())
    render.print_text(render.bold("Settings"))
    _facts({name: value for name, value in settings.display_values().items() if value not in (None, [])})
    render.print_text(render.bold("Sandbox"))
    _facts({"program": sandbox.program or f"none: {sandbox.reason}"})
    render.print_text(render.bold("Store"))
    _facts(_store_facts(health))
    for text in warnings:
        render.print_text(f"{render.bold('warning')}: {one_line(text)}")
    for text in health.problems:
        render.print_text(f"{render.bold('problem')}: {one_line(text)}")
    if not health.problems:
        found = f"No problems found, {counted(len(warnings), 'warning')}." if warnings else "No problems found."
        render.print_text(found if health.exists else "No store yet; the first session creates it.")


def _store_facts(health: "StoreHealth") -> dict[str, object]:
    facts: dict[str, object] = {"path": health.path, "file system": health.file_system}
    if health.free_bytes is not None:
        facts["free"] = render.format_size(health.free_bytes)
    if health.exists:
        facts |= {
            "size": render.format_size(health.bytes)
            + (f" + {render.format_size(health.wal_bytes)} WAL" if health.wal_bytes else ""),
            "schema": f"{health.schema} of {health.schema_known}",
            "sessions": health.sessions,
            "events": health.events,
        }
    for one in health.workers:
        facts[f"worker {one.id}"] = f"{one.kind}, pid {one.pid} on {one.host}"
        facts |= {f"  task {task.name}": _task(task) for task in decode_statuses(one.tasks)}
    return {name: value for name, value in facts.items() if value is not None}


def _task(task: TaskStatus) -> str:
    cycle = "no cycle yet" if task.cycle_at is None else f"last cycle {format_local_time(task.cycle_at)}"
    failed = f", failures: {task.failures}, last error: {task.error}" if task.failures else ""
    return f"{task.state}, {cycle}{failed}"


def _facts(facts: dict[str, object] | dict[str, str]) -> None:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        if isinstance(value, bool):
            shown = shown.lower()  # as in config.toml
        render.print_text(f"  {name:<{width}}  {one_line(shown)}")
