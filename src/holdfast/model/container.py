"""The container in which a session's commands run."""

import msgspec


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
