"""OAuth: logging in, refreshing, and authorization servers that misbehave."""

import asyncio
import contextlib
import stat
from urllib.parse import urlsplit

import httpx2
import pytest
from mcp import MCPError
from mcp_types import INTERNAL_ERROR

from holdfast.clock import SystemClock
from holdfast.model.errors import LoginFailed
from holdfast.model.message import text_of
from holdfast.settings import McpOAuthSettings, Secret
from holdfast.tools.home_guard import is_protected
from holdfast.tools.mcp import login as login_module
from holdfast.tools.mcp.authentication import open_authentication
from holdfast.tools.mcp.connection import McpConnection
from holdfast.tools.mcp.login import log_in
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.servers import McpServers
from holdfast.tools.mcp.token_file import TokenFile
from tests.fakes.oauth_mcp import OAuthMcp

pytestmark = pytest.mark.timeout(120)  # the MCP library takes a second to import


class Browser:
    """Visits the login page; `changed` edits the address it is redirected to."""

    def __init__(self, changed=str):
        self.changed = changed
        self.visits = []

    def __call__(self, url):
        self.visits.append(asyncio.ensure_future(self._visit(url)))

    async def _visit(self, url):
        async with httpx2.AsyncClient() as web:
            page = await web.get(url)
            await web.get(self.changed(page.headers["location"]))


@pytest.fixture
async def oauth():
    async with OAuthMcp().running() as server:
        yield server


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "home" / "mcp"


def server_at(oauth, **settings):
    return McpServer(name="wiki", url=f"{oauth.url}/mcp", oauth=McpOAuthSettings(**settings))


async def login(oauth, folder, browser=None, *, seconds=30, **settings):
    return await log_in(server_at(oauth, **settings), folder, SystemClock(), browser or Browser(), seconds=seconds)


async def call(oauth, folder, scene):
    """Connect as a new worker and call the tool; the texts that the user and the model see."""
    async with McpServers([server_at(oauth)], logins=folder) as servers:
        outputs = [await tool.run({}, scene) for tool in servers.tools()]
        return [*servers.problems, *(text_of(output.parts) for output in outputs)]


def expire(oauth, folder):
    """As if the time of the stored token were over."""
    file = TokenFile(folder, "wiki", f"{oauth.url}/mcp")
    login = file.read()
    login.expires_at = 1.0
    file.write(login)


def token_requests(oauth):
    return [body for _, body in oauth.seen.get("/token", [])]


async def test_a_person_logs_in_once_and_every_later_worker_uses_the_login(oauth, folder, scene, caplog):
    assert await call(oauth, folder, scene) == [
        "MCP server wiki is not available: it wants a login; run: holdfast mcp-login wiki"
    ]
    assert "/register" not in oauth.seen, "a worker without a person registers nothing"

    assert await login(oauth, folder) is True
    assert await call(oauth, folder, scene) == ["you"]
    assert await call(oauth, folder, scene) == ["you"]

    assert len(token_requests(oauth)) == 1
    assert "code_verifier" in token_requests(oauth)[0]
    (file,) = folder.glob("*.json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert is_protected(file, folder.parent, ()), "tools cannot read it"
    secrets = [*oauth.valid, *oauth.refresh_tokens]
    assert not [text for text in secrets if text in caplog.text]


async def test_a_server_that_knows_no_older_protocol_wants_a_login_too(oauth, folder, scene):
    oauth.is_modern = True

    assert await call(oauth, folder, scene) == [
        "MCP server wiki is not available: it wants a login; run: holdfast mcp-login wiki"
    ]


async def test_a_second_login_keeps_the_registered_client(oauth, folder):
    await login(oauth, folder)
    await login(oauth, folder)

    assert len(oauth.seen["/register"]) == 1
    assert len(token_requests(oauth)) == 2


async def test_an_expired_token_is_refreshed_once_by_all_workers_together(oauth, folder, scene):
    await login(oauth, folder)
    oauth.revoke()
    expire(oauth, folder)

    assert await asyncio.gather(*(call(oauth, folder, scene) for _ in range(4))) == [["you"]] * 4
    assert len(token_requests(oauth)) == 2, "the login and one refresh, because a refresh token works only once"
    assert await call(oauth, folder, scene) == ["you"]


async def test_a_token_that_the_server_revoked_is_refreshed(oauth, folder, scene):
    await login(oauth, folder)
    async with McpServers([server_at(oauth)], logins=folder) as servers:
        oauth.revoke()
        (tool,) = servers.tools()

        assert text_of((await tool.run({}, scene)).parts) == "you"


async def test_a_login_that_cannot_be_refreshed_names_the_command(oauth, folder, scene):
    await login(oauth, folder)
    async with McpServers([server_at(oauth)], logins=folder) as servers:
        oauth.revoke()
        oauth.refuses_refresh = True
        (tool,) = servers.tools()

        output = await tool.run({}, scene)
        assert not output.ok
        assert text_of(output.parts) == (
            "MCP server wiki did not accept the call: it wants a login; run: holdfast mcp-login wiki. Nothing was done."
        )

        oauth.refuses_refresh = False
        await login(oauth, folder)
        assert text_of((await tool.run({}, scene)).parts) == "you", "the running worker uses the new login"


async def test_a_login_is_not_sent_to_another_url(oauth, folder, scene):
    await login(oauth, folder)
    async with OAuthMcp().running() as other:
        assert "wants a login" in (await call(other, folder, scene))[0]
        assert not [headers for headers, _ in other.seen["/mcp"] if "Authorization" in headers]


async def test_a_server_without_login_says_so(oauth, folder):
    oauth.valid.add("")

    assert await login(oauth, folder) is False


async def test_an_issuer_that_is_not_the_advertised_one_is_refused(oauth, folder):
    oauth.issuer = "https://evil.example"

    with pytest.raises(LoginFailed, match="issuer mismatch"):
        await login(oauth, folder)
    assert "/authorize" not in oauth.seen


@pytest.mark.parametrize("settings", [{}, {"client_id": "mine", "client_secret": Secret("hidden")}])
async def test_an_issuer_that_is_not_the_configured_one_is_refused(oauth, folder, settings):
    with pytest.raises(LoginFailed, match="wrong issuer"):
        await login(oauth, folder, issuer="https://login.example", **settings)
    assert "/authorize" not in oauth.seen


async def test_a_redirect_that_names_another_issuer_is_refused(oauth, folder):
    oauth.iss = "https://evil.example"

    with pytest.raises(LoginFailed, match="iss"):
        await login(oauth, folder)
    assert "/token" not in oauth.seen


async def test_a_redirect_of_another_login_is_refused(oauth, folder):
    foreign = Browser(lambda url: url.replace("state=", "state=x"))

    with pytest.raises(LoginFailed, match="does not belong to this login"):
        await login(oauth, folder, foreign)
    assert "/token" not in oauth.seen


async def test_a_token_endpoint_that_redirects_elsewhere_gets_nothing_sent_there(oauth, folder):
    async with OAuthMcp().running() as other:
        oauth.token_redirect = f"{other.url}/token"

        with pytest.raises(LoginFailed, match="not followed"):
            await login(oauth, folder)
        assert other.seen == {}


async def test_a_refused_login_is_reported(oauth, folder):
    refused = Browser(lambda url: f"{url.partition('?')[0]}?error=access_denied&error_description=not+you")

    with pytest.raises(LoginFailed, match="refused the login: not you"):
        await login(oauth, folder, refused)


async def test_a_login_that_never_comes_is_reported(oauth, folder):
    with pytest.raises(LoginFailed, match=r"there was no login within 0\.2 s"):
        await login(oauth, folder, lambda url: None, seconds=0.2)


async def test_a_connection_that_the_browser_does_not_use_is_closed(monkeypatch):
    monkeypatch.setattr(login_module, "REQUEST_SECONDS", 0.01)
    async with login_module.LoopbackRedirect(print, 30).listening(0) as redirect:
        address = urlsplit(redirect.redirect_uri)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)

        assert await reader.read() == b""
        writer.close()


async def test_an_authorization_server_that_does_not_answer_is_reported(oauth, folder):
    oauth.is_silent = True

    with pytest.raises(LoginFailed, match="MCP server wiki"):
        await log_in(server_at(oauth), folder, SystemClock(), Browser(), seconds=0.5, answer_seconds=0.5)


async def test_a_broken_file_counts_as_no_login(oauth, folder, scene):
    await login(oauth, folder)
    (file,) = folder.glob("*.json")
    file.write_text("{")

    assert "wants a login" in (await call(oauth, folder, scene))[0]


async def test_a_rejected_request_says_nothing_about_another_one_that_was_accepted(folder):
    server, other_is_rejected = McpServer(name="wiki", url="http://wiki.example/mcp"), asyncio.Event()
    answers = httpx2.MockTransport(lambda request: httpx2.Response(401 if request.url.path == "/closed" else 200))
    authentication = open_authentication(server, folder, SystemClock())
    web = httpx2.AsyncClient(transport=answers, auth=authentication, base_url=server.url)

    @contextlib.asynccontextmanager
    async def connect():
        yield web

    async def act(web):
        await web.get("http://wiki.example/open")
        await other_is_rejected.wait()
        raise MCPError(code=INTERNAL_ERROR, message="it failed halfway")

    async def be_rejected(web):
        await web.get("http://wiki.example/closed")
        other_is_rejected.set()
        raise MCPError(code=INTERNAL_ERROR, message="Server returned an error response")

    async def act_and_be_rejected(web):
        await web.get("http://wiki.example/open")
        await be_rejected(web)

    connection = McpConnection(connect, ping_seconds=60, connect_seconds=60)
    sends = (act, be_rejected, act_and_be_rejected)
    found = await asyncio.gather(*(connection.request(send, may_repeat=True) for send in sends), return_exceptions=True)
    await connection.close()

    assert [type(error) for error in found] == [MCPError, LoginFailed, MCPError]
