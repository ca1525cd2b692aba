"""Chooses how requests to an MCP server are authenticated, and reports why a login failed."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from pydantic import ValidationError

from holdfast.model.errors import LoginFailed
from holdfast.model.text import truncate
from holdfast.model.times import Clock
from holdfast.tools.mcp.oauth import WANTS, Authorize, LoginStorage, StoredOAuth
from holdfast.tools.mcp.rejection import report_login
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.token_file import TokenFile

MAX_REASON = 300
"""Characters of an authorization server's text in a message."""
IDP_SECONDS = 30.0
OAUTH = "urn:ietf:params:oauth"

# It logs each failure with the documents involved, which may contain tokens. Here the failure is reported without them.
logging.getLogger("mcp.client.auth").setLevel(logging.CRITICAL)


class Authentication(httpx2.Auth):
    """The login of one server. It reports to the sender of each request why the server rejected it, if it did."""

    requires_response_body = True

    def __init__(self, name: str, inner: httpx2.Auth) -> None:
        self._name = name
        self._inner = inner

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        flow = self._inner.async_auth_flow(request)
        response = None
        try:
            outgoing = await anext(flow)
            while True:
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            wants = request.extensions.get(WANTS)
            if response is not None and not response.is_redirect:
                report_login(f"it wants {wants}; run: holdfast mcp-login {self._name}" if wants else "")
        except (OAuthFlowError, ValidationError, LoginFailed) as e:
            problem = f"the login failed: {_reason(e)}"
            report_login(problem)
            raise LoginFailed(problem) from None
        finally:
            await flow.aclose()


def open_authentication(
    server: McpServer, folder: Path, clock: Clock, *, authorize: Authorize | None = None, scope: str | None = None
) -> Authentication:
    """The authentication of requests to the server. Without `authorize` nobody can log in. Raises LoginFailed."""
    file = TokenFile(folder, server.name, server.url)
    match server.oauth.grant:
        case "authorization_code":
            return Authentication(server.name, StoredOAuth(server, file, clock, authorize, scope))
        case "client_credentials":
            return Authentication(server.name, _as_client(server, LoginStorage(file, clock)))
        case "identity_assertion":
            return Authentication(server.name, _as_person(server, LoginStorage(file, clock)))


def _as_client(server: McpServer, storage: LoginStorage) -> httpx2.Auth:
    """The client logs in as itself, with a secret or a key."""
    settings = server.oauth
    client_id, issuer = _needed(server, "client_id"), _needed(server, "issuer")
    if settings.private_key is not None:
        signer = SignedJWTParameters(
            issuer=client_id,
            subject=client_id,
            signing_key=settings.private_key.reveal(),
            signing_algorithm=settings.signing_algorithm,
        )
        return PrivateKeyJWTOAuthProvider(
            server.url, storage, client_id, signer.create_assertion_provider(), settings.scope, issuer
        )
    if settings.client_secret is None:
        raise LoginFailed(f"mcp.{server.name}.oauth needs client_secret or private_key")
    secret = settings.client_secret.reveal()
    return ClientCredentialsOAuthProvider(
        server.url, storage, client_id, secret, settings.client_auth, settings.scope, issuer
    )


def _as_person(server: McpServer, storage: LoginStorage) -> httpx2.Auth:
    """An identity provider vouches for the person, with a token that another program renews."""
    settings = server.oauth
    if settings.client_secret is None:
        raise LoginFailed(f"mcp.{server.name}.oauth needs client_secret")
    return IdentityAssertionOAuthProvider(
        server.url,
        storage,
        _needed(server, "client_id"),
        settings.client_secret.reveal(),
        _needed(server, "issuer"),
        _assertion(server),
        settings.scope,
        settings.client_auth,
    )


def _assertion(server: McpServer) -> Callable[[str, str], Awaitable[str]]:
    """Exchanges the identity provider's token for an assertion to the authorization server."""
    file, endpoint = Path(_needed(server, "id_token_file")).expanduser(), _needed(server, "idp_token_endpoint")
    client_id = _needed(server, "idp_client_id")

    async def exchange(audience: str, resource: str) -> str:
        try:
            subject = file.read_text("utf-8").strip()
        except OSError as e:
            raise LoginFailed(f"cannot read {file}: {e.strerror}") from e
        form = {
            "grant_type": f"{OAUTH}:grant-type:token-exchange",
            "requested_token_type": f"{OAUTH}:token-type:id-jag",
            "subject_token": subject,
            "subject_token_type": f"{OAUTH}:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": client_id,
        }
        try:
            async with httpx2.AsyncClient(timeout=IDP_SECONDS) as web:
                response = await web.post(endpoint, data=form)
            assertion = response.json().get("access_token") if response.status_code == httpx2.codes.OK else None
        except (httpx2.HTTPError, ValueError) as e:
            raise LoginFailed(f"the identity provider does not answer: {type(e).__name__}") from e
        if not isinstance(assertion, str):
            raise LoginFailed(f"the identity provider refused the token ({response.status_code})")
        return assertion

    return exchange


def _needed(server: McpServer, name: str) -> str:
    value = getattr(server.oauth, name)
    if not value:
        raise LoginFailed(f"mcp.{server.name}.oauth needs {name} for the grant {server.oauth.grant}")
    return str(value)


def _reason(error: Exception) -> str:
    """What went wrong, without any secret."""
    text = str(error)
    if isinstance(error, ValidationError) or text.startswith("Invalid token response"):
        return "the authorization server sent an invalid document"
    if text.startswith("State parameter mismatch"):
        return "the redirect does not belong to this login"
    return truncate(text, MAX_REASON)
