"""The session store of the Claude Agent SDK: `ClaudeAgentOptions(session_store=HoldfastSessionStore())`.

Each transcript is a session: the main one of an SDK session, and one for each subagent, which belongs to the main one.
The SDK allows several processes to append to one transcript, in the order of their commits, so nobody holds a transcript
between two calls.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

import msgspec

from holdfast.adapters.framework_session import DELETED, channel_of, constant, path_of, settle
from holdfast.adapters.items import ItemReader, StoredItem, decode_items, encode_item
from holdfast.adapters.log_fold import KeyIndex
from holdfast.adapters.requirement import missing
from holdfast.adapters.session_pool import PooledSession, SessionPool
from holdfast.model.errors import Invalid
from holdfast.model.event import Event, ItemAdded
from holdfast.model.message import Role
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases
from holdfast.store.repos.aliases import ChannelSession

try:
    from claude_agent_sdk import SessionStore, fold_session_summary
except ImportError as e:
    raise missing("claude-agent-sdk", e) from e

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

ADAPTER = "claude-agent-sdk"


class FoldedSummary(msgspec.Struct, frozen=True):
    """The SDK's summary of a session up to an event."""

    session_id: str
    seq: int
    data: "dict[str, Any]"


class Transcript(KeyIndex):
    """Which entries a transcript has, and how they are read."""

    def __init__(self) -> None:
        super().__init__()
        self.reader = ItemReader(ADAPTER)


class HoldfastSessionStore(SessionStore):
    """Transcripts in Holdfast's log. Appending an entry again, recognised by its `uuid`, changes nothing.

    A call returns after its entries are durable. Deleted transcripts go to the trash of the store.
    """

    def __init__(self, store: str | None = None) -> None:
        self._sessions = SessionPool(store, ADAPTER, Transcript, is_shared=True)
        self._summaries: dict[str, FoldedSummary] = {}

    async def append(self, key: "SessionKey", entries: "list[SessionStoreEntry]") -> None:
        """Append the entries, all or none, without those whose `uuid` the transcript has. Raises Invalid if one is not JSON."""
        if entries:
            recent = self._session(key)
            events = [encode_item(ADAPTER, one, role=_role(one), key=_uuid(one)) for one in entries]
            recent.note(await recent.session.write(partial(_without_repeated, events, recent)))

    async def load(self, key: "SessionKey") -> "list[SessionStoreEntry] | None":
        """All entries in the order of their commits; None if nothing was ever appended, or after a deletion."""
        recent = self._session(key)
        found = await recent.session.read(partial(_read, recent))
        return decode_items(found) or None

    async def list_sessions(self, project_key: str) -> "list[SessionStoreListEntry]":
        """The sessions of the project, without subagents, with the time of the last commit."""
        found = await self._list(path_of(project_key))
        return [{"session_id": name, "mtime": one.updated_at // 1000} for name, one in found]

    async def list_session_summaries(self, project_key: str) -> "list[SessionSummaryEntry]":
        """The SDK's summaries of the sessions. Each is made from the log once per object and then continued."""
        summaries: list[SessionSummaryEntry] = []
        for name, one in await self._list(path_of(project_key)):
            data = await self._summarize(project_key, name, one)
            summaries.append({"session_id": name, "mtime": one.updated_at // 1000, "data": data})
        return summaries

    async def delete(self, key: "SessionKey") -> None:
        """Move the transcript to the trash; the main one together with those of its subagents."""
        if key.get("subpath") is None:
            for subpath in await self.list_subkeys(
                {"project_key": key["project_key"], "session_id": key["session_id"]}
            ):
                await self.delete({**key, "subpath": subpath})
        await self._session(key).session.write(constant([DELETED]), creates=False)

    async def list_subkeys(self, key: "SessionListSubkeysKey") -> list[str]:
        """The subpaths of the session that have entries."""
        prefix = channel_of(ADAPTER, path_of(key["project_key"], key["session_id"]) + "/")
        store = self._sessions.store
        await store.wait_until_open()
        found = await settle(store.database.submit_read(aliases.list_channels, prefix))
        return [one.channel.removeprefix(prefix) for one in found]

    async def _list(self, project: str) -> list[tuple[str, ChannelSession]]:
        prefix = channel_of(ADAPTER, project + "/")
        store = self._sessions.store
        await store.wait_until_open()
        found = await settle(store.database.submit_read(aliases.list_channels, prefix))
        names = [(one.channel.removeprefix(prefix), one) for one in found]
        return [(unquote(name), one) for name, one in names if "/" not in name]

    async def _summarize(self, project_key: str, name: str, listed: ChannelSession) -> dict[str, Any]:
        before = self._summaries.get(listed.channel)
        if before is None or before.session_id != listed.session_id:
            before = FoldedSummary(listed.session_id, 0, {})
        key: SessionKey = {"project_key": project_key, "session_id": name}
        if listed.seq > before.seq:
            after, entries = await self._session(key).session.read(partial(_read_after, before.seq))
            previous: SessionSummaryEntry | None = None
            if before.seq:
                previous = {"session_id": name, "mtime": 0, "data": before.data}
            folded = fold_session_summary(previous, key, entries)
            before = self._summaries[listed.channel] = FoldedSummary(listed.session_id, after, folded["data"])
        return before.data

    def _session(self, key: "SessionKey") -> PooledSession[Transcript]:
        name = path_of(key["project_key"], key["session_id"])
        subpath = key.get("subpath")
        if subpath is None:
            return self._sessions.get(name)
        if not subpath:
            raise Invalid("a subpath must not be empty; leave it out for the main transcript")
        return self._sessions.get(f"{name}/{subpath}", parent=name)


def _without_repeated(
    events: Sequence[ItemAdded], recent: PooledSession[Transcript], tx: Transaction, session: Session
) -> Sequence[Event]:
    if not any(event.key for event in events):
        return events
    fresh: dict[str | int, ItemAdded] = {}
    with recent.state() as index:
        index.catch_up(tx, session)
        for number, event in enumerate(events):
            if event.key not in index.seqs:
                fresh.setdefault(event.key or number, event)
    return list(fresh.values())


def _read(recent: PooledSession[Transcript], tx: Transaction, session: Session | None) -> list[StoredItem]:
    with recent.state() as transcript:
        reader = transcript.reader
    return reader.read(tx, session)  # without the lock, which the writer of all sessions may need


def _read_after(seq: int, tx: Transaction, session: Session | None) -> "tuple[int, list[SessionStoreEntry]]":
    if session is None:
        return seq, []
    found = ItemReader(ADAPTER).read(tx, session)
    return session.seq, decode_items([item for item in found if item.seq > seq])


def _role(entry: Any) -> Role | None:
    """Who said an entry. Titles, tags and entries of unknown types are kept, and are no messages."""
    kind = entry.get("type") if isinstance(entry, dict) else None
    if kind not in ("user", "assistant"):
        return None
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if kind == "user" and isinstance(content, list):
        results = [one for one in content if isinstance(one, dict) and one.get("type") == "tool_result"]
        return "tool" if results else "user"
    return cast("Role", kind)


def _uuid(entry: Any) -> str:
    found = entry.get("uuid") if isinstance(entry, dict) else None
    return found if isinstance(found, str) else ""
