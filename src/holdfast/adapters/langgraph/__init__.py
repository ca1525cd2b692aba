"""LangGraph's checkpointer, `builder.compile(checkpointer=saver)`, and its store, `builder.compile(store=store)`."""

from holdfast.adapters.requirement import missing

try:
    from holdfast.adapters.langgraph.saver import HoldfastSaver
    from holdfast.adapters.langgraph.store import HoldfastStore
except ImportError as e:
    raise missing("langgraph", e) from e

__all__ = ["HoldfastSaver", "HoldfastStore"]
