"""Reads the settings once: defaults, then `config.toml`, then the environment. No other module reads them.

An unknown or malformed setting is an error that lists the known ones. `docs/settings.md` describes each.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from holdfast.model.errors import Invalid
from holdfast.model.process import MARKER
from holdfast.model.secret_names import is_secret
from holdfast.model.text import parse_decimal
from holdfast.setting_errors import explain
from holdfast.settings import (
    DEFAULT_MODELS,
    EMBEDDED_MODEL,
    INTERNAL,
    GatewaySettings,
    McpSettings,
    ModelAccess,
    PlatformSettings,
    PriceSettings,
    ResetRule,
    Secret,
    Settings,
    is_section,
)

__all__ = ["ENVIRONMENT", "FILE", "KNOWN_VARIABLES", "Settings", "environment", "load", "read"]

T = TypeVar("T")
PREFIX = "HOLDFAST_"
TEST_PREFIX = "HOLDFAST_TEST_"
"""Variables of the test suite, which are not settings."""
FILE = "config.toml"
OWN_SECRETS = ("HOLDFAST_API_KEY", "HOLDFAST_STORE")
"""Our variables that may contain a secret."""

ENVIRONMENT = {
    "HOLDFAST_STORE": "store",
    "HOLDFAST_MODEL": "model",
    "HOLDFAST_LOG": "log",
    "HOLDFAST_CONTEXT_TOKENS": "context.window",
    "HOLDFAST_API_KEY": "api.key",
    "HOLDFAST_WORKDIR": "terminal.workdir",
    "OPENAI_BASE_URL": "models.openai.base_url",
    "OPENAI_API_KEY": "models.openai.api_key",
    "ANTHROPIC_API_KEY": "models.anthropic.api_key",
}
"""The setting that each variable overrides. `HOLDFAST_HOME` is read first, because it locates the file."""
OF_CLIENTS = ("HOLDFAST_URL", MARKER)
"""Variables that are not ours to read: the address for clients, and the mark of processes that commands have started."""
SECRET_FILES = {
    f"{name}_FILE": name
    for name in ("HOLDFAST_STORE", "HOLDFAST_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "PGPASSWORD")
}
"""Variables that name a file with the value of another, as container engines provide secrets."""
KNOWN_VARIABLES = (
    "HOLDFAST_HOME",
    *(name for name in (*ENVIRONMENT, *SECRET_FILES) if name.startswith(PREFIX)),
)


_removed: dict[str, str] = {}
"""Variables that `forget_secrets` has removed from the environment of this process."""


def load(home: Path | None = None) -> Settings:
    """Read the settings of this process."""
    return read(environment(), home)


def forget_secrets(settings: Settings) -> None:
    """Remove secrets from the environment of this process, so that other programs of the same user cannot read them.

    Only for our own processes: a library must not change the environment of its host program.
    """
    from holdfast.process_memory import deny_inspection, erase_initial_environment

    deny_inspection()
    texts = [text for text in settings.secrets() if text]
    named = {access.api_key_env for access in settings.services}
    for name, value in list(os.environ.items()):
        is_known_public = name.startswith(PREFIX) and name not in OWN_SECRETS
        if (is_secret(name) and not is_known_public) or name in named or value in texts:
            _removed[name] = value
            del os.environ[name]
    erase_initial_environment(_removed)


def read(env: Mapping[str, str], home: Path | None = None) -> Settings:
    """Combine the file in the home directory with the environment. An empty variable counts as unset.

    Raises Invalid for a misspelt or malformed setting; the message lists the known ones.
    """
    env = {name: value for name, value in env.items() if value}
    _refuse_unknown_variables(env)
    env |= _read_secret_files(env)
    home = _home(env, home)
    return _read(env, home, home / FILE)


def _read_secret_files(env: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for variable, name in SECRET_FILES.items():
        if variable not in env:
            continue
        if name in env:
            raise Invalid(f"both {name} and {variable} are set; unset one of them")
        try:
            found[name] = Path(env[variable]).read_text("utf-8").strip()
        except UnicodeDecodeError as e:
            raise Invalid(f"environment variable {variable}: {env[variable]} is not UTF-8 text") from e
        except OSError as e:
            raise Invalid(f"environment variable {variable}: cannot read {env[variable]}: {e.strerror}") from e
        if not found[name]:
            raise Invalid(f"environment variable {variable}: {env[variable]} is empty")
    return found


def check(file: Path) -> None:
    """Raise Invalid if a file is not a valid `config.toml`. A missing file is valid."""
    _read({}, file.parent, file)


def _read(env: Mapping[str, str], home: Path, file: Path) -> Settings:
    data = _parse(file)
    _refuse_unknown(data, Settings, str(file))
    warnings = _readable_secrets(file, data)
    given = _overlay(data, env)
    warnings += _resolve_keys(data, env)
    data.setdefault("store", f"sqlite:///{home}/holdfast.db")
    data["store"] = _with_password(data["store"], env)
    data.setdefault("model", _default_model(data))
    data |= {"home": home, "warnings": warnings, "gateway": _as_gateway(data.get("gateway", {}))}
    # One at a time, because msgspec does not report in which of several tables it found an error.
    for chosen, kind in (("models", ModelAccess), ("mcp", McpSettings), ("prices", PriceSettings)):
        for name, table in _tables(data.get(chosen)):
            _convert(table, kind, given, file, f"{chosen}.{name}.")
    for name, table in _tables(_table(data.get("reset")).get("channels")):
        _convert(table, ResetRule, given, file, f"reset.channels.{name}.")
    settings = _convert(data, Settings, given, file)
    _check(settings, str(file))
    return settings


def _with_password(store: object, env: Mapping[str, str]) -> object:
    """Add the password from the environment to the URL of a PostgreSQL store: the driver reads it only after `forget_secrets`."""
    password = env.get("PGPASSWORD")
    if not isinstance(store, str) or not store.startswith(("postgresql://", "postgres://")) or not password:
        return store
    parts = urlsplit(store)
    if parts.password or "password=" in parts.query:
        return store
    query = f"{parts.query}&password={quote(password, safe='')}".lstrip("&")
    return urlunsplit(parts._replace(query=query))


def _convert(table: Mapping[str, Any], kind: type[T], given: Mapping[str, str], file: Path, prefix: str = "") -> T:
    try:
        return msgspec.convert(table, kind, dec_hook=_decode_special)
    except msgspec.ValidationError as e:
        raise Invalid(explain(str(e), prefix, given, str(file))) from e


def workdir() -> Path:
    """The current directory."""
    try:
        return Path.cwd()
    except FileNotFoundError as e:
        raise Invalid("the working directory no longer exists; change to another one") from e


def _home(env: Mapping[str, str], given: Path | None) -> Path:
    try:
        if given is not None or "HOLDFAST_HOME" in env:
            home = (given or Path(env["HOLDFAST_HOME"])).expanduser()
        else:
            home = (Path(env["HOME"]) if "HOME" in env else Path.home()) / ".holdfast"
    except RuntimeError as e:
        raise Invalid("no home directory found; set one with --home or HOLDFAST_HOME") from e
    try:
        str(home).encode()
    except UnicodeEncodeError as e:
        raise Invalid(f"the home directory {str(home)!a} has a name that is not valid UTF-8; use another one") from e
    return home if home.is_absolute() else workdir() / home


def _parse(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")  # some editors write a byte order mark
    except FileNotFoundError:
        return {}
    except NotADirectoryError as e:
        raise Invalid(f"the home directory {path.parent} is a file") from e
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
        if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and name not in (*KNOWN_VARIABLES, *OF_CLIENTS):
            raise Invalid(f"unknown environment variable {name}; known variables: {', '.join(KNOWN_VARIABLES)}")


def _refuse_unknown(table: Mapping[str, Any], section: type[msgspec.Struct], file: str, path: str = "") -> None:
    """Raise Invalid for the first name in the file that is not a setting."""
    if not table:
        return
    hints = get_type_hints(section)
    known = [name for name in hints if name not in (*INTERNAL, "platforms")]
    for name, value in table.items():
        if section is GatewaySettings and isinstance(value, dict):
            continue  # a platform
        if name not in known:
            raise Invalid(f"{file}: unknown setting {path}{name}; known settings: {', '.join(known)}")
        for key, inner, kind in _sections_in(value, hints[name]):
            _refuse_unknown(inner, kind, file, f"{path}{name}.{key}")


def _sections_in(value: object, hint: Any) -> Iterator[tuple[str, Mapping[str, Any], type[msgspec.Struct]]]:
    """The sections nested in a value, each with the prefix of its names."""
    if isinstance(value, dict) and is_section(hint):
        yield "", value, hint
    elif isinstance(value, dict) and get_origin(hint) is dict and is_section(get_args(hint)[1]):
        kind = get_args(hint)[1]
        yield from ((f"{key}.", inner, kind) for key, inner in value.items() if isinstance(inner, dict))


def _overlay(data: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Override the file's data with the environment. Returns the variable that each setting came from."""
    given = {}
    for variable, path in ENVIRONMENT.items():
        if variable in env:
            *tables, name = path.split(".")
            target = data
            for table in tables:
                inner = target.setdefault(table, {})
                target = inner if isinstance(inner, dict) else {}
            text = env[variable]
            number = parse_decimal(text) if path == "context.window" else None
            target[name] = text if number is None else number
            given[path] = variable
    return given


def _resolve_keys(data: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, ...]:
    """Fill in the keys that the file names by their variable. Returns a warning for each variable that is not set."""
    warnings = []
    found = [(f"models.{provider}", access) for provider, access in _tables(data.get("models"))]
    for path, access in [*found, *((name, _table(data.get(name))) for name in ("images", "transcription", "web"))]:
        variable = access.get("api_key_env")
        if isinstance(variable, str) and variable in env:
            access["api_key"] = env[variable]
        elif isinstance(variable, str):
            warnings.append(f"{path}.api_key_env names {variable}, which is not set")
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


def _decode_special(kind: type, value: object) -> object:
    """Decode the types that msgspec does not know."""
    if isinstance(value, kind):
        return value
    if kind is PlatformSettings and isinstance(value, dict):
        return PlatformSettings(value)
    if kind is Secret and isinstance(value, str) and value:
        return Secret(value)
    raise ValueError("Expected a non-empty string")


def _readable_secrets(path: Path, data: Mapping[str, Any]) -> tuple[str, ...]:
    """A warning if the file contains secrets and other users can read it."""
    tables = ("models", "images", "transcription", "web", "api", "gateway", "mcp", "telemetry")
    names = [name for name in tables if _contains_secret(data.get(name))]
    if not names or not path.stat().st_mode & 0o077:
        return ()
    return (f"{path} contains secrets ({', '.join(names)}) and other users can read it; run: chmod 600 {path}",)


def _contains_secret(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    secret_names = ("api_key", "key", "env", "headers", "token", "password", "secret")
    return any(name.endswith(secret_names) or _contains_secret(inner) for name, inner in value.items())


def _check(settings: Settings, file: str) -> None:
    """Check constraints between settings."""
    live = settings.liveness
    if live.stale_seconds < 2 * live.heartbeat_seconds:
        raise Invalid(f"{file}: liveness.stale_seconds must be at least twice liveness.heartbeat_seconds")
    for name, server in settings.mcp.items():
        if bool(server.command) == bool(server.url):
            raise Invalid(f"{file}: mcp.{name} needs either a command or a url")
    terminal = settings.terminal
    for name, backend in _terminals(settings):
        if missing := terminal.missing_for(backend):
            raise Invalid(f"{file}: {name} {backend} needs {missing}")
    web = settings.web
    if web.search_provider == "searxng" and web.base_url is None:
        raise Invalid(f"{file}: web.search_provider searxng needs web.base_url, the address of the instance")
    if web.search_provider in ("brave", "tavily") and web.api_key is None and web.api_key_env is None:
        raise Invalid(f"{file}: web.search_provider {web.search_provider} needs web.api_key or web.api_key_env")
    home = settings.gateway.home_channel
    if home is not None and not all(home.partition(":")):
        raise Invalid(f"{file}: gateway.home_channel must be PLATFORM:CHAT, for example telegram:42")
    _check_zone(settings.reset.timezone, f"{file}: reset.timezone")
    for name, rule in settings.reset.channels.items():
        _check_zone(rule.timezone or "local", f"{file}: reset.channels.{name}.timezone")


def _terminals(settings: Settings) -> Iterator[tuple[str, str | None]]:
    """The settings that name a terminal backend, with their values."""
    yield "terminal.backend", settings.terminal.backend
    for channel, backend in settings.terminal.channels.items():
        yield f"terminal.channels.{channel}", backend
    for platform, options in settings.gateway.platforms.items():
        yield f"gateway.{platform}.terminal", str(options.get("terminal"))


def _check_zone(name: str, where: str) -> None:
    if name == "local":
        return
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise Invalid(f"{where}: unknown time zone {name!r}; use local or a name such as Europe/Berlin") from e


def environment() -> Mapping[str, str]:
    """The complete initial environment of this process, including secrets. Tools pass on only a part of it."""
    return {**os.environ, **_removed}
