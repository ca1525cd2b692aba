"""Google ADK's SqliteSessionService, the faster one of its two services on SQLite."""

import sqlite3
from pathlib import Path

from google.adk.events import Event
from google.adk.sessions import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai.types import Content, Part
from layer import main

APP, USER = "bench", "user"


class AdkLayer:
    async def open(self, folder: Path) -> None:
        self._service = SqliteSessionService(str(folder / "adk.db"))

    async def create(self, name: str) -> Session:
        return await self._service.create_session(app_name=APP, user_id=USER, session_id=name)

    async def append(self, session: Session, text: str) -> None:
        """Try again while the database is locked: many sessions at once wait longer for it than the service allows."""
        while True:
            event = Event(author="model", content=Content(role="model", parts=[Part(text=text)]))
            try:
                await self._service.append_event(session, event)
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise
            else:
                return

    async def fill(self, session: Session, texts: list[str]) -> None:
        for text in texts:
            await self.append(session, text)

    async def load(self, name: str) -> int:
        session = await self._service.get_session(app_name=APP, user_id=USER, session_id=name)
        return len(session.events)


if __name__ == "__main__":
    main(AdkLayer())
