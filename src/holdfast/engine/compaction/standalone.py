"""Summarizes messages that belong to no session. Nothing is stored: a request that is repeated starts again."""

from collections.abc import Sequence

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.plan import SUMMARY_LEAST, SUMMARY_MOST, SUMMARY_SHARE
from holdfast.engine.compaction.summarize import (
    ChunkStore,
    SummaryFailed,
    SummaryJob,
    WrittenSummary,
    write,
)
from holdfast.engine.context.tokens import estimate_messages
from holdfast.model.errors import ProviderFailed
from holdfast.model.message import Message
from holdfast.store.repos.summary_chunks import SummaryChunk


async def summarize_messages(
    compacting: CompactionSettings, messages: Sequence[Message], about: str = ""
) -> WrittenSummary:
    """Summarize all of the messages. Raises ProviderFailed if no model can and the settings allow no digest."""
    kept: dict[str, SummaryChunk] = {}

    async def get(request: str) -> SummaryChunk | None:
        return kept.get(request)

    async def put(request: str, chunk: SummaryChunk) -> None:
        kept[request] = chunk

    share = min(compacting.window // SUMMARY_SHARE, SUMMARY_MOST, estimate_messages(messages) // 3)
    job = SummaryJob("", messages, max(SUMMARY_LEAST, share), lambda: ("", messages), about)
    try:
        return await write(compacting.author, job, ChunkStore(get, put, lambda: False))
    except SummaryFailed as e:
        raise ProviderFailed(f"no summary could be written: {e}") from e
