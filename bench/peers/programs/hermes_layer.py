"""hermes-agent's SessionDB, called in a thread as its own asynchronous proxy does."""

import asyncio
from pathlib import Path

from hermes_state import SessionDB
from layer import main


class HermesLayer:
    async def open(self, folder: Path) -> None:
        self._database = SessionDB(folder / "state.db")

    async def create(self, name: str) -> str:
        self._database.create_session(name, source="api_server", model="m")
        return name

    async def append(self, session: str, text: str) -> None:
        await asyncio.to_thread(self._database.append_message, session, "assistant", content=text)

    async def fill(self, session: str, texts: list[str]) -> None:
        self._database.replace_messages(session, [{"role": "assistant", "content": text} for text in texts])

    async def load(self, name: str) -> int:
        return len(self._database.get_messages_as_conversation(name))


if __name__ == "__main__":
    main(HermesLayer())
