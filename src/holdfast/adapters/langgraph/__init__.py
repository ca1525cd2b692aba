"""The checkpointer of LangGraph: `builder.compile(checkpointer=saver)` with `HoldfastSaver.from_url()`."""

from holdfast.adapters.langgraph.saver import HoldfastSaver

__all__ = ["HoldfastSaver"]
