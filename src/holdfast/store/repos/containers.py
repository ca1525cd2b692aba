"""The containers of sessions: recorded before their first command, and ended once."""

from typing import cast

import msgspec

from holdfast.model.event import ContainerCreated, ContainerLost, ContainerRemoved, ContainerRestarted
from holdfast.store.database import Row, Transaction
from holdfast.store.repos import log


class Container(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The engine's id."""
    session_id: str
    name: str
    image: str
    engine: str
    settings_hash: str
    """The hash of the settings it was created with. A session whose settings changed gets another container."""
    host: str
    created_at: int


FIELDS = Container.__struct_fields__


def add(tx: Transaction, container: Container) -> None:
    """Record the container of a session, in its row and in the session's log."""
    tx.run(
        "containers.add",
        id=container.id,
        session=container.session_id,
        name=container.name,
        image=container.image,
        engine=container.engine,
        settings_hash=container.settings_hash,
        host=container.host,
        at=container.created_at,
    )
    created = ContainerCreated(
        container_id=container.id,
        name=container.name,
        image=container.image,
        engine=container.engine,
        settings_hash=container.settings_hash,
        host=container.host,
    )
    log.annotate(tx, container.session_id, created, at=container.created_at)


def get_current(tx: Transaction, session_id: str) -> Container | None:
    """The container of a session, unless it has ended."""
    row = tx.one("containers.current", session=session_id)
    return None if row is None else _container(row)


def has_ended(tx: Transaction, container_id: str) -> bool:
    """Whether the end of the container is recorded."""
    return tx.one("containers.ended", id=container_id) is not None


def list_current(tx: Transaction, host: str) -> list[tuple[Container, bool]]:
    """The containers of a machine that have not ended, and whether their session no longer needs them."""
    return [(_container(row), bool(row[len(FIELDS)])) for row in tx.all("containers.list_current", host=host)]


def record_restart(tx: Transaction, container: Container, reason: str, *, at: int) -> None:
    log.annotate(tx, container.session_id, ContainerRestarted(container_id=container.id, reason=reason), at=at)


def record_loss(tx: Transaction, container: Container, reason: str, *, at: int) -> None:
    """Record that the container was lost; once."""
    if tx.one("containers.end", id=container.id, reason=f"lost: {reason}", at=at) is not None:
        log.annotate(tx, container.session_id, ContainerLost(container_id=container.id, reason=reason), at=at)


def record_removal(tx: Transaction, container: Container, reason: str, *, at: int) -> bool:
    """Record that Holdfast removes the container; False if its end is recorded."""
    if tx.one("containers.end", id=container.id, reason=reason, at=at) is None:
        return False
    log.annotate(tx, container.session_id, ContainerRemoved(container_id=container.id, reason=reason), at=at)
    return True


def _container(row: Row) -> Container:
    values = dict(zip(FIELDS, row[: len(FIELDS)], strict=True))
    created_at = cast("int", values.pop("created_at"))
    texts = cast("dict[str, str]", values)
    return Container(created_at=created_at, **texts)
