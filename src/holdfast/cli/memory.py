"""`holdfast memory`: list, search, add, correct, forget and export remembered facts."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.cli.parsing.non_empty_types import NonEmptyPath
from holdfast.clock import format_local_time
from holdfast.interop.documents.memory import (
    FactDetailResponse,
    FactItem,
    FactListResponse,
    ForgottenResponse,
    describe_owned_place,
    describe_place,
    describe_source,
)
from holdfast.interop.serialization import dump
from holdfast.model.errors import Invalid
from holdfast.model.memory.fact import SCOPES, Fact, MemoryScope, NewFact, parse_fact_id
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.model.mode import LOCAL_USER
from holdfast.model.text import counted
from holdfast.store.repos import memory as facts
from holdfast.store.repos.memory import FactFilter

if TYPE_CHECKING:
    from holdfast.store.database import Transaction
    from holdfast.wiring.store import App

LIMIT = 100
FORMAT = 1
owner_option = click.option(
    "--owner", default=LOCAL_OWNER, show_default=True, metavar="WHO", help="Owner of the facts, such as telegram:42."
)


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@context.json_option
@click.pass_context
def memory(ctx: click.Context, *, as_json: bool) -> None:
    """List and change what is remembered for later sessions."""
    if ctx.invoked_subcommand is None:
        _list(FactFilter(owner=LOCAL_OWNER), "", LIMIT, as_json=as_json)


@memory.command("list")
@click.argument("words", metavar="[WORDS]...", nargs=-1)
@owner_option
@click.option("--all", "everyone", is_flag=True, help="Include the facts of all owners.")
@click.option("--scope", type=click.Choice(SCOPES), help="Show only facts with this scope.")
@click.option("--history", is_flag=True, help="Include superseded and forgotten versions.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=LIMIT, show_default=True, help="Show at most this many."
)
@context.json_option
def list_(
    *, words: tuple[str, ...], owner: str, everyone: bool, scope: str | None, history: bool, limit: int, as_json: bool
) -> None:
    """List facts, newest first; with WORDS those that share words with them, the best first."""
    wanted = FactFilter(owner=None if everyone else owner, scope=cast("MemoryScope | None", scope), history=history)
    _list(wanted, " ".join(words), limit, as_json=as_json)


def _list(wanted: FactFilter, query: str, limit: int, *, as_json: bool) -> None:
    def work(tx: "Transaction") -> Sequence[Fact]:
        if query:
            return facts.search(tx, wanted, query, limit=limit)
        return facts.list_page(tx, wanted, limit=limit + 1)

    found = context.read(work)
    has_more, found = len(found) > limit, found[:limit]
    if as_json:
        render.print_json(FactListResponse.from_page(found, has_more=has_more))
        return
    if not found:
        render.print_text(f"No fact matches {query!r}." if query else "No facts.")
        return
    rows = [
        [
            fact.id,
            format_local_time(fact.at)[:10],
            describe_owned_place(fact),
            _state(fact),
            describe_source(fact),
            fact.text,
        ]
        for fact in found
    ]
    render.print_table(["fact", "saved", "scope", "state", "source", "text"], rows, stretch=5)
    if has_more:
        context.note(f"there are more than {limit}; --limit shows more")


def _state(fact: Fact) -> str:
    if fact.forgotten_at is not None:
        return f"forgotten by {fact.forgotten_by}"
    return fact.state if fact.replaced_by is None else f"superseded by fact-{fact.replaced_by}"


@memory.command()
@click.argument("ref", metavar="ID")
@context.json_option
def show(*, ref: str, as_json: bool) -> None:
    """Show a fact with its source and all its versions."""
    number = parse_fact_id(ref)
    versions = context.read(lambda tx: facts.list_versions(tx, facts.require(tx, number).first))
    if as_json:
        render.print_json(FactDetailResponse.from_versions(number, versions))
        return
    for fact in versions:
        render.print_text(f"{fact.id}  {_state(fact)}  {describe_owned_place(fact)}  {format_local_time(fact.at)}")
        render.print_text(f"  {fact.text or '(forgotten)'}")
        render.print_text(f"  {describe_source(fact)}")


@memory.command()
@click.argument("text", metavar="TEXT")
@click.option(
    "--scope", type=click.Choice(SCOPES), default="user", show_default=True, help="Set which sessions get the fact."
)
@click.option(
    "--project",
    type=NonEmptyPath(path_type=Path, exists=True, file_okay=False),
    help="Set the directory of the project.  [default: the working directory]",
)
@owner_option
@context.json_option
def add(*, text: str, scope: str, project: Path | None, owner: str, as_json: bool) -> None:
    """Save a fact of at most 1,000 characters."""
    place = MemoryPlace(_owner(owner), _project(project or Path.cwd()) if scope == "project" else "")
    new = NewFact(place=place, scope=cast("MemoryScope", scope), text=text, author=LOCAL_USER)
    fact = context.write(lambda tx, app: facts.add(tx, new, seq=0, at=app.clock.now()))
    _print_saved(fact, f"Saved as {fact.id} ({describe_place(fact)}).", as_json=as_json)


def _project(folder: Path) -> str:
    from holdfast.wiring.memory import project_of

    return project_of(folder, context.settings().home)


def _owner(owner: str) -> str:
    """The owner as given. Raises Invalid for one that no session can have."""
    if owner != LOCAL_OWNER and ":" not in owner:
        raise Invalid(f"unknown owner {owner!r}: use {LOCAL_OWNER}, or a platform and a person such as telegram:42")
    if not owner.isprintable():
        raise Invalid("the owner contains control characters")
    return owner


@memory.command()
@click.argument("ref", metavar="ID")
@click.argument("text", metavar="TEXT")
@context.json_option
def correct(*, ref: str, text: str, as_json: bool) -> None:
    """Replace a fact by a new version. The old version is kept; the model no longer gets it."""
    number = parse_fact_id(ref)
    fact = context.write(lambda tx, app: facts.correct(tx, number, text, by=LOCAL_USER, at=app.clock.now()))
    _print_saved(fact, f"{fact.id} replaces fact-{number}.", as_json=as_json)


def _print_saved(fact: Fact, text: str, *, as_json: bool) -> None:
    if as_json:
        render.print_json(FactItem.from_fact(fact))
    else:
        render.print_text(text)


@memory.command()
@click.argument("refs", metavar="ID...", nargs=-1, required=True)
@context.json_option
def forget(*, refs: tuple[str, ...], as_json: bool) -> None:
    """Remove the text of facts in all their versions. Who did it, and when, is kept."""

    def work(tx: "Transaction", app: "App") -> list[ForgottenResponse]:
        at = app.clock.now()
        numbers = dict.fromkeys(parse_fact_id(ref) for ref in refs)
        return [ForgottenResponse(f"fact-{one}", facts.forget(tx, one, by=LOCAL_USER, at=at)) for one in numbers]

    done = context.write(work)
    if as_json:
        render.print_json({"forgotten": done})
        return
    for one in done:
        render.print_text(f"Forgot {one.id} ({counted(one.versions, 'version')}).")
    context.note(
        "the logs of sessions in which the facts were saved or told to the model keep them; see docs/memory.md"
    )


@memory.command()
@click.argument("file", metavar="[FILE]", type=NonEmptyPath(path_type=Path, dir_okay=False), required=False)
@owner_option
@click.option("--all", "everyone", is_flag=True, help="Include the facts of all owners.")
@click.option("--history", is_flag=True, help="Include superseded and forgotten versions.")
def export(*, file: Path | None, owner: str, everyone: bool, history: bool) -> None:
    """Write facts as JSON lines, oldest first: to FILE, which must not exist, or to standard output (also as -)."""
    wanted = FactFilter(owner=None if everyone else owner, history=history)
    found = context.read(lambda tx: list(facts.iterate(tx, wanted)))[::-1]
    header = {"format": "holdfast-memory", "version": FORMAT, "facts": len(found)}
    lines = [dump(header), *(dump(FactItem.from_fact(fact)) for fact in found)]
    if file is None or str(file) == "-":
        render.print_text("\n".join(lines))
        return
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")
    except OSError as e:
        raise Invalid(f"cannot write {file}: {e.strerror}") from e
    render.print_text(f"Wrote {counted(len(found), 'fact')} to {file}")
