"""Reads the stored payload of an event. Pure."""

import json
from typing import Any

from holdfast.gateway.port import Attachment, Incoming

MEDIA_TYPES = ("m.image", "m.file", "m.audio", "m.video")
Json = dict[str, Any]


def parse_payload(payload: str) -> Incoming:
    given = json.loads(payload)
    event, me = given["event"], given["me"]
    content = event["content"]
    relates = content.get("m.relates_to") or {}
    thread = relates.get("event_id", "") if relates.get("rel_type") == "m.thread" else ""
    unreadable = str(given.get("unreadable", ""))
    text, files = ("", ()) if unreadable else _parse_content(event["type"], content)
    mentioned = me in (content.get("m.mentions") or {}).get("user_ids", ()) or me in text
    return Incoming(
        chat=f"{given['room']}/{thread}" if thread else given["room"],
        message=event["event_id"],
        person=event["sender"],
        name=event["sender"],
        text=text,
        attachments=files,
        private=given["people"] <= 2,
        addressed=mentioned,
        unreadable=unreadable,
        ignored=_ignore_reason(event, me, str(relates.get("rel_type", "")), unreadable),
    )


def _parse_content(kind: str, content: Json) -> tuple[str, tuple[Attachment, ...]]:
    """The text and the attachments of an event."""
    body = str(content.get("body", ""))
    if kind == "m.sticker":
        return f"[sticker: {body}]", ()
    encrypted = content.get("file")
    if content.get("msgtype") not in MEDIA_TYPES or not (encrypted or "url" in content):
        return body, ()
    info = content.get("info") or {}
    name, size = str(content.get("filename") or body or "file"), info.get("size")
    file = Attachment(
        ref=json.dumps(encrypted) if encrypted else str(content["url"]),
        name=name,
        media_type=str(info.get("mimetype", "")),
        size=size if isinstance(size, int) else None,
    )
    return (body if body != name else ""), (file,)


def _ignore_reason(event: Json, me: str, relation: str, unreadable: str) -> str:
    content = event["content"]
    if event["sender"] == me:
        return "our own message"
    if event["type"] == "m.room.encrypted" and not unreadable:
        return "encrypted"
    if relation == "m.replace":
        return "an edit"
    if content.get("msgtype") == "m.notice":
        return "notice of another bot"
    if event["type"] == "m.room.message" and "msgtype" not in content:
        return "redacted"
    return ""
