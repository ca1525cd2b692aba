"""The garbage collector of the command line: it does not run while a command starts or exits.

Nothing that is imported is garbage, and looking for some takes a tenth of the time of a start.
"""

import gc

STARTING_OBJECTS = 200_000
"""New objects before a collection while a command starts: more than any start creates. A command that never calls
`resume` still collects its garbage, in larger portions."""
RUNNING_THRESHOLDS = (10_000, 10, 10)
"""Python's own are (700, 10, 10). With hundreds of streams that took a tenth of the time: most objects live for one chunk, and
fewer of them are still in use, and have to be looked at, after 10,000 new ones than after 700."""


def postpone() -> None:
    gc.set_threshold(STARTING_OBJECTS)


def resume() -> None:
    """The start is over. Collections do not look at the objects that exist now."""
    gc.freeze()
    gc.set_threshold(*RUNNING_THRESHOLDS)


def skip_last() -> None:
    """Exit without looking for garbage in everything that was imported. Call it when nothing is left to do."""
    gc.freeze()
