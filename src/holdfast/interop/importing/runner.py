"""Imports files and folders: detects the format of each file, imports its sessions and reports each outcome."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from holdfast.interop.export import jsonl
from holdfast.interop.importing import detect, own_export
from holdfast.interop.importing.detect import ImportSource
from holdfast.interop.importing.facts import ForeignSession
from holdfast.interop.importing.report import ImportOutcome
from holdfast.interop.importing.sync import import_session
from holdfast.model.errors import HoldfastError, Invalid, NotSaved
from holdfast.model.ids import SESSION, Ids
from holdfast.model.times import Clock
from holdfast.store.database import Database, Transaction
from holdfast.store.repos.log_import import MergeResult
from holdfast.tasks import run_all

CONCURRENT_SESSIONS = 16
"""Sessions imported concurrently: enough that they share group commits."""
Progress = Callable[[int, int], None]
"""Called with the bytes read and the bytes in total."""


class ImportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one session of a file, or for a file without sessions."""

    file: str
    format: str = ""
    taken: ImportOutcome | None = None
    merged: MergeResult | None = None
    """For an export of Holdfast."""
    error: HoldfastError | None = None
    ignored: str = ""
    """Why a file of a folder was skipped."""


class ImportInput(msgspec.Struct, frozen=True):
    """What the user named, and its path: standard input and pipes have been copied to a file."""

    name: str
    path: Path


class _DryRunRollback(Exception):
    """Rolls back the transaction of a dry run."""

    def __init__(self, merged: MergeResult) -> None:
        self.merged = merged


class ImportRun:
    """One import of some files."""

    def __init__(self, database: Database, clock: Clock, ids: Ids, *, as_new: bool, dry_run: bool) -> None:
        self._database, self._clock, self._ids = database, clock, ids
        self._as_new, self._dry_run = as_new, dry_run

    async def run(self, given: list[ImportInput], on_progress: Progress) -> AsyncIterator[ImportResult]:
        """Import everything. A file that cannot be imported does not stop the others; a store that cannot save stops all."""
        sources: list[tuple[str, ImportSource]] = []
        for one in given:
            for result in self._detect(one, sources):
                yield result
        total, done = sum(source.size for _, source in sources), 0
        for name, source in sources:
            async for result, share in self._import_source(name, source):
                on_progress(done + round(share * source.size), total)
                yield result
                if isinstance(result.error, NotSaved):
                    return
            done += source.size
            on_progress(done, total)

    def _detect(self, one: ImportInput, sources: list[tuple[str, ImportSource]]) -> list[ImportResult]:
        """Append the sources that were detected; return the files that were not."""
        results: list[ImportResult] = []
        before = len(sources)
        try:
            for found in detect.find_sources(one.path):
                if isinstance(found, ImportSource):
                    is_itself = found.path == one.path
                    sources.append((one.name if is_itself else str(found.path), found))
                else:
                    results.append(ImportResult(file=str(found[0]), ignored=str(found[1])))
            if len(sources) == before:
                results.append(ImportResult(file=one.name, error=Invalid(f"nothing in {one.name} is {detect.KNOWN}")))
        except HoldfastError as e:
            results.append(ImportResult(file=one.name, error=type(e)(str(e).replace(str(one.path), one.name))))
        return results

    async def _import_source(self, name: str, source: ImportSource) -> AsyncIterator[tuple[ImportResult, float]]:
        if source.format == jsonl.FORMAT:
            yield await self._import_export(name, source), 1.0
            return
        if self._as_new:
            error = Invalid(f"--as-new works only for exports of Holdfast; {name} has the format {source.format}")
            yield ImportResult(file=name, format=source.format, error=error), 1.0
            return
        batch: list[ForeignSession] = []
        try:
            for session in source.sessions():
                if (
                    len(batch) >= CONCURRENT_SESSIONS or session.parent is not None
                ):  # a parent is imported before its branches
                    for item in await self._import_batch(name, batch):
                        yield item
                    batch = []
                batch.append(session)
        except HoldfastError as e:
            for item in await self._import_batch(name, batch):
                yield item
            yield ImportResult(file=name, format=source.format, error=_with_name(e, name)), 1.0
            return
        for item in await self._import_batch(name, batch):
            yield item

    async def _import_batch(self, name: str, batch: list[ForeignSession]) -> list[tuple[ImportResult, float]]:
        results = await run_all(*(self._import_foreign(name, session) for session in batch))
        return [(result, session.share) for result, session in zip(results, batch, strict=True)]

    async def _import_foreign(self, name: str, session: ForeignSession) -> ImportResult:
        try:
            taken = await import_session(self._database, session, at=self._clock.now(), dry_run=self._dry_run)
        except HoldfastError as e:
            return ImportResult(file=name, format=session.format, error=_with_name(e, session.origin))
        return ImportResult(file=name, format=session.format, taken=taken)

    async def _import_export(self, name: str, source: ImportSource) -> ImportResult:
        """Import an export of Holdfast: completely or not at all."""
        try:
            parsed = own_export.verify_export(own_export.RepeatableLines(source.path), name)
            merged = await self._database.write(self._merge, parsed, self._ids.make(SESSION))
        except _DryRunRollback as e:
            merged = e.merged
        except HoldfastError as e:
            return ImportResult(file=name, format=source.format, error=e)
        return ImportResult(file=name, format=source.format, merged=merged)

    def _merge(self, tx: Transaction, parsed: own_export.ExportedLog, new_id: str) -> MergeResult:
        at = self._clock.now()
        merged = own_export.store_as(tx, parsed, new_id, at=at) if self._as_new else own_export.store(tx, parsed, at=at)
        if self._dry_run:
            raise _DryRunRollback(merged)
        return merged


def _with_name(error: HoldfastError, name: str) -> HoldfastError:
    return error if name in str(error) else type(error)(f"{name}: {error}")
