"""The platforms there are, each loaded when it is used."""

from collections.abc import Mapping
from importlib import import_module

from holdfast.gateway.port import Connect
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
"""Each kind, and the extra that brings its client library."""


def connect(kind: str, others: Mapping[str, Connect] | None = None) -> Connect:
    """How to open a platform of that kind. Raises Invalid for one that is not known, or whose library is missing."""
    if others is not None and kind in others:
        return others[kind]
    if kind not in KINDS:
        raise Invalid(f"there is no platform {kind!r}; known are {', '.join(KINDS)}")
    try:
        module = import_module(f"holdfast.gateway.{kind}")
    except ModuleNotFoundError as e:
        if e.name is not None and e.name.startswith("holdfast"):
            raise
        raise Invalid(f"[gateway.{kind}] needs the extra {KINDS[kind]!r}: pip install 'holdfast[{KINDS[kind]}]'") from e
    opened: Connect = module.connect
    return opened
