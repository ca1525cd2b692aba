"""Settings: defaults, then the file, then the environment; an invalid setting stops the start and is named."""

import re
from pathlib import Path

import pytest

from holdfast import config
from holdfast.model.errors import Invalid
from holdfast.settings import DEFAULT_MODELS, EMBEDDED_MODEL, Secret, Settings
from holdfast.wiring.engine import reset_policies
from holdfast.wiring.web_tools import make_web_tools


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def read(home: Path, text: str = "", **env: str) -> Settings:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(text)
    return config.read(env, home)


def test_nothing_needs_to_be_set(home: Path) -> None:
    settings = config.read({}, home)

    assert settings.store == f"sqlite:///{home}/holdfast.db"
    assert settings.store_path == home / "holdfast.db"
    assert settings.model == EMBEDDED_MODEL
    assert (settings.context.compact_at, settings.context.keep_last, settings.context.window) == (0.75, 8, None)
    assert (settings.context.summary_timeout_seconds, settings.context.on_summary_failure) == (120, "digest")
    live = settings.liveness
    assert (live.heartbeat_seconds, live.stale_seconds, live.sweep_seconds) == (15, 90, 60)
    reset = settings.reset
    assert (reset.mode, reset.idle_minutes, reset.at_hour, reset.timezone) == ("none", 120, 6, "local")
    assert (settings.processes.on_reset, settings.process_ttl_minutes) == ("warn", 120)
    assert (settings.api.host, settings.api.port, settings.api.idle_minutes) == ("127.0.0.1", 8420, 60)
    assert settings.api.session_headers[0] == "x-session-affinity"
    agent = settings.agent
    assert (agent.busy, agent.max_steps, agent.approvals, agent.turn_seconds) == ("queue", 90, "ask", 3600)
    assert not home.exists()


def test_the_process_reads_its_own_environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("HOLDFAST_HOME", str(home))
    monkeypatch.setenv("HOLDFAST_MODEL", "scripted:echo")

    settings = config.load()

    assert (settings.home, settings.model) == (home, "scripted:echo")


def test_the_home_is_the_option_then_the_variable_then_the_default(tmp_path: Path) -> None:
    env = {"HOME": "/somebody", "HOLDFAST_HOME": str(tmp_path / "variable")}

    assert config.read(env, tmp_path / "option").home == tmp_path / "option"
    assert config.read(env).home == tmp_path / "variable"
    assert config.read({"HOME": "/somebody"}).home == Path("/somebody/.holdfast")
    assert config.read({"HOME": "/somebody"}, Path("here")).home.is_absolute()


@pytest.mark.parametrize(
    ("variable", "value", "text", "get"),
    [
        ("HOLDFAST_STORE", "sqlite:///a.db", 'store = "sqlite:///b.db"', lambda s: s.store),
        ("HOLDFAST_MODEL", "scripted:a", 'model = "scripted:b"', lambda s: s.model),
        ("HOLDFAST_LOG", "debug", 'log = "error"', lambda s: s.log),
        ("HOLDFAST_CONTEXT_TOKENS", "1000", "[context]\nwindow = 2000", lambda s: str(s.context.window)),
        ("HOLDFAST_WORKDIR", "/a", '[terminal]\nworkdir = "/b"', lambda s: s.terminal.workdir),
        ("HOLDFAST_API_KEY", "aaaaaa", '[api]\nkey = "bbbbbb"', lambda s: s.api.key.reveal()),
        (
            "OPENAI_BASE_URL",
            "http://a",
            '[models.openai]\nbase_url = "http://b"',
            lambda s: s.access("openai").base_url,
        ),
        ("OPENAI_API_KEY", "a", '[models.openai]\napi_key = "b"', lambda s: s.access("openai").api_key.reveal()),
        (
            "ANTHROPIC_API_KEY",
            "a",
            '[models.anthropic]\napi_key = "b"',
            lambda s: s.access("anthropic").api_key.reveal(),
        ),
    ],
)
def test_the_environment_wins_over_the_file_and_an_empty_variable_does_not_count(
    home: Path, variable: str, value: str, text: str, get
) -> None:  # type: ignore[no-untyped-def]
    assert get(read(home, text, **{variable: value})) == value
    assert get(read(home, text, **{variable: ""})) == get(read(home, text)) != value


def test_every_variable_that_overrides_a_setting_is_tested() -> None:
    marks = test_the_environment_wins_over_the_file_and_an_empty_variable_does_not_count.pytestmark

    assert {row[0] for row in marks[0].args[1]} == config.ENVIRONMENT.keys()


def test_a_byte_order_mark_is_ignored(home: Path) -> None:
    assert read(home, '\ufeffmodel = "scripted:marked"').model == "scripted:marked"


def test_the_model_is_that_of_the_first_provider_with_a_key(home: Path) -> None:
    assert read(home, OPENAI_API_KEY="k", ANTHROPIC_API_KEY="k").model == DEFAULT_MODELS["openai"]
    assert read(home, ANTHROPIC_API_KEY="k").model == DEFAULT_MODELS["anthropic"]
    assert read(home, '[models.anthropic]\napi_key = "k"').model == DEFAULT_MODELS["anthropic"]
    assert read(home, OPENAI_BASE_URL="http://x").model == EMBEDDED_MODEL
    assert read(home, 'model = "scripted:x"', OPENAI_API_KEY="k").model == "scripted:x"


def test_a_key_can_be_named_by_its_variable(home: Path) -> None:
    text = '[models.openai]\napi_key_env = "WORK_KEY"\napi_key = "from the file"'

    assert read(home, text, WORK_KEY="w", OPENAI_API_KEY="o").access("openai").api_key == Secret("w")
    without = read(home, text)
    assert without.access("openai").api_key == Secret("from the file")
    assert any("WORK_KEY, which is not set" in warning for warning in without.warnings)


def test_a_store_can_be_named_in_several_ways(home: Path) -> None:
    assert read(home, HOLDFAST_STORE="sqlite:////data/x.db").store_path == Path("/data/x.db")
    assert read(home, HOLDFAST_STORE="sqlite:///x.db").store_path == home / "x.db"
    assert read(home, HOLDFAST_STORE="postgresql://host/db").store_path is None


def test_every_section_of_the_file_is_read(home: Path) -> None:
    settings = read(
        home,
        """
        model = "openai:a"
        fallback_models = ["anthropic:b", "local:c"]
        [models.openai]
        base_url = "http://localhost:1234/v1"
        [context]
        window = 9000
        compact_at = 0.5
        keep_last = 0
        summary_model = "openai:small"
        summary_timeout_seconds = 7.5
        on_summary_failure = "refuse"
        [liveness]
        heartbeat_seconds = 1
        stale_seconds = 5
        sweep_seconds = 2
        [reset]
        mode = "both"
        idle_minutes = 30
        at_hour = 0
        timezone = "Europe/Berlin"
        [processes]
        ttl_minutes = 5
        on_reset = "stop"
        [api]
        host = "0.0.0.0"
        port = 0
        idle_minutes = 1
        session_headers = ["x-mine"]
        [agent]
        busy = "steer"
        max_steps = 3
        system = "Be brief."
        approvals = "deny"
        turn_seconds = 10
        step_seconds = 5
        [gateway]
        home_channel = "telegram:1"
        [gateway.telegram]
        token = "t"
        allowed = [1, 2]
        [fleet]
        peers = ["https://other:8420"]
        [mcp.files]
        command = ["server", "--root", "/"]
        env = { A = "b" }
        trust = true
        [mcp.web]
        url = "https://mcp.example"
        headers = { Authorization = "Bearer x" }
        """,
    )

    assert settings.fallback_models == ("anthropic:b", "local:c")
    assert settings.context.summary_model == "openai:small"
    assert (settings.reset.mode, settings.reset.timezone) == ("both", "Europe/Berlin")
    assert (settings.process_ttl_minutes, settings.api.port, settings.agent.system) == (5, 0, "Be brief.")
    assert settings.gateway.home_channel == "telegram:1"
    assert settings.gateway.platforms["telegram"] == {"token": "t", "allowed": [1, 2]}
    assert settings.fleet.peers == ("https://other:8420",)
    assert settings.mcp["files"].command == ("server", "--root", "/")
    assert settings.mcp["files"].env["A"].reveal() == "b" and settings.mcp["files"].trust
    assert settings.mcp["web"].headers["Authorization"].reveal() == "Bearer x"


@pytest.mark.parametrize(
    ("text", "env", "says"),
    [
        ("colour = 1", {}, ["unknown setting colour", "store", "mcp"]),
        ("home = '/x'", {}, ["unknown setting home"]),
        ("warnings = []", {}, ["unknown setting warnings"]),
        ("[context]\nwindows = 1", {}, ["context.windows", "window, compact_at"]),
        ("[models.openai]\nkey = 'x'", {}, ["models.openai.key", "base_url, api_key, api_key_env"]),
        ("[models.mistral]\napi_key = 'x'", {}, ["openai, anthropic, local, scripted"]),
        ("[mcp.a]\ncommands = []", {}, ["mcp.a.commands", "command, url"]),
        ("[gateway]\nplatforms = 1", {}, ["gateway.platforms"]),
        ("[gateway]\ntelegram = 'x'", {}, ["gateway.telegram"]),
        ("models = 1", {}, ["models"]),
        ("[models]\nopenai = 1", {}, ["models"]),
        ("context = 1", {"HOLDFAST_CONTEXT_TOKENS": "1"}, ["context"]),
        ("model = 'gpt-5'", {}, ["model", "provider:name", "openai, anthropic, local, scripted"]),
        ("model = 'openai:'", {}, ["provider:name"]),
        ("fallback_models = ['x']", {}, ["fallback_models[0]", "provider:name"]),
        ("[context]\nsummary_model = 'x'", {}, ["context.summary_model", "provider:name"]),
        ("store = '/data/x.db'", {}, ["store", "sqlite:///path"]),
        ("[context]\ncompact_at = 1.5", {}, ["context.compact_at", "below 1"]),
        ("[context]\nwindow = 'large'", {}, ["context.window", "int"]),
        ("[context]\non_summary_failure = 'cry'", {}, ["context.on_summary_failure", "digest, refuse"]),
        ("[liveness]\nstale_seconds = 20", {}, ["liveness.stale_seconds", "twice"]),
        ("[liveness]\nheartbeat_seconds = 0", {}, ["liveness.heartbeat_seconds", "above 0"]),
        ("[reset]\nmode = 'weekly'", {}, ["reset.mode", "none, idle, daily, both"]),
        ("[reset]\nat_hour = 24", {}, ["reset.at_hour", "at most 23"]),
        ("[reset]\ntimezone = 'Mars/Olympus'", {}, ["reset.timezone", "Europe/Berlin"]),
        ("[reset]\ntimezone = '../../etc/passwd'", {}, ["reset.timezone"]),
        ("[reset.channels.telegram]\ntimezone = 'Mars/Olympus'", {}, ["reset.channels.telegram.timezone"]),
        ("[reset.channels.telegram]\nmode = 'hourly'", {}, ["reset.channels.telegram.mode", "hourly"]),
        ("[reset.channels.telegram]\nhour = 6", {}, ["reset.channels.telegram.hour", "at_hour"]),
        ("[processes]\non_reset = 'kill'", {}, ["processes.on_reset", "stop, keep, warn"]),
        ("[api]\nport = 70000", {}, ["api.port", "65535"]),
        ("[api]\nkey = ''", {}, ["api.key", "non-empty"]),
        ("[agent]\nbusy = 'panic'", {}, ["agent.busy", "queue, steer, interrupt"]),
        ("[agent]\nmax_steps = true", {}, ["agent.max_steps", "int"]),
        ("[models.openai]\nbase_url = 'localhost:1'", {}, ["models.openai.base_url", "http://"]),
        ("[models.openai]\napi_key = 5", {}, ["models.openai.api_key"]),
        ("[fleet]\npeers = ['other']", {}, ["fleet.peers", "http://"]),
        ("[mcp.a]\ntrust = true", {}, ["mcp.a", "a command or a url"]),
        ("[mcp.a]\ncommand = ['x']\nurl = 'http://x'", {}, ["mcp.a", "a command or a url"]),
        ("[mcp.a]\ncommand = 'x'", {}, ["mcp.a.command", "a list"]),
        ("x = ", {}, ["config.toml is not TOML"]),
        ("", {"HOLDFAST_MODLE": "x"}, ["HOLDFAST_MODLE", "HOLDFAST_HOME, HOLDFAST_STORE, HOLDFAST_MODEL"]),
        ("", {"HOLDFAST_MODEL": "gpt-5"}, ["HOLDFAST_MODEL", "provider:name"]),
        ("", {"HOLDFAST_LOG": "loud"}, ["HOLDFAST_LOG", "debug, info, warning, error"]),
        ("", {"HOLDFAST_CONTEXT_TOKENS": "many"}, ["HOLDFAST_CONTEXT_TOKENS", "an integer"]),
        ("", {"HOLDFAST_CONTEXT_TOKENS": "-1"}, ["HOLDFAST_CONTEXT_TOKENS"]),
        ("", {"HOLDFAST_STORE": "mysql://x"}, ["HOLDFAST_STORE", "sqlite:///path"]),
        ("", {"OPENAI_BASE_URL": "ftp://x"}, ["OPENAI_BASE_URL", "http://"]),
    ],
)
def test_a_misspelt_or_malformed_setting_is_named_with_the_known_ones(
    home: Path, text: str, env: dict[str, str], says: list[str]
) -> None:
    with pytest.raises(Invalid) as caught:
        read(home, text, **env)

    for words in says:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_stops_the_start(home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_bytes(b"model = '\xff'")
    with pytest.raises(Invalid, match="not UTF-8"):
        config.read({}, home)
    (home / "config.toml").unlink()
    (home / "config.toml").mkdir()
    with pytest.raises(Invalid, match="Is a directory"):
        config.read({}, home)
    with pytest.raises(Invalid, match="is a file"):
        config.read({}, Path(__file__))


def test_a_channel_changes_what_it_names_and_keeps_the_rest(home: Path) -> None:
    text = """
        [reset]
        mode = "daily"
        at_hour = 4
        [reset.channels.telegram]
        mode = "idle"
        [reset.channels."telegram:42"]
        idle_minutes = 5
        at_hour = 0
        """

    found = reset_policies(read(home, text), "")

    assert [(one.mode, one.idle_minutes, one.at_hour) for one in (found.default, *found.channels.values())] == [
        ("daily", 120, 4),
        ("none", 120, 4),
        ("idle", 120, 4),
        ("daily", 5, 0),
    ]
    assert found.of("framework:openai-agents:chat-1").mode == "none"


def test_a_background_process_may_use_holdfast_itself(home: Path) -> None:
    assert read(home, HOLDFAST_PROCESS="proc-1").model == EMBEDDED_MODEL


def test_other_variables_are_allowed(home: Path) -> None:
    assert (
        read(home, HOLDFAST_TEST_ROUNDS="5", HOLDFAST_URL="http://x", OPENAI_ORGANIZATION="x").model == EMBEDDED_MODEL
    )


SECRETS = """
store = "postgresql://me:hush-store@host/db"
[models.openai]
api_key = "hush-model"
base_url = "https://me:hush-url@host/v1"
[api]
key = "hush-api"
[gateway.telegram]
token = "hush-token"
[mcp.a]
command = ["x"]
env = { T = "hush-env" }
[mcp.b]
url = "https://x"
headers = { T = "hush-header" }
"""


def test_no_secret_is_shown(home: Path) -> None:
    settings = read(home, SECRETS, ANTHROPIC_API_KEY="hush-variable")
    secret = set(re.findall(r"hush-\w+", SECRETS)) | {"hush-variable"}

    for shown in (settings, settings.display_values(), settings.mcp, settings.gateway, settings.models, settings.api):
        assert "hush" not in f"{shown!r} {shown}"
    assert secret <= set(settings.secrets())
    shown = settings.display_values()
    assert (shown["models.openai.api_key"], shown["models.anthropic.api_key"]) == ("set", "set")
    assert shown["gateway.platforms.telegram"] == ["token"]


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_with_secrets_that_others_can_read_is_warned_about(home: Path, mode: int, warned: bool) -> None:
    read(home, SECRETS)
    (home / "config.toml").chmod(mode)

    assert bool(config.read({}, home).warnings) is warned


def test_a_file_without_secrets_may_be_readable_by_others(home: Path) -> None:
    read(home, 'model = "scripted:x"')
    (home / "config.toml").chmod(0o644)

    assert config.read({}, home).warnings == ()


@pytest.mark.parametrize(
    ("store", "expected"),
    [
        ("postgresql://bob@db/x", "postgresql://bob@db/x?password=a%20b"),
        ("postgresql://bob@db/x?sslmode=require", "postgresql://bob@db/x?sslmode=require&password=a%20b"),
        ("postgresql://bob:own@db/x", "postgresql://bob:own@db/x"),
        ("postgresql://db/x?password=own", "postgresql://db/x?password=own"),
        ("sqlite:///x.db", "sqlite:///x.db"),
    ],
)
def test_the_password_from_the_environment_is_added_to_the_url_of_the_store(
    home: Path, store: str, expected: str
) -> None:
    """The variable is gone from the environment when the driver would look for it."""
    settings = config.read({"HOLDFAST_STORE": store, "PGPASSWORD": "a b"}, home)

    assert settings.store == expected
    assert "a%20b" not in str(settings.display_values())


# images

OPENAI = 'model = "scripted:echo"\n[models.openai]\napi_key = "sk-openai"\n'


def image_service(settings: Settings) -> tuple[str | None, str | None] | None:
    access = settings.image_access()
    return None if access is None else (access.base_url, access.api_key.reveal() if access.api_key else None)


@pytest.mark.parametrize(
    ("text", "service"),
    [
        ("", None),
        (OPENAI, (None, "sk-openai")),
        (OPENAI + '[images]\nenabled = "off"', None),
        (OPENAI + 'base_url = "http://llama/v1"', None),
        (OPENAI + 'base_url = "http://llama/v1"\n[images]\nmodel = "flux"', ("http://llama/v1", "sk-openai")),
        (OPENAI + 'base_url = "http://llama/v1"\n[images]\nenabled = "on"', ("http://llama/v1", "sk-openai")),
        (OPENAI + '[images]\nbase_url = "http://flux/v1"', ("http://flux/v1", None)),
        (OPENAI + '[images]\nbase_url = "http://flux/v1"\napi_key = "k"', ("http://flux/v1", "k")),
        ('[images]\napi_key = "k"', (None, "k")),
        ('[images]\nenabled = "on"', (None, None)),
    ],
)
def test_images_are_made_where_a_service_is_known_and_keys_stay_with_theirs(
    home: Path, text: str, service: tuple[str | None, str | None] | None
) -> None:
    assert image_service(read(home, text)) == service


@pytest.mark.parametrize(
    ("text", "service"),
    [
        (OPENAI, None),
        (OPENAI + '[transcription]\nmodel = "whisper-1"', (None, "sk-openai")),
        (OPENAI + '[transcription]\nbase_url = "http://whisper/v1"', ("http://whisper/v1", None)),
        ('[transcription]\napi_key = "k"', (None, "k")),
    ],
)
def test_recordings_are_sent_only_to_a_service_that_is_named(
    home: Path, text: str, service: tuple[str | None, str | None] | None
) -> None:
    access = read(home, text).transcription_access()

    assert (access and (access.base_url, access.api_key and access.api_key.reveal())) == service


def test_the_key_for_images_can_come_from_the_environment(home: Path) -> None:
    text = '[images]\napi_key_env = "FLUX_KEY"\ntimeout_seconds = 7'
    settings = read(home, text, FLUX_KEY="sk-flux")

    assert image_service(settings) == (None, "sk-flux")
    assert settings.images.timeout_seconds == 7
    assert "sk-flux" in settings.secrets()
    assert "sk-flux" not in repr(settings)
    assert "images.api_key_env names FLUX_KEY, which is not set" in read(home, text).warnings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[api]\nport = "x"', "api.port: expected an integer, got a string"),
        ("[api]\nport = 70000", "api.port: expected an integer of at most 65535"),
        ('[api]\nhost = ""', "api.host: expected a string with a length of at least 1"),
        ('[budget]\nday = "x"', "budget.day: expected a number, got a string"),
        ("[liveness]\nheartbeat_seconds = 0", "liveness.heartbeat_seconds: expected a number above 0"),
        ('[terminal]\nbackend = "x"', "terminal.backend: expected one of local, bubblewrap, container, ssh"),
        ('[telemetry]\nsignals = ["x"]', "telemetry.signals[0]: expected one of traces, metrics, logs"),
        ('[telemetry]\nsignals = "x"', "telemetry.signals: expected a list, got a string"),
        ('[terminal]\nbackend = "ssh"', "terminal.backend ssh needs [terminal.ssh] host"),
        ('[terminal.channels]\n"telegram:1" = "ssh"', "terminal.channels.telegram:1 ssh needs [terminal.ssh] host"),
        (
            '[gateway.matrix]\nterminal = "container"',
            "gateway.matrix.terminal container needs [terminal.container] image",
        ),
        ('[web]\nsearch_provider = "x"', "web.search_provider: expected one of brave, tavily, searxng"),
        ("[prices]\nx = 1", "prices: expected a table, got an integer"),
    ],
)
def test_a_malformed_setting_says_in_plain_words_what_is_expected(home: Path, text: str, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(home, text)

    assert str(refused.value) == f"{home / 'config.toml'}: {message}"


@pytest.mark.parametrize("text", ['enabled = "maybe"', 'terminal = "vt52"', "timeout_seconds = 0", 'base_url = "flux"'])
def test_a_wrong_setting_for_images_is_named(home: Path, text: str) -> None:
    with pytest.raises(Invalid, match=rf"images\.{text.partition(' ')[0]}: expected"):
        read(home, f"[images]\n{text}")


def test_a_secret_can_be_read_from_a_file(home: Path, tmp_path: Path) -> None:
    for variable in config.SECRET_FILES:
        (tmp_path / variable).write_text(f"secret-of-{variable}\n")
    (tmp_path / "HOLDFAST_STORE_FILE").write_text("postgresql://me@host/db\n")

    settings = read(home, **{name: str(tmp_path / name) for name in config.SECRET_FILES})

    assert settings.api.key == Secret("secret-of-HOLDFAST_API_KEY_FILE")
    assert settings.models["openai"].api_key == Secret("secret-of-OPENAI_API_KEY_FILE")
    assert settings.models["anthropic"].api_key == Secret("secret-of-ANTHROPIC_API_KEY_FILE")
    assert settings.store == "postgresql://me@host/db?password=secret-of-PGPASSWORD_FILE"


def test_a_secret_file_that_is_missing_empty_or_not_the_only_source_stops_the_start(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(Invalid, match="OPENAI_API_KEY_FILE: cannot read"):
        read(home, OPENAI_API_KEY_FILE=str(file))
    file.write_text("\n")
    with pytest.raises(Invalid, match="is empty"):
        read(home, OPENAI_API_KEY_FILE=str(file))
    with pytest.raises(Invalid, match="both OPENAI_API_KEY and OPENAI_API_KEY_FILE"):
        read(home, OPENAI_API_KEY_FILE=str(file), OPENAI_API_KEY="sk-1")


# the web

KEYED = '[web]\nsearch_provider = "brave"\napi_key_env = "BRAVE_KEY"'


def offered(settings: Settings) -> list[str]:
    return [tool.spec.name for tool in make_web_tools(settings, window=8_000)]


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        ("", ["fetch_url"]),
        ("[web]\nfetch = false", []),
        ('[web]\nsearch_provider = "searxng"\nbase_url = "http://127.0.0.1:8888"', ["fetch_url", "web_search"]),
        ('[web]\nsearch_provider = "tavily"\napi_key = "tvly-1"', ["fetch_url", "web_search"]),
        (KEYED, ["fetch_url"]),
    ],
)
def test_the_model_is_offered_the_web_tools_that_are_configured(home: Path, text: str, tools: list[str]) -> None:
    assert offered(read(home, text)) == tools


def test_the_key_for_searches_can_come_from_the_environment(home: Path) -> None:
    settings = read(home, KEYED, BRAVE_KEY="bsa-1")

    assert offered(settings) == ["fetch_url", "web_search"]
    assert "bsa-1" in settings.secrets()
    assert "bsa-1" not in repr(settings)
    assert "web.api_key_env names BRAVE_KEY, which is not set" in read(home, KEYED).warnings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('search_provider = "bing"', r"web\.search_provider: expected one of"),
        ('search_provider = "searxng"', r"needs web\.base_url"),
        ('search_provider = "tavily"', r"needs web\.api_key"),
        ("timeout_seconds = 0", r"web\.timeout_seconds: expected"),
        ("trusted_hosts = 1", r"web\.trusted_hosts: expected"),
    ],
)
def test_a_wrong_setting_for_the_web_is_named(home: Path, text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        read(home, f"[web]\n{text}")
