"""An agent of Google ADK that counts until it is killed. Prints the number of each run that has returned."""

import asyncio
import itertools
import sys
from collections.abc import AsyncGenerator
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService

APP, USER = "app", "bo"


class Counter(BaseAgent):
    """Answers with the number of its call, which it keeps in the state of the session and of its user."""

    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event, None]:
        number = ctx.session.state.get("n", -1) + 1
        content = types.Content(role="model", parts=[types.Part(text=f"reply {number}")])
        actions = EventActions(state_delta={"n": number, "user:n": number})
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content, actions=actions)


async def run(service: BaseSessionService, name: str, text: str) -> list[Event]:
    """The events of one run."""
    runner = Runner(app_name=APP, agent=Counter(name="counter"), session_service=service, auto_create_session=True)
    message = types.Content(role="user", parts=[types.Part(text=text)])
    return [one async for one in runner.run_async(user_id=USER, session_id=name, new_message=message)]


async def main(url: str, name: str, first: int) -> None:
    service = HoldfastSessionService(url)
    for number in itertools.count(first):
        await run(service, name, f"say {number}")
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
