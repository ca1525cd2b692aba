"""Saves facts in a store until it is killed, and prints each one that was acknowledged."""

import asyncio
import os
import sys

from holdfast.model.memory.fact import MODEL, NewFact
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.store.repos import memory
from tests.contract.store_urls import open_place


async def main(address: str, count: int) -> None:
    database = await open_place(address)
    name = f"hf-{os.getpid()}"
    for number in range(count):
        new = NewFact(
            place=MemoryPlace(LOCAL_OWNER),
            scope="user",
            text=f"fact {number} of {name}",
            author=MODEL,
            session_id=name,
            turn_id=f"turn-{number}",
            call_id=f"call-{number}",
        )
        fact = await database.write(memory.add, new, seq=number + 1, at=number)
        print(f"{fact.number} {fact.text}", flush=True)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
