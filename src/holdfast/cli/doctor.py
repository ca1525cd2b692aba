"""`holdfast doctor`: what is set, what is there, and what is wrong with it."""

import platform
from typing import TYPE_CHECKING

import click
import msgspec

import holdfast
from holdfast.cli import errors, face, render
from holdfast.interop import shapes
from holdfast.interop.visible import one_line

if TYPE_CHECKING:
    from holdfast.settings import Settings
    from holdfast.store.health import Health


@click.command()
@face.json_option
@click.pass_context
def doctor(ctx: click.Context, *, as_json: bool) -> None:
    """Look everything over. Nothing is changed; secrets are not shown, only whether they are set."""
    settings = face.settings()
    health = _health(settings)
    warnings = [*settings.warnings, *_loose(settings), *health.warnings]
    if as_json:
        render.document(_document(settings, health, warnings))
    else:
        _print(settings, health, warnings)
    if health.problems:
        ctx.exit(errors.FAILED)


def _health(settings: "Settings") -> "Health":
    from holdfast.app import examine_store

    return examine_store(settings)


def _loose(settings: "Settings") -> list[str]:
    home = settings.home
    if home.is_dir() and home.stat().st_mode & 0o077:
        return [f"others can look into {home}; do: chmod 700 {home}"]
    return []


def _document(settings: "Settings", health: "Health", warnings: list[str]) -> dict[str, object]:
    store = msgspec.structs.asdict(health)
    store["workers"] = [
        {
            "id": one.id,
            "kind": one.kind,
            "host": one.host,
            "pid": one.pid,
            "last_heartbeat_at": shapes.time(one.beat_at),
        }
        for one in health.workers
    ]
    del store["problems"], store["warnings"]
    return {
        "ok": not health.problems,
        **_versions(),
        "settings": settings.shown(),
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


def _print(settings: "Settings", health: "Health", warnings: list[str]) -> None:
    render.out(render.strong("This program"))
    _facts(_versions())
    render.out(render.strong("Settings"))
    _facts({name: value for name, value in settings.shown().items() if value not in (None, [])})
    render.out(render.strong("Store"))
    _facts(_store_facts(health))
    for text in warnings:
        render.out(f"{render.strong('warning')}: {one_line(text)}")
    for text in health.problems:
        render.out(f"{render.strong('problem')}: {one_line(text)}")
    if not health.problems:
        render.out("No problems found." if health.exists else "There is no store yet; the first session makes one.")


def _store_facts(health: "Health") -> dict[str, object]:
    facts: dict[str, object] = {"path": health.path, "file system": health.file_system}
    if health.free_bytes is not None:
        facts["free"] = render.size(health.free_bytes)
    if health.exists:
        facts |= {
            "size": render.size(health.bytes)
            + (f", and {render.size(health.wal_bytes)} of WAL" if health.wal_bytes else ""),
            "schema": f"{health.schema} of {health.schema_known}",
            "sessions": health.sessions,
            "events": health.events,
        }
    facts |= {f"worker {one.id}": f"{one.kind}, pid {one.pid} on {one.host}" for one in health.workers}
    return {name: value for name, value in facts.items() if value is not None}


def _facts(facts: dict[str, object] | dict[str, str]) -> None:
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        render.out(f"  {name:<{width}}  {one_line(shown)}")
