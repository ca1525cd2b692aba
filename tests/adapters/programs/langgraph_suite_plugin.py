"""Pytest plugin for the suite of langgraph-checkpoint: its InMemoryStore becomes HoldfastStore, each object with a store of its own."""

import itertools
import os
from pathlib import Path
from typing import Any

import langgraph.store.memory

from holdfast.adapters.langgraph import HoldfastStore

number = itertools.count()


class SubstitutedStore(HoldfastStore):
    def __init__(self, **options: Any) -> None:
        super().__init__(f"sqlite:///{Path(os.environ['HOLDFAST_HOME']) / str(next(number))}.db", **options)
        self.index_config = options.get("index")


langgraph.store.memory.InMemoryStore = SubstitutedStore
