"""The session service of Google ADK. Each of its sessions is a session, written by one process at a time."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import unquote
from uuid import uuid4
from weakref import WeakValueDictionary

from holdfast.adapters.adk.shared_state import (
    PAGE,
    StateChange,
    change_shared_state,
    prepare_changes,
    read_shared_state,
)
from holdfast.adapters.adk.stored_state import ADAPTER, EventFields, SessionFold, SessionView, read_session, whole_state
from holdfast.adapters.framework_session import DELETED, SeenHead, channel_of, constant, path_of, settle
from holdfast.adapters.items import ItemReader, encode_item, read_item_at, refuse_not_json
from holdfast.adapters.requirement import missing
from holdfast.adapters.session_pool import PooledSession, SessionPool
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import Event as StoredEvent
from holdfast.model.event import ItemAdded
from holdfast.model.ids import SESSION
from holdfast.model.message import Role
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, sessions

try:
    from google.adk.errors import StaleSessionError
    from google.adk.errors.already_exists_error import AlreadyExistsError
    from google.adk.errors.session_not_found_error import SessionNotFoundError
    from google.adk.events import Event, EventActions
    from google.adk.platform.time import get_time
    from google.adk.sessions import BaseSessionService, Session, State
    from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse
    from pydantic import PrivateAttr, ValidationError
except ImportError as e:
    raise missing("adk", e) from e

STALE = "session {} has changed in the store since it was read; nothing was written. Get it again"
Pooled = PooledSession[SessionFold]


class StoredSession(Session):
    """A session that knows which item of the log it was read up to."""

    _seen: SeenHead = PrivateAttr(default=SeenHead())

    @property
    def seen(self) -> SeenHead:
        return self._seen

    @seen.setter
    def seen(self, value: SeenHead) -> None:
        self._seen = value


class HoldfastSessionService(BaseSessionService):
    """Sessions of ADK in Holdfast's log. A call returns after its data is durable. Deleted sessions go to the trash.

    An event that is appended again, recognised by its id and content, is stored once.
    """

    def __init__(self, store: str | None = None) -> None:
        self._sessions = SessionPool(store, ADAPTER, SessionFold)
        self._locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    async def create_session(
        self, *, app_name: str, user_id: str, state: dict[str, Any] | None = None, session_id: str | None = None
    ) -> Session:
        """Create a session. Raises AlreadyExistsError if the app's user has one with this id."""
        session_id = (session_id or "").strip() or str(uuid4())
        scopes, time = _by_scope(_dump(EventActions(state_delta=state or {}))["state_delta"]), get_time()
        changes = await self._prepare(app_name, user_id, scopes)
        first = whole_state(ADAPTER, scopes[""], time)
        pooled = self._get(app_name, user_id, session_id)

        def decide(tx: Transaction, stored: Any) -> Sequence[StoredEvent]:
            with pooled.state() as fold:
                fold.catch_up(tx, stored)
                if fold.newest:
                    raise Conflict("another caller has created it")
            self._change(tx, changes, time)
            return [first]

        exists = AlreadyExistsError(f"Session with id {session_id} already exists.")
        if await pooled.session.read(lambda _, session: session is not None):
            raise exists
        try:
            pooled.note(await pooled.session.write(decide))
        except Conflict as e:
            if type(e) is not Conflict:
                raise
            raise exists from e
        created = await self.get_session(app_name=app_name, user_id=user_id, session_id=session_id)
        assert created is not None, "it was created before"
        return created

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """The session with its state and the events that the config wants; None if there is none."""
        pooled = self._get(app_name, user_id, session_id)
        wants = None if config is None else partial(_is_wanted, config)

        def view(tx: Transaction, session: Any) -> Any:
            if session is None:
                return None
            page = session.seq if wants is None else PAGE
            with pooled.state() as fold:
                reader = fold.reader
            found = read_session(reader.newest_first(tx, session, page), wants)
            shared = read_shared_state(tx, app_name), read_shared_state(tx, app_name, user_id)
            return SeenHead(session.id, found.newest), found, *shared

        found = await pooled.session.read(view)
        if found is None:
            return None
        seen, stored, of_app, of_user = found
        session = _make_session(app_name, user_id, session_id.strip(), stored, _merged(stored.state, of_app, of_user))
        session.seen = seen
        return session

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """The sessions of the app, or of one of its users, without events; the one used last is the last."""
        prefix = channel_of(ADAPTER, path_of(app_name, *([] if user_id is None else [user_id])) + "/")
        store = self._sessions.store
        await store.wait_until_open()
        found = await settle(store.database.submit_read(_list, prefix, app_name))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Move the session to the trash of the store. The states of its app and its user stay."""
        await self._get(app_name, user_id, session_id).session.write(constant([DELETED]), creates=False)

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        store = self._sessions.store
        await store.wait_until_open()
        return await settle(store.database.submit_read(read_shared_state, app_name, user_id))

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append the event, and apply its changes of state; a partial event is not stored.

        Raises StaleSessionError if the stored session has other events than this object, and SessionNotFoundError if
        there is none.
        """
        if event.partial:
            return event
        pooled = self._get(session.app_name, session.user_id, session.id)
        async with self._lock_of(pooled):
            body = _dump(event)
            scopes = _by_scope(body["actions"]["state_delta"])
            body["actions"]["state_delta"] = _without_temporary(body["actions"]["state_delta"])
            item = encode_item(ADAPTER, body, role=_role(event), key=event.id)
            changes = await self._prepare(session.app_name, session.user_id, scopes)
            decide = partial(self._decide, pooled, session, item, event.timestamp, changes)
            try:
                written = await pooled.session.write(decide, creates=False)
            except Conflict as e:
                if type(e) is not Conflict:
                    raise
                raise StaleSessionError(STALE.format(session.id)) from e
            if written is None:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            pooled.note(written)
            if written.events or all(one.id != event.id for one in session.events):
                event = await super().append_event(session, event)
                session.last_update_time = event.timestamp
                if isinstance(session, StoredSession):
                    session.seen = self._position(pooled, written.head, event.id, is_new=bool(written.events))
        return event

    async def close(self) -> None:
        """Release every session, so that other processes can write to them at once, instead of after 30 seconds without use."""
        await asyncio.to_thread(self._sessions.release)

    def _decide(
        self,
        pooled: Pooled,
        session: Session,
        item: ItemAdded,
        time: float,
        changes: Sequence[StateChange],
        tx: Transaction,
        stored: Any,
    ) -> Sequence[StoredEvent]:
        with pooled.state() as fold:
            fold.catch_up(tx, stored)
            if item.key in fold.seqs and read_item_at(tx, stored.id, fold.seqs[item.key]).item == item.item:
                return []
            if _is_stale(session, stored.id, fold):
                raise StaleSessionError(STALE.format(session.id))
            whole = fold.whole_state_after(item)
        self._change(tx, changes, time)
        return [item, *whole]

    def _change(self, tx: Transaction, changes: Sequence[StateChange], time: float) -> None:
        for wanted in changes:
            change_shared_state(tx, wanted, time, at=self._sessions.store.app.clock.now())

    async def _prepare(self, app: str, user: str, scopes: dict[str, dict[str, Any]]) -> list[StateChange]:
        of_app, of_user = scopes[State.APP_PREFIX], scopes[State.USER_PREFIX]
        if not of_app and not of_user:
            return []
        store = self._sessions.store
        await store.wait_until_open()
        return prepare_changes(app, user, of_app, of_user, partial(store.app.ids.make, SESSION))

    def _get(self, app: str, user: str, session_id: str) -> Pooled:
        return self._sessions.get(path_of(app, user, session_id.strip()))

    def _lock_of(self, pooled: Pooled) -> asyncio.Lock:
        """Branches of one run share a session object, so their events are appended one after the other."""
        key = id(asyncio.get_running_loop()), pooled.session.channel
        return self._locks.setdefault(key, asyncio.Lock())

    def _position(self, pooled: Pooled, head: SeenHead, event_id: str, *, is_new: bool) -> SeenHead:
        if is_new:
            return head
        with pooled.state() as fold:
            return SeenHead(head.session_id, fold.seqs[event_id])


def _dump(value: Event | EventActions) -> dict[str, Any]:
    """The fields as JSON. ADK would store NaN and infinity as null; they are refused, as is half a surrogate pair. Raises Invalid."""
    try:
        refuse_not_json(value.model_dump(exclude_none=True))
        dumped: dict[str, Any] = value.model_dump(mode="json", exclude_none=True)
    except (ValueError, RecursionError) as e:
        raise Invalid(f"an item of {ADAPTER} is not JSON and was not saved: {e}") from e
    return dumped


def _is_stale(session: Session, stored_id: str, fold: SessionFold) -> bool:
    """Whether the log has other items than the object. One that was not read by us is compared as far as possible."""
    seen = session.seen if isinstance(session, StoredSession) else SeenHead()
    if seen.session_id:
        return seen != SeenHead(stored_id, fold.newest)
    newest = session.events[-1].id if session.events else ""
    return fold.time > session.last_update_time and newest != fold.newest_event


def _list(tx: Transaction, prefix: str, app: str) -> list[Session]:
    of_app, users, found = read_shared_state(tx, app), dict[str, Any](), []
    for one in aliases.list_channels(tx, prefix):
        user, session_id = map(unquote, one.channel.rpartition(":")[2].split("/")[1:])
        if user not in users:
            users[user] = read_shared_state(tx, app, user)
        items = ItemReader(ADAPTER).newest_first(tx, sessions.get(tx, one.session_id), PAGE)
        view = read_session(items, lambda *_: False)
        found.append(_make_session(app, user, session_id, view, _merged(view.state, of_app, users[user])))
    return sorted(found, key=lambda session: (session.last_update_time, session.user_id, session.id))


def _make_session(app: str, user: str, session_id: str, view: SessionView, state: dict[str, Any]) -> StoredSession:
    try:
        events = [Event.model_validate_json(text) for text in view.events]
    except ValidationError as e:
        raise Invalid(
            f"the installed google-adk cannot read the events of session {session_id}; they are stored unchanged: {e}"
        ) from e
    return StoredSession(
        app_name=app, user_id=user, id=session_id, state=state, events=events, last_update_time=view.time
    )


def _is_wanted(config: GetSessionConfig, event: EventFields, newer: int) -> bool:
    if config.num_recent_events is not None and newer >= config.num_recent_events:
        return False
    return config.after_timestamp is None or event.timestamp >= config.after_timestamp


def _by_scope(delta: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The values by the prefix of their scope, without it; temporary ones are left out."""
    scopes: dict[str, dict[str, Any]] = {"": {}, State.APP_PREFIX: {}, State.USER_PREFIX: {}}
    for key, value in _without_temporary(delta).items():
        scope = next((one for one in (State.APP_PREFIX, State.USER_PREFIX) if key.startswith(one)), "")
        scopes[scope][key.removeprefix(scope)] = value
    return scopes


def _without_temporary(delta: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in delta.items() if not key.startswith(State.TEMP_PREFIX)}


def _merged(state: dict[str, Any], of_app: dict[str, Any], of_user: dict[str, Any]) -> dict[str, Any]:
    scoped = {State.APP_PREFIX + key: value for key, value in of_app.items()}
    return {**state, **scoped, **{State.USER_PREFIX + key: value for key, value in of_user.items()}}


def _role(event: Event) -> Role | None:
    """Who said an event. Events without content, such as a change of state, are kept, and are no messages."""
    parts = event.content.parts if event.content is not None else None
    if not parts:
        return None
    if all(part.function_response is not None for part in parts):
        return "tool"
    return "user" if event.author == "user" else "assistant"
