"""Holdfast's SQLite store."""

from pathlib import Path

from layer import main

from bench import stores, texts
from holdfast.store.repos import log, sessions
from holdfast.store.repos.leases import Lease


class HoldfastLayer:
    async def open(self, folder: Path) -> None:
        self._db = await stores.new_store(folder / "holdfast.db")
        self._ids: dict[str, str] = {}

    async def create(self, name: str) -> Lease:
        self._ids[name] = stores.session_id(len(self._ids))
        return await self._db.write(stores.hold, len(self._ids) - 1)

    async def append(self, session: Lease, text: str) -> None:
        await self._db.write(log.append, session, [texts.reply(text)], at=stores.now())

    async def fill(self, session: Lease, messages: list[str]) -> None:
        await stores.fill(self._db, session, [texts.reply(text) for text in messages])

    async def load(self, name: str) -> int:
        session = await self._db.read(sessions.get, self._ids[name])
        return len(await self._db.read(log.read_complete, session))


if __name__ == "__main__":
    main(HoldfastLayer())
