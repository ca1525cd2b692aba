"""Builds the settings of compaction: the context window of a model, and who writes summaries."""

from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.compaction.summarize import SummaryAuthor
from holdfast.engine.context.budget import DEFAULT_WINDOW
from holdfast.providers.router import ModelRouter
from holdfast.settings import Settings

LOCAL_SUMMARY_WINDOW = 2_048
"""Tokens that a local model on a busy CPU can summarise well within the time limit."""


def compaction_settings(settings: Settings, router: ModelRouter, model: str) -> CompactionSettings:
    """Build the settings for the contexts of a model's sessions."""
    given = settings.context
    authors = (given.summary_model or model, model, *settings.fallback_models)

    def author_window(name: str) -> int:
        """How much a model that writes a summary is given to read at once."""
        window = (given.window if name == model else None) or router.window(name) or DEFAULT_WINDOW
        return min(window, LOCAL_SUMMARY_WINDOW) if name.startswith("local:") else window

    return CompactionSettings(
        window=given.window or router.window(model) or DEFAULT_WINDOW,
        compact_at=given.compact_at,
        keep_last=given.keep_last,
        author=SummaryAuthor(
            models=tuple(dict.fromkeys(authors)),
            ask=router.ask_alone,
            window_of=author_window,
            timeout_seconds=given.summary_timeout_seconds,
            on_failure=given.on_summary_failure,
        ),
    )


def context_window(settings: Settings, model: str) -> int:
    """Return the context window of sessions with that model in tokens."""
    return compaction_settings(settings, ModelRouter(settings), model or settings.model).window
