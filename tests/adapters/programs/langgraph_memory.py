"""Puts values into a store of LangGraph until it is killed. Prints the number of each put that has returned."""

import itertools
import sys

from holdfast.adapters.langgraph import HoldfastStore

NAMESPACE = ("memories", "bo")


def main(url: str, name: str, first: int) -> None:
    store = HoldfastStore(url)
    for number in itertools.count(first):
        store.put(NAMESPACE, f"{name}-{number}", {"n": number})
        store.put(("counters",), name, {"n": number})
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
