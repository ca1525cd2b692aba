"""What can be set, with its defaults and limits. How it is read is the business of `config`."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

Provider = Literal["openai", "anthropic", "local", "scripted"]
PROVIDERS: tuple[str, ...] = get_args(Provider)
DEFAULT_MODELS = {"openai": "openai:gpt-5.4-mini", "anthropic": "anthropic:claude-sonnet-5-5"}
"""The model of the first provider that has a key, in this order."""
EMBEDDED_MODEL = "local:smollm2"
"""What is used when no provider has a key."""
SESSION_HEADERS = ("x-session-affinity", "session-id", "thread-id", "x-openwebui-chat-id")
"""What known clients send by themselves to name a conversation, in the order of trust."""

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Hour = Annotated[int, Meta(ge=0, le=23)]
ResetMode = Literal["none", "idle", "daily", "both"]
Share = Annotated[float, Meta(gt=0, lt=1)]
ModelName = Annotated[str, Meta(pattern=rf"^({'|'.join(PROVIDERS)}):\S+$")]
StoreUrl = Annotated[str, Meta(pattern=r"^(sqlite:///.|postgres(ql)?://.)")]
WebUrl = Annotated[str, Meta(pattern=r"^https?://.")]


class Secret:
    """A text that is handed out only by name, so that it does not slip into a log or a listing."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(set)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class Options(dict[str, object]):
    """Settings of a platform as they stand in the file. Some are secrets, so only their names are shown."""

    def __repr__(self) -> str:
        return f"Options({', '.join(self)})"


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{path}={_presentable(path, value)!r}" for path, value in _leaves(self))
        return f"{type(self).__name__}({fields})"


class ModelAccess(Section, frozen=True):
    """How to reach a provider. `api_key_env` names the variable that holds the key."""

    base_url: WebUrl | None = None
    api_key: Secret | None = None
    api_key_env: str | None = None


class Context(Section, frozen=True):
    window: Count | None = None
    """In tokens; without it the model's own, else 128,000."""
    compact_at: Share = 0.75
    keep_last: Annotated[int, Meta(ge=0)] = 8
    summary_model: ModelName | None = None
    summary_timeout_seconds: Seconds = 120
    on_summary_failure: Literal["digest", "refuse"] = "digest"


class Liveness(Section, frozen=True):
    heartbeat_seconds: Seconds = 15
    stale_seconds: Seconds = 90
    sweep_seconds: Seconds = 60


class ResetRule(Section, frozen=True):
    """What holds for one channel, or for all whose names begin so; the rest is as for all."""

    mode: ResetMode | None = None
    idle_minutes: Count | None = None
    at_hour: Hour | None = None
    timezone: str | None = None


class Reset(Section, frozen=True):
    mode: ResetMode = "none"
    idle_minutes: Count = 120
    at_hour: Hour = 6
    timezone: str = "local"
    channels: dict[str, ResetRule] = {}


class Processes(Section, frozen=True):
    ttl_minutes: Count | None = None
    """Without it, the idle limit of the session."""
    on_reset: Literal["stop", "keep", "warn"] = "warn"
    output_mb: Count = 64
    """Of the output of each process, the newest so many megabytes are kept."""


class Api(Section, frozen=True):
    key: Secret | None = None
    """Without it, one is made and kept in `<home>/api-key`."""
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8420
    idle_minutes: Count = 60
    session_headers: tuple[str, ...] = SESSION_HEADERS
    hosts: tuple[str, ...] = ()
    """Names under which the server may be addressed, beside those of this machine."""
    cors_origins: tuple[str, ...] = ()
    """Pages of other servers that a browser may let talk to this one; `*` for all."""
    max_body_mb: Count = 32
    handover_seconds: Annotated[float, Meta(ge=0)] = 60
    """How long a worker that leaves stays for clients whose turns another one goes on with."""


class Agent(Section, frozen=True):
    busy: Literal["queue", "steer", "interrupt"] = "queue"
    max_steps: Count = 90
    system: str | None = None
    approvals: Literal["ask", "allow", "deny"] = "ask"
    approval_seconds: Annotated[float, Meta(ge=0)] = 30
    """How long a question waits where nobody sits before the session."""
    turn_seconds: Seconds = 3600
    step_seconds: Seconds = 600
    titles: bool = True
    """Whether chats get a title by themselves after the first exchange."""


class Gateway(Section, frozen=True):
    home_channel: str | None = None
    platforms: dict[str, Options] = {}
    """The tables `[gateway.<platform>]`."""


class Fleet(Section, frozen=True):
    peers: tuple[WebUrl, ...] = ()


class Broker(Section, frozen=True):
    """Many users, each with a home and a worker of their own."""

    idle_minutes: Annotated[float, Meta(gt=0)] = 30
    homes: str | None = None
    """Without it, `<home>/users`."""
    first_uid: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """Each user's worker runs under a uid of its own, from this one on; with 0 all share the broker's.
    Without it, a broker that is root finds uids that nobody uses; others cannot give out any."""
    environment: tuple[str, ...] = ()
    """Variables that workers are given beside the usual ones."""
    requests: Count = 64
    """Open requests of one user."""
    memory_mb: Count = 2048
    """Of each program of a user."""
    user_memory_mb: Count = 4096
    """Of all programs of a user together, where there are control groups."""
    user_disk_mb: Count = 10240
    """Of all files of a user together. Whoever has more is not served until there are fewer."""
    processes: Count = 512
    """Programs and threads of one user, where each has a uid."""
    kb_per_second: Count | None = None
    """What is carried for one user, in both directions together."""
    start_seconds: Seconds = 60
    stop_seconds: Seconds = 30


class Mcp(Section, frozen=True):
    """An MCP server: a command that is started, or a URL. `trust` lets its tools run without being asked about."""

    command: tuple[str, ...] = ()
    url: WebUrl | None = None
    env: dict[str, Secret] = {}
    headers: dict[str, Secret] = {}
    trust: bool = False


class Settings(Section, frozen=True):
    home: Path
    store: StoreUrl
    model: ModelName
    fallback_models: tuple[ModelName, ...] = ()
    log: Literal["debug", "info", "warning", "error"] = "info"
    models: dict[Provider, ModelAccess] = {}
    context: Context = Context()
    liveness: Liveness = Liveness()
    reset: Reset = Reset()
    processes: Processes = Processes()
    api: Api = Api()
    agent: Agent = Agent()
    gateway: Gateway = Gateway()
    fleet: Fleet = Fleet()
    broker: Broker = Broker()
    mcp: dict[str, Mcp] = {}
    warnings: tuple[str, ...] = ()
    """What is allowed but unwise; `holdfast doctor` shows it."""

    @property
    def store_path(self) -> Path | None:
        """The file of a SQLite store; None for another kind. A relative path starts at the home."""
        path = self.store.removeprefix("sqlite:///")
        return None if path == self.store else self.home / Path(path).expanduser()

    @property
    def process_ttl_minutes(self) -> int:
        return self.processes.ttl_minutes or self.reset.idle_minutes

    def access(self, provider: Provider) -> ModelAccess:
        """How to reach a provider, configured or not."""
        return self.models.get(provider, ModelAccess())

    def secrets(self) -> list[str]:
        """Every secret text among the settings, for those who must keep them out of sight."""
        found = [value.reveal() for _, value in _leaves(self) if isinstance(value, Secret)]
        options = [value for table in self.gateway.platforms.values() for value in table.values()]
        urls = [self.store, *self.fleet.peers, *(access.base_url or "" for access in self.models.values())]
        passwords = [password for url in urls if (password := urlsplit(url).password)]
        return [*found, *(text for text in options if isinstance(text, str)), *passwords]

    def shown(self) -> dict[str, object]:
        """Every setting by its path, for people: of a secret only whether it is set."""
        return {path: _presentable(path, value) for path, value in _leaves(self)}


INTERNAL = ("home", "warnings")
"""Fields of Settings that cannot stand in the file."""
CHOSEN = {"models": "<provider>.", "mcp": "<name>.", "channels": "<channel>."}
"""Tables whose inner names the person chooses."""


def paths(section: type[msgspec.Struct] = Settings, prefix: str = "") -> list[str]:
    """Every setting the file may hold, as `table.name`."""
    found: list[str] = []
    for name, hint in get_type_hints(section).items():
        inner = get_args(hint)[1] if get_origin(hint) is dict else hint
        if name in INTERNAL:
            continue
        if inner is Options:
            found.append(f"{prefix}<platform>")
        elif is_section(inner):
            found += paths(inner, f"{prefix}{name}.{CHOSEN.get(name, '')}")
        else:
            found.append(prefix + name)
    return found


def is_section(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Section)


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    url = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?<=[?&])((?:ssl)?password)=[^&]*", r"\1=***", url)


def _leaves(section: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Each setting with its value; those of absent providers too, so that one sees what is not set."""
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if name == "models" and isinstance(section, Settings):
            value = dict.fromkeys(DEFAULT_MODELS, ModelAccess()) | value
        if isinstance(value, msgspec.Struct):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, dict):
            yield from _leaves_of_table(value, f"{prefix}{name}.")
        elif name != "warnings":
            yield prefix + name, value


def _leaves_of_table(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, msgspec.Struct):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _presentable(path: str, value: object) -> object:
    match value:
        case Secret():
            return "set"
        case None if path.endswith((".api_key", "api.key")):
            return "not set"
        case Options():
            return sorted(value)
        case Path():
            return str(value)
        case tuple():
            return [_presentable(path, item) for item in value]
        case str() if "://" in value:
            return without_password(value)
        case _:
            return value
