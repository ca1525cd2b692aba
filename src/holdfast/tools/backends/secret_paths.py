"""Directories and files with the user's keys and passwords, which sandboxes and containers hide."""

import os
from pathlib import Path

FOLDERS = (".ssh", ".aws", ".gnupg", ".kube", ".docker", ".azure", ".config/gcloud", ".config/gh", ".password-store")
"""In the user's home directory, as `FILES`."""
FILES = (".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass")
SYSTEM_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/shadow-", "/etc/gshadow-")
"""Files that only root can read."""


def find_secret_folders(user_home: Path) -> list[str]:
    """The real paths of those that exist."""
    return sorted({os.path.realpath(user_home / name) for name in FOLDERS if (user_home / name).is_dir()})


def find_secret_files(user_home: Path) -> list[str]:
    paths = [*(user_home / name for name in FILES), *(Path(name) for name in SYSTEM_FILES)]
    return sorted({os.path.realpath(path) for path in paths if path.is_file()})
