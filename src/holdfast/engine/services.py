"""The services that every part of the engine uses."""

from dataclasses import dataclass, field

from holdfast.engine.streaming.bus import Bus
from holdfast.engine.streaming.input_watch import InputWatch
from holdfast.model.ids import Ids
from holdfast.model.mode import DEFAULT_MODE, Mode
from holdfast.model.process_identity import Identity
from holdfast.model.times import Clock
from holdfast.store.database import Database


@dataclass(frozen=True, slots=True)
class EngineServices:
    """One per worker, shared by all parts of its engine."""

    database: Database
    clock: Clock
    ids: Ids
    bus: Bus
    worker_id: str
    identity: Identity
    """The process of this worker."""
    mode: Mode = DEFAULT_MODE
    """The permission mode of new sessions."""
    inputs: InputWatch = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", InputWatch(self.database, self.worker_id))
