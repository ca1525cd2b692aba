"""The states that all sessions of an app, or of one of its users, share: each is a session of its own, read by its newest items."""

from collections.abc import Callable

import msgspec

from holdfast.adapters.adk.stored_state import (
    SHARED_ADAPTER,
    State,
    changed_state,
    read_session,
    whole_state_if_due,
)
from holdfast.adapters.framework_session import append_shared, channel_of, find, path_of
from holdfast.adapters.items import ItemReader
from holdfast.model.event import SessionOpened
from holdfast.store.database import Transaction
from holdfast.store.repos import sessions

PAGE = 64


class StateChange(msgspec.Struct, frozen=True):
    """New values for the state of an app or of a user. The ids are those of the sessions, should they not exist yet."""

    app: str
    user: str | None
    changes: State
    new_ids: tuple[str, str]


def prepare_changes(
    app: str, user: str, of_app: State, of_user: State, make_id: Callable[[], str]
) -> list[StateChange]:
    """The changes to make, that of the app first."""
    found = [StateChange(app, None, of_app, (make_id(), ""))] if of_app else []
    return [*found, StateChange(app, user, of_user, (make_id(), make_id()))] if of_user else found


def change_shared_state(tx: Transaction, wanted: StateChange, time: float, *, at: int) -> None:
    """Append the change, and at times the whole state after it."""
    opened = SessionOpened(source="library", channel=_channel(wanted.app), title=f"State of the app {wanted.app}")
    session, _ = sessions.create_for_channel(tx, wanted.new_ids[0], opened, at=at)
    if wanted.user is not None:
        title = f"State of the user {wanted.user} in the app {wanted.app}"
        channel = _channel(wanted.app, wanted.user)
        opened = SessionOpened(source="library", channel=channel, title=title, side_of=session.id)
        session, _ = sessions.create_for_channel(tx, wanted.new_ids[1], opened, at=at)
    session = append_shared(tx, session, [changed_state(wanted.changes, time)], at=at)
    newest = ItemReader(SHARED_ADAPTER).newest_first(tx, session, PAGE)
    view = read_session(newest)
    whole = whole_state_if_due(SHARED_ADAPTER, view.state, view.length, time)
    if whole:
        append_shared(tx, session, whole, at=at)


def read_shared_state(tx: Transaction, app: str, user: str | None = None) -> State:
    session = find(tx, _channel(app, *([] if user is None else [user])))
    return read_session(ItemReader(SHARED_ADAPTER).newest_first(tx, session, PAGE)).state if session else {}


def _channel(*words: str) -> str:
    return channel_of(SHARED_ADAPTER, path_of(*words))
