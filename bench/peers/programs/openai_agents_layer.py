"""openai-agents' SQLiteSession."""

from pathlib import Path

from agents import SQLiteSession
from layer import main


class AgentsLayer:
    async def open(self, folder: Path) -> None:
        self._path = folder / "agents.db"

    async def create(self, name: str) -> SQLiteSession:
        return SQLiteSession(name, self._path)

    async def append(self, session: SQLiteSession, text: str) -> None:
        await session.add_items([{"role": "assistant", "content": text}])

    async def fill(self, session: SQLiteSession, texts: list[str]) -> None:
        await session.add_items([{"role": "assistant", "content": text} for text in texts])

    async def load(self, name: str) -> int:
        return len(await SQLiteSession(name, self._path).get_items())


if __name__ == "__main__":
    main(AgentsLayer())
