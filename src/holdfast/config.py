"""Reads the settings once: defaults, then `config.toml`, then the environment. Nothing else reads either.

An unknown or malformed setting stops the start and names the known ones. `docs/settings.md` describes each.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.process import MARKER
from holdfast.settings import (
    DEFAULT_MODELS,
    EMBEDDED_MODEL,
    INTERNAL,
    PROVIDERS,
    Gateway,
    Mcp,
    ModelAccess,
    Options,
    ResetRule,
    Secret,
    Settings,
    is_section,
)

__all__ = ["ENVIRONMENT", "FILE", "KNOWN_VARIABLES", "Settings", "environment", "load", "read"]

T = TypeVar("T")
PREFIX = "HOLDFAST_"
NOT_OURS = "HOLDFAST_TEST_"
"""Names the test suite keeps for itself."""
FILE = "config.toml"

ENVIRONMENT = {
    "HOLDFAST_STORE": "store",
    "HOLDFAST_MODEL": "model",
    "HOLDFAST_LOG": "log",
    "HOLDFAST_CONTEXT_TOKENS": "context.window",
    "HOLDFAST_API_KEY": "api.key",
    "OPENAI_BASE_URL": "models.openai.base_url",
    "OPENAI_API_KEY": "models.openai.api_key",
    "ANTHROPIC_API_KEY": "models.anthropic.api_key",
}
"""The setting that each variable overrides. `HOLDFAST_HOME` is read before all of them: it says where the file is."""
KNOWN_VARIABLES = ("HOLDFAST_HOME", *(name for name in ENVIRONMENT if name.startswith(PREFIX)))


def load(home: Path | None = None) -> Settings:
    """The settings of this process."""
    return read(os.environ, home)


def read(env: Mapping[str, str], home: Path | None = None) -> Settings:
    """The settings that an environment and the file in the home add up to. An empty variable counts as unset.

    Raises Invalid, and names the setting and the known ones, for anything that is misspelt or malformed.
    """
    env = {name: value for name, value in env.items() if value}
    _refuse_unknown_variables(env)
    home = _home(env, home)
    return _read(env, home, home / FILE)


def check(file: Path) -> None:
    """Raise Invalid for a file that could not be the settings of a home. One that is not there could."""
    _read({}, file.parent, file)


def _read(env: Mapping[str, str], home: Path, file: Path) -> Settings:
    data = _parse(file)
    _refuse_unknown(data, Settings, str(file))
    warnings = _readable_secrets(file, data)
    given = _overlay(data, env)
    warnings += _resolve_keys(data, env)
    data.setdefault("store", f"sqlite:///{home}/holdfast.db")
    data.setdefault("model", _default_model(data))
    data |= {"home": home, "warnings": warnings, "gateway": _as_gateway(data.get("gateway", {}))}
    # One by one, because msgspec does not say in which of several tables it found a fault.
    for chosen, kind in (("models", ModelAccess), ("mcp", Mcp)):
        for name, table in _tables(data.get(chosen)):
            _convert(table, kind, given, file, f"{chosen}.{name}.")
    for name, table in _tables(_table(data.get("reset")).get("channels")):
        _convert(table, ResetRule, given, file, f"reset.channels.{name}.")
    settings = _convert(data, Settings, given, file)
    _check(settings, str(file))
    return settings


def _convert(table: Mapping[str, Any], kind: type[T], given: Mapping[str, str], file: Path, prefix: str = "") -> T:
    try:
        return msgspec.convert(table, kind, dec_hook=_special)
    except msgspec.ValidationError as e:
        raise Invalid(_explain(str(e), prefix, given, str(file))) from e


def workdir() -> Path:
    """Where the program was started."""
    try:
        return Path.cwd()
    except FileNotFoundError as e:
        raise Invalid("the working folder is no longer there; change to another one") from e


def _home(env: Mapping[str, str], given: Path | None) -> Path:
    try:
        if given is not None or "HOLDFAST_HOME" in env:
            home = (given or Path(env["HOLDFAST_HOME"])).expanduser()
        else:
            home = (Path(env["HOME"]) if "HOME" in env else Path.home()) / ".holdfast"
    except RuntimeError as e:
        raise Invalid("there is no home folder to keep sessions in; name one with --home or HOLDFAST_HOME") from e
    try:
        str(home).encode()
    except UnicodeEncodeError as e:
        raise Invalid(f"the name of the home {str(home)!a} is no text, so nothing can be kept there") from e
    return home if home.is_absolute() else workdir() / home


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")  # some editors put a mark before the first line
    except FileNotFoundError:
        return {}
    except NotADirectoryError as e:
        raise Invalid(f"the home {path.parent} is a file, not a folder") from e
    except UnicodeDecodeError as e:
        raise Invalid(f"{path} is not UTF-8 text") from e
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise Invalid(f"{path} is not TOML: {e}") from e


def _refuse_unknown_variables(env: Mapping[str, str]) -> None:
    for name in env:
        if name.startswith(PREFIX) and not name.startswith(NOT_OURS) and name not in (*KNOWN_VARIABLES, MARKER):
            raise Invalid(f"the environment has an unknown setting {name}; known are {', '.join(KNOWN_VARIABLES)}")


def _refuse_unknown(table: Mapping[str, Any], section: type[msgspec.Struct], file: str, path: str = "") -> None:
    """Raise Invalid for the first name in the file that its section does not have."""
    if not table:
        return
    hints = get_type_hints(section)
    known = [name for name in hints if name not in (*INTERNAL, "platforms")]
    for name, value in table.items():
        if section is Gateway and isinstance(value, dict):
            continue  # a platform
        if name not in known:
            raise Invalid(f"{file} has an unknown setting {path}{name}; known here are {', '.join(known)}")
        for key, inner, kind in _sections_in(value, hints[name]):
            _refuse_unknown(inner, kind, file, f"{path}{name}.{key}")


def _sections_in(value: object, hint: Any) -> Iterator[tuple[str, Mapping[str, Any], type[msgspec.Struct]]]:
    """The tables within a value that are sections again, with what the names in them begin with."""
    if isinstance(value, dict) and is_section(hint):
        yield "", value, hint
    elif isinstance(value, dict) and get_origin(hint) is dict and is_section(get_args(hint)[1]):
        kind = get_args(hint)[1]
        yield from ((f"{key}.", inner, kind) for key, inner in value.items() if isinstance(inner, dict))


def _overlay(data: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Write what the environment says over the file's data; which variable gave which setting."""
    given = {}
    for variable, path in ENVIRONMENT.items():
        if variable in env:
            *tables, name = path.split(".")
            target = data
            for table in tables:
                inner = target.setdefault(table, {})
                target = inner if isinstance(inner, dict) else {}
            text = env[variable]
            target[name] = int(text) if path == "context.window" and text.isdecimal() else text
            given[path] = variable
    return given


def _resolve_keys(data: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, ...]:
    """Fill in the keys that the file names by their variable; a warning for each that it names in vain."""
    warnings = []
    for provider, access in _tables(data.get("models")):
        variable = access.get("api_key_env")
        if isinstance(variable, str) and variable in env:
            access["api_key"] = env[variable]
        elif isinstance(variable, str):
            warnings.append(f"models.{provider}.api_key_env names {variable}, which is not set")
    return tuple(warnings)


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _tables(value: object) -> list[tuple[str, dict[str, Any]]]:
    if not isinstance(value, dict):
        return []
    return [(name, inner) for name, inner in value.items() if isinstance(inner, dict)]


def _as_gateway(table: object) -> object:
    if not isinstance(table, dict):
        return table
    platforms = dict(_tables(table))
    return {name: value for name, value in table.items() if name not in platforms} | {"platforms": platforms}


def _default_model(data: Mapping[str, Any]) -> str:
    with_key = {provider for provider, access in _tables(data.get("models")) if access.get("api_key")}
    return next((model for provider, model in DEFAULT_MODELS.items() if provider in with_key), EMBEDDED_MODEL)


def _special(kind: type, value: object) -> object:
    if isinstance(value, kind):
        return value
    if kind is Options and isinstance(value, dict):
        return Options(value)
    if kind is Secret and isinstance(value, str) and value:
        return Secret(value)
    raise ValueError("Expected a text that is not empty")


def _readable_secrets(path: Path, data: Mapping[str, Any]) -> tuple[str, ...]:
    """A warning if the file holds secrets and others can read it."""
    names = [name for name in ("models", "api", "gateway", "mcp") if _holds_secret(data.get(name))]
    if not names or not path.stat().st_mode & 0o077:
        return ()
    return (f"{path} holds secrets ({', '.join(names)}) and others can read it; do: chmod 600 {path}",)


def _holds_secret(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    telling = ("api_key", "key", "env", "headers", "token", "password", "secret")
    return any(name.endswith(telling) or _holds_secret(inner) for name, inner in value.items())


_COMPLAINT = re.compile(r"(?P<what>.*?)( - at (`key` in )?`\$\.?(?P<path>.*)`)?", re.DOTALL)


def _explain(message: str, prefix: str, given: Mapping[str, str], file: str) -> str:
    """msgspec's complaint in terms of what the person wrote, with what would have been accepted."""
    found = _COMPLAINT.fullmatch(message)
    assert found is not None, "the expression fits any text"
    what, path = found["what"], prefix + (found["path"] or "").replace("gateway.platforms", "gateway")
    hint = _hint_at(path)
    if "regex" in what and (path == "model" or path.startswith(("fallback_models", "context.summary_model"))):
        what = f"expected provider:name, where the provider is one of {', '.join(PROVIDERS)}"
    elif path == "store":
        what = "expected sqlite:///path or postgresql://…"
    elif "regex" in what:
        what = "expected a URL that begins with http:// or https://"
    elif get_origin(hint) is Literal:
        what = f"expected one of {', '.join(get_args(hint))}"
    elif path == "models":
        what = f"expected tables named after the providers: {', '.join(PROVIDERS)}"
    where = f"the environment's {given[path]}" if path in given else f"{file}: {path}"
    return f"{where}: {what[:1].lower()}{what[1:]}".replace("`", "")


def _hint_at(path: str) -> Any:
    hint: Any = Settings
    for name in path.split("."):
        hint = get_type_hints(hint).get(name) if is_section(hint) else None
    return hint


def _check(settings: Settings, file: str) -> None:
    """What no single setting can tell."""
    live = settings.liveness
    if live.stale_seconds < 2 * live.heartbeat_seconds:
        raise Invalid(f"{file}: liveness.stale_seconds must be at least twice liveness.heartbeat_seconds")
    for name, server in settings.mcp.items():
        if bool(server.command) == bool(server.url):
            raise Invalid(f"{file}: mcp.{name} needs either a command or a url")
    home = settings.gateway.home_channel
    if home is not None and not all(home.partition(":")):
        raise Invalid(f"{file}: gateway.home_channel must be a platform and a chat, such as telegram:42")
    _check_zone(settings.reset.timezone, f"{file}: reset.timezone")
    for name, rule in settings.reset.channels.items():
        _check_zone(rule.timezone or "local", f"{file}: reset.channels.{name}.timezone")


def _check_zone(name: str, where: str) -> None:
    if name == "local":
        return
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise Invalid(f"{where}: expected local or a name such as Europe/Berlin, not {name!r}") from e


def environment() -> Mapping[str, str]:
    """The whole environment, for the programs we start."""
    return dict(os.environ)
