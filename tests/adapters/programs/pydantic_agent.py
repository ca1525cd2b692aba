"""An agent of pydantic-ai that answers until it is killed. Prints the number of each run that was saved."""

import asyncio
import itertools
import sys

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from holdfast.adapters.pydantic_ai import HoldfastHistory


async def main(url: str, name: str, first: int) -> None:
    history = HoldfastHistory(name, url)
    for number in itertools.count(first):
        agent = Agent(TestModel(custom_output_text=f"reply {number}"))
        await history.save(await agent.run(f"say {number}", message_history=await history.load()))
        print(number, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
