"""The private `/tmp` of sessions in bubblewrap: a directory in Holdfast's home, removed when the session has ended."""

import asyncio
import os
import shutil
from pathlib import Path

from holdfast.model.errors import NotFound
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions

TMP = "tmp"
"""The directory in the home."""


def private_tmp(home: Path, session_id: str) -> Path:
    return home / TMP / session_id


async def remove_unused(home: Path, database: Database) -> None:
    """Remove the directories of sessions that have ended or are in the trash. Raises OSError.

    Those of unknown sessions stay: they may belong to another store that uses this home.
    """
    found = await asyncio.to_thread(_list, home)
    for session_id in await database.read(_unused, found) if found else []:
        await asyncio.to_thread(shutil.rmtree, private_tmp(home, session_id))


def _list(home: Path) -> list[str]:
    try:
        return sorted(os.listdir(home / TMP))  # noqa: PTH208 - only names are needed
    except FileNotFoundError:
        return []


def _unused(tx: Transaction, session_ids: list[str]) -> list[str]:
    return [session_id for session_id in session_ids if _has_ended(tx, session_id)]


def _has_ended(tx: Transaction, session_id: str) -> bool:
    try:
        summary = sessions.get(tx, session_id).summary
    except NotFound:
        return False
    return summary.ended_at is not None or summary.trashed_at is not None
