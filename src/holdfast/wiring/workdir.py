"""Choose the directory in which the tools of a session work."""

import hashlib
import re
from pathlib import Path

from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.tools.sensitive_paths import WORK


def session_workdir(session: Session, recorded: str | None, settings: Settings) -> Path:
    """Return the session's working directory: as opened, else as configured, else its own directory in the home.

    Other directories in the home are never used: tools cannot reach them. The own directory belongs to the channel, so
    that consecutive sessions of a channel find the same files.
    """
    home, work = settings.home.resolve(), settings.home.resolve() / WORK
    for named in (recorded, settings.terminal.workdir):
        path = Path(named).expanduser() if named else None
        if (
            path is not None
            and path.is_dir()
            and (not path.resolve().is_relative_to(home) or path.resolve().is_relative_to(work))
        ):
            return path
    return settings.home / WORK / own_workdir_name(session)


def own_workdir_name(session: Session) -> str:
    """Return the name of the session's own working directory, which the sessions of a channel share."""
    channel = session.summary.channel
    if channel is None:
        return session.id
    readable = re.sub(r"[^A-Za-z0-9.-]+", "_", channel)[:60].strip(".")
    return f"{readable}-{hashlib.sha256(channel.encode()).hexdigest()[:8]}"
