"""An agent of openai-agents that answers until it is killed. Prints the number of each run that has returned."""

import asyncio
import sys
from typing import Any

from agents import Agent, RunConfig, Runner
from agents.testing import ScriptedModel
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from holdfast.adapters.openai_agents import HoldfastSession


def reply(text: str) -> Any:
    content = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", content=[content], status="completed")


async def main(url: str, name: str, first: int) -> None:
    session, model = HoldfastSession(name, url), ScriptedModel()
    agent = Agent(name="test", model=model)
    number = first
    while True:
        model.enqueue([reply(f"reply {number}")])
        await Runner.run(agent, f"say {number}", session=session, run_config=RunConfig(tracing_disabled=True))
        print(number, flush=True)
        number += 1


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
