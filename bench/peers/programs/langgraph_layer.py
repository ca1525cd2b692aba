"""LangGraph's SQLite checkpointer: one `update_state` for each message of a graph whose state is its messages."""

import asyncio
import sqlite3
from pathlib import Path

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from layer import main


class LangGraphLayer:
    async def open(self, folder: Path) -> None:
        saver = SqliteSaver(sqlite3.connect(folder / "langgraph.db", check_same_thread=False))
        builder = StateGraph(MessagesState)
        builder.add_node("say", lambda state: {})
        builder.add_edge(START, "say")
        self._graph = builder.compile(checkpointer=saver)

    async def create(self, name: str) -> dict[str, dict[str, str]]:
        return {"configurable": {"thread_id": name}}

    async def append(self, session: dict[str, dict[str, str]], text: str) -> None:
        await self.fill(session, [text])

    async def fill(self, session: dict[str, dict[str, str]], texts: list[str]) -> None:
        messages = {"messages": [AIMessage(text) for text in texts]}
        await asyncio.to_thread(self._graph.update_state, session, messages, "say")

    async def load(self, name: str) -> int:
        return len(self._graph.get_state(await self.create(name)).values["messages"])


if __name__ == "__main__":
    main(LangGraphLayer())
