"""A graph of LangGraph that counts until it is killed. Prints the number of each run that has returned."""

import itertools
import sys
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver


def make_graph(saver: HoldfastSaver) -> Any:
    builder = StateGraph(MessagesState)
    builder.add_node("answer", lambda state: {"messages": [("ai", "reply " + state["messages"][-1].content)]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


def main(url: str, name: str, first: int) -> None:
    graph = make_graph(HoldfastSaver(url))
    for number in itertools.count(first):
        config = {"configurable": {"thread_id": name}}
        graph.invoke({"messages": [("user", str(number))]}, config, durability="sync")
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
