"""All settings with their defaults and limits. `config` reads them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from holdfast.model.errors import Invalid
from holdfast.model.event import Source
from holdfast.model.mode import DEFAULT_MODE, Mode

Provider = Literal["openai", "anthropic", "local", "scripted"]
PROVIDERS: tuple[str, ...] = get_args(Provider)
DEFAULT_MODELS = {"openai": "openai:gpt-5.4-mini", "anthropic": "anthropic:claude-sonnet-5-5"}
"""The model of the first provider that has a key, in this order."""
EMBEDDED_MODEL = "local:smollm2"
"""The model used when no provider has a key."""
SESSION_HEADERS = ("x-session-affinity", "session-id", "thread-id", "x-openwebui-chat-id")
"""Headers in which known clients send the id of a conversation, most reliable first."""

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Hour = Annotated[int, Meta(ge=0, le=23)]
ResetMode = Literal["none", "idle", "daily", "both"]
Share = Annotated[float, Meta(gt=0, lt=1)]
ModelName = Annotated[str, Meta(pattern=rf"^({'|'.join(PROVIDERS)}):\S+$")]
StoreUrl = Annotated[str, Meta(pattern=r"^(sqlite:///.|postgres(ql)?://.)")]
Money = Annotated[float, Meta(ge=0, le=1_000_000)]
"""US dollars."""
WebUrl = Annotated[str, Meta(pattern=r"^https?://.")]


class Secret:
    """A secret string. Only `reveal` returns it, so that it does not get into a log or a listing by accident."""

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


class PlatformSettings(dict[str, object]):
    """The settings of a platform as in the file. Some are secrets, so only their names are displayed."""

    def __repr__(self) -> str:
        return f"Options({', '.join(self)})"


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of `config.toml`."""

    def __repr__(self) -> str:
        fields = ", ".join(f"{path}={_presentable(path, value)!r}" for path, value in _leaves(self))
        return f"{type(self).__name__}({fields})"


class ModelAccess(Section, frozen=True):
    """How to reach a provider. `api_key_env` names the variable that holds the key."""

    base_url: WebUrl | None = None
    api_key: Secret | None = None
    api_key_env: str | None = None


class ContextSettings(Section, frozen=True):
    window: Count | None = None
    """In tokens; by default the model's own, else 128,000."""
    compact_at: Share = 0.75
    keep_last: Annotated[int, Meta(ge=0)] = 8
    summary_model: ModelName | None = None
    summary_timeout_seconds: Seconds = 120
    on_summary_failure: Literal["digest", "refuse"] = "digest"


class LivenessSettings(Section, frozen=True):
    heartbeat_seconds: Seconds = 15
    stale_seconds: Seconds = 90
    sweep_seconds: Seconds = 60


class ResetRule(Section, frozen=True):
    """Overrides for one channel, or for all channels whose names begin with this name."""

    mode: ResetMode | None = None
    idle_minutes: Count | None = None
    at_hour: Hour | None = None
    timezone: str | None = None


class ResetSettings(Section, frozen=True):
    mode: ResetMode = "none"
    idle_minutes: Count = 120
    at_hour: Hour = 6
    timezone: str = "local"
    channels: dict[str, ResetRule] = {}


class ProcessSettings(Section, frozen=True):
    ttl_minutes: Count | None = None
    """By default the idle limit of sessions."""
    on_reset: Literal["stop", "keep", "warn"] = "warn"
    output_mb: Count = 64
    """How much of the newest output of each process is kept."""


class ApiSettings(Section, frozen=True):
    key: Secret | None = None
    """By default a generated key in `<home>/api-key`."""
    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8420
    idle_minutes: Count = 60
    session_headers: tuple[str, ...] = SESSION_HEADERS
    hosts: tuple[str, ...] = ()
    """Accepted host names in addition to those of this machine."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call this server from a browser; `*` for all."""
    max_body_mb: Count = 32
    server_tools: bool = True
    """Whether requests to the compatible APIs may use the server's own tools."""
    handover_seconds: Annotated[float, Meta(ge=0)] = 60
    """How long a worker that shuts down keeps streaming turns that another worker has taken over."""


class AgentSettings(Section, frozen=True):
    busy: Literal["queue", "steer", "interrupt"] = "queue"
    max_steps: Count = 90
    system: str | None = None
    approvals: Literal["ask", "allow", "deny"] = "ask"
    mode: Mode = DEFAULT_MODE
    """The permission mode of new sessions."""
    approval_seconds: Annotated[float, Meta(ge=0)] = 30
    """How long a question waits for an answer in a session that nobody watches."""
    turn_seconds: Seconds = 3600
    step_seconds: Seconds = 600
    max_depth: Annotated[int, Meta(ge=0, le=10)] = 2
    """How deep sub-agents may be nested; 0 turns delegation off."""
    max_children: Count = 10
    """How many sub-agents of one session may run at the same time."""
    child_seconds: Count = 1800
    """The time limit of a sub-agent; a call may set a shorter one."""
    titles: bool = True
    """Whether the model gives a chat a title after the first exchange."""
    rules: tuple[Source, ...] = ("chat", "run", "cron", "batch", "import")
    """The sources of sessions that are told the rules of the user and of the project in the working directory."""
    memory: tuple[Source, ...] = ("chat", "run", "import", "gateway")
    """The sources of sessions that remember facts for later sessions. Group chats never do."""
    environment: tuple[Source, ...] = ("chat", "run", "cron", "batch", "import", "gateway")
    """The sources of sessions that are told the date and the operating system, after the built-in system text."""


TerminalName = Literal["local", "bubblewrap", "container", "ssh"]
TERMINALS: tuple[str, ...] = get_args(TerminalName)


class BubblewrapSettings(Section, frozen=True):
    """The backend `bubblewrap`: a read-only system, a private `/tmp`, a writable working directory."""

    network: bool = True
    writable: tuple[str, ...] = ()
    """Further directories that commands may change."""


class ContainerSettings(Section, frozen=True):
    """The backend `container`: one container per session, by Docker or Podman."""

    engine: str = "auto"
    """The program: `auto` for podman, else docker; or a path."""
    engine_args: tuple[str, ...] = ()
    """Arguments before the engine's command, such as `--runtime`."""
    image: str | None = None
    mounts: tuple[str, ...] = ()
    """Further directories, as `HOST:CONTAINER` or `HOST:CONTAINER:ro`."""
    tmpfs: tuple[str, ...] = ("/tmp:size=256m",)  # noqa: S108 - in the container
    memory: str | None = "2g"
    cpus: Annotated[float, Meta(gt=0)] | None = None
    pids: Count | None = 512
    network: str = "none"
    """`none`, `bridge`, or the name of a network."""
    user: str | None = None
    extra_args: tuple[str, ...] = ()
    """Further arguments of `create`. Those that would weaken the isolation are refused."""


class SshSettings(Section, frozen=True):
    """The backend `ssh`: another machine."""

    host: str | None = None
    user: str | None = None
    port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    """A file with the keys of hosts; by default that of ssh. A host that is not in it is refused."""
    workdir: str | None = None
    """The working directory on the other machine; by default the user's home there."""


class Terminal(Section, frozen=True):
    """How and where tools run commands."""

    backend: TerminalName | None = None
    """Where commands run. If not set: `bubblewrap` for sessions of the API and of platforms where bwrap works, else `local`."""
    channels: dict[str, TerminalName] = {}
    """The backend of the sessions of a channel, such as `telegram:42`."""
    bubblewrap: BubblewrapSettings = BubblewrapSettings()
    container: ContainerSettings = ContainerSettings()
    ssh: SshSettings = SshSettings()

    sandbox: Literal["auto", "off", "required"] = "auto"
    """Whether commands run in a sandbox that hides the home directory: `auto` if bwrap works, `off` never, `required`
    refuses commands without it."""
    workdir: str | None = None
    """The default working directory of sessions of the API, schedules, batches and platforms.
    If not set, each has its own in `<home>/work`."""

    def missing_for(self, backend: str | None) -> str:
        """The setting without which a backend cannot be used; empty if none is missing."""
        if backend == "ssh" and self.ssh.host is None:
            return "[terminal.ssh] host"
        return "[terminal.container] image" if backend == "container" and self.container.image is None else ""

    def check(self, backend: str | None, given_as: str) -> None:
        """Raise Invalid if a backend that was chosen with `given_as` cannot be used."""
        if missing := self.missing_for(backend):
            raise Invalid(f"{given_as} {backend} cannot be used: {missing} is not set")


class ImageSettings(ModelAccess, frozen=True):
    """The service that makes images, by default that of the provider openai; and how chats show images."""

    enabled: Literal["auto", "on", "off"] = "auto"
    """Whether the model is offered `make_image`: `auto` if this table names a service, or there is a key for OpenAI itself."""
    model: str | None = None
    """By default `gpt-image-1`."""
    timeout_seconds: Seconds = 300
    terminal: Literal["auto", "kitty", "iterm2", "sixel", "off"] = "auto"
    """How a chat shows images in the terminal: `auto` if the environment names a terminal that can."""


class TranscriptionSettings(ModelAccess, frozen=True):
    """The service that writes down voice messages of messaging platforms; without one they are only stored."""

    model: str | None = None
    """By default `whisper-1`."""
    language: str | None = None
    """The language that is spoken, as an ISO code such as `de`; by default the service finds out."""
    max_mb: Annotated[float, Meta(gt=0)] = 25
    """Larger recordings are not transcribed."""
    timeout_seconds: Seconds = 60


class WebSettings(ModelAccess, frozen=True):
    """What the model may use of the web; `base_url` and the key are those of the search service."""

    fetch: bool = True
    """Whether the model is offered `fetch_url`."""
    trusted_hosts: tuple[str, ...] = ()
    """Hosts, as `host` or `host:port`, that `fetch_url` may reach although their addresses are private."""
    search_provider: Literal["brave", "tavily", "searxng"] | None = None
    """The service of `web_search`; without one the tool is not offered."""
    timeout_seconds: Seconds = 30


class ChatSettings(Section, frozen=True):
    """The chat in the terminal."""

    keys: Literal["emacs", "vim"] = "emacs"
    theme: Literal["auto", "dark", "light"] = "auto"


class RewindSettings(Section, frozen=True):
    """What a rewind restores besides the changes of the file tools."""

    snapshots: bool = False
    """Whether snapshots of the working directory are taken around terminal commands, to restore what they change."""
    max_files: Count = 50_000
    """A working directory with more files gets no snapshots."""


class GatewaySettings(Section, frozen=True):
    home_channel: str | None = None
    platforms: dict[str, PlatformSettings] = {}
    """The tables `[gateway.<platform>]`."""


class FleetSettings(Section, frozen=True):
    peers: tuple[WebUrl, ...] = ()
    """The password in a URL is the API key of that server. A peer without one is not queried."""
    allow_http: bool = False
    """Whether a key may be sent to a peer on another machine over plain HTTP."""


class TelemetrySettings(Section, frozen=True):
    """Export of traces, metrics and log records over OTLP. Needs the extra `otel`."""

    endpoint: WebUrl | None = None
    """The base URL of an OTLP/HTTP collector, such as `http://127.0.0.1:4318`; nothing is exported without one."""
    headers: dict[str, Secret] = {}
    """Request headers, such as the collector's key."""
    signals: tuple[Literal["traces", "metrics", "logs"], ...] = ("traces", "metrics", "logs")
    content: bool = False
    """Whether messages, arguments and results are exported, too."""
    service: str = "holdfast"
    """The name of the service in the exported data."""


class PriceSettings(Section, frozen=True):
    """The price of a model in US dollars per million tokens. Without prices of their own, cached tokens cost as much as other input."""

    input: Money
    output: Money
    cache_read: Money | None = None
    cache_write: Money | None = None


class BudgetSettings(Section, frozen=True):
    """Limits of spending in US dollars. A day is one of UTC."""

    session: Money | None = None
    """For each session with its sub-agents."""
    day: Money | None = None
    """For all sessions of the store together, per day."""
    user: Money | None = None
    """For each user, per day."""
    users: dict[str, Money] = {}
    """Limits of certain users, instead of `user`: for example `telegram:42`."""
    unpriced: Literal["refuse", "allow"] = "refuse"
    """What to do with calls whose cost nobody knows, while there is a limit."""
    reply_tokens: Count = 2000
    """The length of a reply that a reservation assumes."""


class GoalSettings(Section, frozen=True):
    """Goals that are set with `/goal`. A goal may have limits of its own."""

    max_turns: Annotated[int, Meta(ge=1, le=1000)] = 20
    """How many turns a goal may take before it is paused."""
    max_hours: Annotated[float, Meta(gt=0, le=24 * 365)] = 24
    """When a goal expires."""
    max_cost: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    """What calls of models may cost for a goal, in US dollars."""
    check_model: ModelName | None = None
    """The model that checks goals; by default the session's."""
    check_attempts: Count = 3
    """How many checks in a row may fail before a goal is paused."""


class BrokerSettings(Section, frozen=True):
    """Several users, each with a separate home directory and worker."""

    idle_minutes: Annotated[float, Meta(gt=0)] = 30
    homes: str | None = None
    """By default `<home>/users`."""
    first_uid: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """The first of the uids given to workers, one per user; with 0 all use the broker's uid.
    By default a broker that runs as root finds unused uids; without root there is none to give."""
    environment: tuple[str, ...] = ()
    """Environment variables passed to workers in addition to the usual ones."""
    requests: Count = 64
    """Concurrent requests of one user."""
    memory_mb: Count = 2048
    """Limit for each program of a user."""
    user_memory_mb: Count = 4096
    """Limit for all programs of a user together, where control groups are available."""
    user_disk_mb: Count = 10240
    """Limit for all files of a user together. Requests of a user over the limit are refused."""
    processes: Count = 512
    """Limit for programs and threads of one user, where each has a uid."""
    kb_per_second: Count | None = None
    """Transfer rate of one user, both directions together."""
    start_seconds: Seconds = 60
    stop_seconds: Seconds = 30


class McpOAuthSettings(Section, frozen=True):
    """The login to an MCP server, where discovery and registration are not enough."""

    grant: Literal["authorization_code", "client_credentials", "identity_assertion"] = "authorization_code"
    """A person logs in, the client logs in as itself, or an identity provider vouches for the person."""
    client_id: str | None = None
    client_secret: Secret | None = None
    client_auth: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic"
    client_metadata_url: Annotated[str, Meta(pattern=r"^https://[^/]+/.")] | None = None
    """A document that describes the client; its address is the client id where the server supports that."""
    private_key: Secret | None = None
    """In PEM format; signs the client's assertions instead of a secret."""
    signing_algorithm: str = "RS256"
    issuer: WebUrl | None = None
    """The only authorization server that is accepted."""
    scope: str | None = None
    redirect_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    """The port of the redirect address; 0 for any free one."""
    id_token_file: str | None = None
    """The identity provider's token for the person; another program renews the file."""
    idp_token_endpoint: WebUrl | None = None
    idp_client_id: str | None = None


class McpSettings(Section, frozen=True):
    """An MCP server: a command to start, or a URL. `trust` lets its tools run without approval."""

    command: tuple[str, ...] = ()
    url: WebUrl | None = None
    env: dict[str, Secret] = {}
    headers: dict[str, Secret] = {}
    trust: bool = False
    oauth: McpOAuthSettings = McpOAuthSettings()


class Settings(Section, frozen=True):
    home: Path
    store: StoreUrl
    model: ModelName
    fallback_models: tuple[ModelName, ...] = ()
    log: Literal["debug", "info", "warning", "error"] = "info"
    models: dict[Provider, ModelAccess] = {}
    context: ContextSettings = ContextSettings()
    liveness: LivenessSettings = LivenessSettings()
    reset: ResetSettings = ResetSettings()
    processes: ProcessSettings = ProcessSettings()
    api: ApiSettings = ApiSettings()
    agent: AgentSettings = AgentSettings()
    terminal: Terminal = Terminal()
    images: ImageSettings = ImageSettings()
    transcription: TranscriptionSettings = TranscriptionSettings()
    web: WebSettings = WebSettings()
    chat: ChatSettings = ChatSettings()
    rewind: RewindSettings = RewindSettings()
    gateway: GatewaySettings = GatewaySettings()
    fleet: FleetSettings = FleetSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    broker: BrokerSettings = BrokerSettings()
    budget: BudgetSettings = BudgetSettings()
    goals: GoalSettings = GoalSettings()
    prices: dict[str, PriceSettings] = {}
    mcp: dict[str, McpSettings] = {}
    warnings: tuple[str, ...] = ()
    """Valid but risky settings; `holdfast doctor` prints these warnings."""

    @property
    def store_path(self) -> Path | None:
        """The file of a SQLite store; None for PostgreSQL. A path is relative to the home directory."""
        path = self.store.removeprefix("sqlite:///")
        return None if path == self.store else self.home / Path(path).expanduser()

    @property
    def process_ttl_minutes(self) -> int:
        return self.processes.ttl_minutes or self.reset.idle_minutes

    def access(self, provider: Provider) -> ModelAccess:
        """The access settings of a provider; the defaults if it is not configured."""
        return self.models.get(provider, ModelAccess())

    def image_access(self) -> ModelAccess | None:
        """How to reach the service that makes images; None if the tool is not offered.

        The key of the provider openai is sent only to the URL of that provider.
        """
        images, openai = self.images, self.access("openai")
        own = bool(images.base_url or images.api_key or images.model)
        if images.enabled == "off":
            return None
        if images.enabled == "auto" and not own and (openai.api_key is None or openai.base_url is not None):
            return None
        return self._media_access(images)

    def transcription_access(self) -> ModelAccess | None:
        """How to reach the service that transcribes; None if its table names neither a URL nor a key nor a model."""
        given = self.transcription
        return self._media_access(given) if given.base_url or given.api_key or given.model else None

    def _media_access(self, given: ModelAccess) -> ModelAccess:
        """The service of a table; without a URL, that of the provider openai."""
        if given.base_url is not None:
            return ModelAccess(base_url=given.base_url, api_key=given.api_key)
        openai = self.access("openai")
        return ModelAccess(base_url=openai.base_url, api_key=given.api_key or openai.api_key)

    @property
    def services(self) -> tuple[ModelAccess, ...]:
        """Everything that is reached with a URL and a key."""
        return (self.images, self.transcription, self.web, *self.models.values())

    def secrets(self) -> list[str]:
        """Every secret in the settings, for code that must redact them."""
        found = [value.reveal() for _, value in _leaves(self) if isinstance(value, Secret)]
        options = [value for table in self.gateway.platforms.values() for value in table.values()]
        addresses = (self.telemetry.endpoint, *(service.base_url for service in self.services))
        urls = [self.store, *self.fleet.peers, *(url for url in addresses if url)]
        passwords = [password for url in urls if (password := urlsplit(url).password)]
        return [*found, *(text for text in options if isinstance(text, str)), *passwords]

    def display_values(self) -> dict[str, object]:
        """Every setting by its name, for display: a secret only as `set` or `not set`."""
        return {path: _presentable(path, value) for path, value in _leaves(self)}


INTERNAL = ("home", "warnings")
"""Fields of Settings that are not allowed in the file."""
USER_NAMED = {"models": "<provider>.", "mcp": "<name>.", "prices": "<model>.", "channels": "<channel>."}
"""Tables whose keys the user chooses."""


def list_setting_names(section: type[msgspec.Struct] = Settings, prefix: str = "") -> list[str]:
    """Every setting that the file may contain, as `table.name`."""
    found: list[str] = []
    for name, hint in get_type_hints(section).items():
        inner = get_args(hint)[1] if get_origin(hint) is dict else hint
        if name in INTERNAL:
            continue
        if inner is PlatformSettings:
            found.append(f"{prefix}<platform>")
        elif is_section(inner):
            found += list_setting_names(inner, f"{prefix}{name}.{USER_NAMED.get(name, '')}")
        else:
            found.append(prefix + name)
    return found


def is_section(hint: object) -> bool:
    return isinstance(hint, type) and issubclass(hint, Section)


def mask_password(url: str) -> str:
    """The URL without its password, for display."""
    url = re.sub(r"(?<=://)([^/@:]*):.*@", r"\1:***@", url)
    return re.sub(r"(?<=[?&])((?:ssl)?password)=[^&]*", r"\1=***", url)


def _leaves(section: msgspec.Struct, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Each setting with its value, including those of providers that are not configured."""
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
        case PlatformSettings():
            return sorted(value)
        case Path():
            return str(value)
        case tuple():
            return [_presentable(path, item) for item in value]
        case str() if "://" in value:
            return mask_password(value)
        case _:
            return value
