"""Collects what the status line shows."""

from collections.abc import Callable
from pathlib import Path

from holdfast.cli.chat.output.git_branch import GitBranch
from holdfast.cli.chat.output.status_line import StatusFacts, abbreviate
from holdfast.cli.chat.watcher import SessionWatcher
from holdfast.settings import Settings
from holdfast.wiring.compaction import context_window


class ChatStatus:
    """For one chat."""

    def __init__(self, settings: Settings, workdir: Path, monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._directory = abbreviate(workdir)
        self._branch = GitBranch(workdir, monotonic)
        self._windows: dict[str, int] = {}

    def facts(self, watcher: SessionWatcher, *, model: str, mode: str, busy: str, keys: str) -> StatusFacts:
        """The facts of this moment. `model` and `mode` are those of a session that does not exist yet."""
        usage = watcher.usage
        summary = None if watcher.state is None else watcher.state.session.summary
        if summary is not None:
            model, mode = summary.model or model, summary.mode
        return StatusFacts(
            model=model,
            mode=mode,
            goal=watcher.goal_state,
            directory=self._directory,
            branch=self._branch.name(),
            share=usage.context / self._window(model) if usage.context else 0.0,
            tokens=usage.tokens,
            cost=usage.cost,
            title=(summary.title or "") if summary is not None else "new session",
            epoch=0 if summary is None else summary.epoch,
            processes=watcher.processes,
            busy=busy,
            keys=keys,
        )

    def _window(self, model: str) -> int:
        """The context window of the model, looked up once per model."""
        if model not in self._windows:
            self._windows[model] = context_window(self._settings, model)
        return self._windows[model]
