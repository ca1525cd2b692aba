"""LangGraph's checkpointer, `builder.compile(checkpointer=saver)`, and its store, `builder.compile(store=store)`."""

from holdfast.adapters.langgraph.saver import HoldfastSaver
from holdfast.adapters.langgraph.store import HoldfastStore

__all__ = ["HoldfastSaver", "HoldfastStore"]
