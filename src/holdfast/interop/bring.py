"""Imports files and folders: tells what each is, takes what is in it, and says of each session what became of it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from holdfast.interop import export, imports, recognise
from holdfast.interop.adopt import adopt
from holdfast.interop.foreign import Foreign
from holdfast.interop.recognise import Source
from holdfast.interop.tally import Adopted
from holdfast.model.errors import HoldfastError, Invalid, NotSaved
from holdfast.model.ids import SESSION, Ids
from holdfast.model.times import Clock
from holdfast.store.database import Database, Transaction
from holdfast.store.transfer import Merged

AT_ONCE = 16
"""Sessions on their way at the same time: enough that they share the flushes of the disk."""
Progress = Callable[[int, int], None]
"""Told how many bytes have been read and how many there are."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one session of a file, or of a file in which there are none."""

    file: str
    format: str = ""
    taken: Adopted | None = None
    merged: Merged | None = None
    """Of an export of ours."""
    error: HoldfastError | None = None
    ignored: str = ""
    """Why a file of a folder was passed over."""


class Given(msgspec.Struct, frozen=True):
    """What the user named, and where it lies: standard input and pipes are files of our own by now."""

    name: str
    path: Path


class _Rehearsed(Exception):
    """Undoes a transaction that was only meant to tell what it would do."""

    def __init__(self, merged: Merged) -> None:
        self.merged = merged


class Bringing:
    """One import of some files."""

    def __init__(self, database: Database, clock: Clock, ids: Ids, *, as_new: bool, rehearse: bool) -> None:
        self._database, self._clock, self._ids = database, clock, ids
        self._as_new, self._rehearse = as_new, rehearse

    async def go(self, given: list[Given], on_progress: Progress) -> AsyncIterator[Result]:
        """Take everything. One file that cannot be imported stops none of the others; a store that cannot save stops all."""
        sources: list[tuple[str, Source]] = []
        for one in given:
            for result in self._look(one, sources):
                yield result
        total, done = sum(source.size for _, source in sources), 0
        for name, source in sources:
            async for result, share in self._source(name, source):
                on_progress(done + round(share * source.size), total)
                yield result
                if isinstance(result.error, NotSaved):
                    return
            done += source.size
            on_progress(done, total)

    def _look(self, one: Given, sources: list[tuple[str, Source]]) -> list[Result]:
        """Put what is understood behind the others; what is not is the answer."""
        results: list[Result] = []
        before = len(sources)
        try:
            for found in recognise.sources(one.path):
                if isinstance(found, Source):
                    is_itself = found.path == one.path
                    sources.append((one.name if is_itself else str(found.path), found))
                else:
                    results.append(Result(file=str(found[0]), ignored=str(found[1])))
            if len(sources) == before:
                results.append(Result(file=one.name, error=Invalid(f"nothing in {one.name} is {recognise.KNOWN}")))
        except HoldfastError as e:
            results.append(Result(file=one.name, error=type(e)(str(e).replace(str(one.path), one.name))))
        return results

    async def _source(self, name: str, source: Source) -> AsyncIterator[tuple[Result, float]]:
        if source.format == export.FORMAT:
            yield await self._own(name, source), 1.0
            return
        if self._as_new:
            error = Invalid(f"--as-new is for exports of Holdfast; {name} is of {source.format}")
            yield Result(file=name, format=source.format, error=error), 1.0
            return
        wave: list[Foreign] = []
        try:
            for session in source.sessions():
                if len(wave) >= AT_ONCE or session.parent is not None:  # a parent comes before its branches
                    for item in await self._wave(name, wave):
                        yield item
                    wave = []
                wave.append(session)
        except HoldfastError as e:
            for item in await self._wave(name, wave):
                yield item
            yield Result(file=name, format=source.format, error=_named(e, name)), 1.0
            return
        for item in await self._wave(name, wave):
            yield item

    async def _wave(self, name: str, wave: list[Foreign]) -> list[tuple[Result, float]]:
        results = await asyncio.gather(*(self._foreign(name, session) for session in wave))
        return [(result, session.share) for result, session in zip(results, wave, strict=True)]

    async def _foreign(self, name: str, session: Foreign) -> Result:
        try:
            taken = await adopt(self._database, session, at=self._clock.now(), rehearse=self._rehearse)
        except HoldfastError as e:
            return Result(file=name, format=session.format, error=_named(e, session.origin))
        return Result(file=name, format=session.format, taken=taken)

    async def _own(self, name: str, source: Source) -> Result:
        """An export of ours: whole or not at all."""
        try:
            parsed = imports.parse(imports.Again(source.path), name)
            merged = await self._database.write(self._merge, parsed, self._ids.make(SESSION))
        except _Rehearsed as e:
            merged = e.merged
        except HoldfastError as e:
            return Result(file=name, format=source.format, error=e)
        return Result(file=name, format=source.format, merged=merged)

    def _merge(self, tx: Transaction, parsed: imports.Log, new_id: str) -> Merged:
        at = self._clock.now()
        merged = imports.store_as(tx, parsed, new_id, at=at) if self._as_new else imports.store(tx, parsed, at=at)
        if self._rehearse:
            raise _Rehearsed(merged)
        return merged


def _named(error: HoldfastError, name: str) -> HoldfastError:
    return error if name in str(error) else type(error)(f"{name}: {error}")
