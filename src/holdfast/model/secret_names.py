"""Recognises environment variables that hold secrets by their names."""

import re
from collections.abc import Mapping

SECRET = re.compile(
    r"(OPENAI|ANTHROPIC|HOLDFAST)_.*|(.*_)?(API)?(KEY|KEY_ID|TOKEN|SECRET|CREDENTIALS|PAT|DSN)|.*(PASSWORD|PASSWD|PASSPHRASE)|"
    r"(DATABASE|REDIS|MONGO.*|POSTGRES.*)_URL",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    return SECRET.fullmatch(name) is not None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a command may see: all except those whose names look like passwords or keys."""
    return {name: value for name, value in environment.items() if not is_secret(name)}
