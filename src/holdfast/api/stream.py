"""The events of the API's streams."""

import msgspec

HEARTBEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"


def event(data: object, *, name: str = "", id: str = "") -> bytes:
    """One event. Its data is one line of JSON."""
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"
