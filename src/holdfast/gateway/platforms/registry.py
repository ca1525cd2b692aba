"""The list of platforms. Each is imported when it is used."""

from collections.abc import Mapping
from importlib import import_module

from holdfast.gateway.port import Connect
from holdfast.installation import command_to_add
from holdfast.model.errors import Invalid

KINDS = {
    "webhook": "",
    "email": "email",
    "telegram": "telegram",
    "matrix": "matrix",
    "slack": "slack",
    "discord": "discord",
    "dingtalk": "dingtalk",
    "qq": "qq",
}
"""Each kind, and the extra that installs its client library."""
MODULES = {"email": "email.platform", "matrix": "matrix.login"}
"""The module of a kind, if it differs from the name of the kind."""


def connect(kind: str, others: Mapping[str, Connect] | None = None) -> Connect:
    """Return the function that opens a platform of this kind. Raises Invalid if it is unknown or its library is missing."""
    if others is not None and kind in others:
        return others[kind]
    if kind not in KINDS:
        raise Invalid(f"unknown platform {kind!r}; known: {', '.join(KINDS)}")
    try:
        module = import_module(f"holdfast.gateway.platforms.{MODULES.get(kind, kind)}")
    except ModuleNotFoundError as e:
        if e.name is not None and e.name.startswith("holdfast"):
            raise
        raise Invalid(f"[gateway.{kind}] needs a client library; run: {command_to_add(KINDS[kind])}") from e
    opened: Connect = module.connect
    return opened


def is_installed(kind: str) -> bool:
    """Whether the client library of a known platform is installed."""
    try:
        connect(kind)
    except Invalid:
        return False
    return True


def find_missing_part(kind: str, table: Mapping[str, object]) -> str:
    """What a platform whose client library is installed lacks nevertheless; empty if it is complete."""
    if kind != "matrix" or table.get("encryption") is False:
        return ""
    from nio.crypto import ENCRYPTION_ENABLED

    return "" if ENCRYPTION_ENABLED else "encrypted rooms"
