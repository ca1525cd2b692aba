"""The broker's application, called directly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from starlette.types import Message, Scope

from holdfast.broker.app import BrokerApp, LoginPages
from holdfast.broker.broker import Broker
from holdfast.broker.users import Users


class FakeBroker:
    """The part of a broker that is used before the user is known."""

    def __init__(self, users: Users) -> None:
        self.users = users


async def asked(front: BrokerApp, path: str, headers: Mapping[str, str]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(dict(message))

    given = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope: Scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": given}
    await front(scope, receive, send)
    return sent


async def test_a_user_removed_after_the_key_check_gets_an_error_about_the_key(tmp_path: Path) -> None:
    front = BrokerApp(cast("Broker", FakeBroker(Users(tmp_path / "users.json"))), cast("LoginPages", None))

    start, body = await asked(front, "/v1/models", {"authorization": "Bearer hfu-of-somebody-who-left"})

    assert start["status"] == 401
    assert json.loads(body["body"])["error"]["code"] == "invalid_api_key"
