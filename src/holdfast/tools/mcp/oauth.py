"""OAuth 2.1 for MCP servers: discovery, registration, PKCE and refresh by the MCP library, with a durable login.

The library forgets when a stored token expires and where to refresh it, so both are stored here. Without a person, a
server that wants a new login gets none: the request fails with the command to run. A token that the server rejects is
refreshed once before that. Nothing that is secret is part of a message.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import extract_field_from_www_auth, extract_scope_from_www_auth, issuers_match, union_scopes
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from holdfast.model.times import SECOND, Clock
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.token_file import NOTHING, TokenFile

NO_REDIRECT = "http://127.0.0.1/callback"
"""Where nobody logs in, no redirect is expected."""
OK, UNAUTHORIZED, FORBIDDEN = 200, 401, 403
LEGACY_METADATA = "/.well-known/oauth-authorization-server"
WANTS = "holdfast.wants"
"""The extension of a request that says why the server rejected it; empty if it did not."""
EXPIRED = 1.0
"""A time in the past."""
T = TypeVar("T")


class Authorize(Protocol):
    """A person who can log in."""

    redirect_uri: str

    async def __call__(self, url: str) -> AuthorizationCodeResult:
        """Send the person to the address; return what the browser brings back. Raises LoginFailed."""


class LoginStorage:
    """The port of the MCP library for stored logins."""

    def __init__(self, file: TokenFile, clock: Clock) -> None:
        self.file = file
        self._clock = clock

    async def get_tokens(self) -> OAuthToken | None:
        return _decode(self.file.read().tokens, OAuthToken.model_validate_json)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        expires = None if tokens.expires_in is None else self._clock.now() / SECOND + tokens.expires_in
        self._change(tokens=_encode(tokens.model_dump_json(exclude_none=True)), expires_at=expires)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return _decode(self.file.read().client, OAuthClientInformationFull.model_validate_json)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._change(client=_encode(client_info.model_dump_json(exclude_none=True)))

    def set_metadata(self, metadata: OAuthMetadata | None, resource: ProtectedResourceMetadata | None) -> None:
        self._change(
            metadata=_encode(metadata.model_dump_json(exclude_none=True) if metadata else "null"),
            resource=_encode(resource.model_dump_json(exclude_none=True) if resource else "null"),
        )

    def _change(self, **fields: object) -> None:
        self.file.write(msgspec.structs.replace(self.file.read(), **fields))


class StoredOAuth(OAuthClientProvider):
    """Logs in with the authorization code of a person, and keeps the login."""

    def __init__(
        self, server: McpServer, file: TokenFile, clock: Clock, authorize: Authorize | None, scope: str | None = None
    ) -> None:
        self._settings = server.oauth
        self._file = file
        self._authorize = authorize
        self._more_scope = scope
        self._logins = LoginStorage(file, clock)
        self._version: object = None
        self._login = asyncio.Lock()
        self._url = ""
        metadata = OAuthClientMetadata(
            client_name="Holdfast",
            redirect_uris=[AnyUrl(authorize.redirect_uri if authorize else NO_REDIRECT)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=server.oauth.scope,
        )
        super().__init__(
            server.url,
            metadata,
            self._logins,
            redirect_handler=self._remember_url,
            callback_handler=self._ask_person,
            client_metadata_url=server.oauth.client_metadata_url,
        )

    async def _initialize(self) -> None:
        await super()._initialize()
        context, found = self.context, self._file.read()
        self._version = self._file.version()
        context.token_expiry_time = found.expires_at
        context.oauth_metadata = _decode(found.metadata, OAuthMetadata.model_validate_json)
        context.protected_resource_metadata = _decode(found.resource, ProtectedResourceMetadata.model_validate_json)
        if self._settings.client_id is not None:
            context.client_info = self._configured_client(self._settings.client_id)
        elif self._authorize is not None and not self._is_registered_here():
            context.client_info = None

    def _configured_client(self, client_id: str) -> OAuthClientInformationFull:
        secret = self._settings.client_secret
        return OAuthClientInformationFull(
            client_id=client_id,
            client_secret=None if secret is None else secret.reveal(),
            redirect_uris=self.context.client_metadata.redirect_uris,
            token_endpoint_auth_method="none" if secret is None else self._settings.client_auth,
            issuer=self._settings.issuer,
        )

    def _is_registered_here(self) -> bool:
        """Whether the stored client may be redirected to the address of this login."""
        client, wanted = self.context.client_info, self.context.client_metadata.redirect_uris or []
        return client is not None and all(uri in (client.redirect_uris or []) for uri in wanted)

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        # The library holds a lock while it waits for the server; here only a login or a refresh does.
        is_refreshed = False
        for _ in range(2):
            await self._load()
            if self._must_refresh():
                async with self._file.locked():
                    await self._load()
                    if self._must_refresh():
                        await self._accept_refresh((yield await self._refresh_token()))
                        is_refreshed = True
            if self.context.is_token_valid():
                self._add_auth_header(request)
            response = yield request
            if response.status_code != UNAUTHORIZED or is_refreshed or not self.context.can_refresh_token():
                break
            self.context.token_expiry_time = EXPIRED
        request.extensions[WANTS] = wants = _challenge(response)
        if not wants or self._authorize is None:
            return
        async with self._login:
            if self._add_new_token(request):  # another request has logged in meanwhile
                response = yield request
                request.extensions[WANTS] = wants = _challenge(response)
            flow = super()._auth_flow(request)
            try:
                outgoing = await anext(flow)  # the request, which was answered above
                while wants:
                    outgoing = await flow.asend(response)
                    response = await self._with_own_issuer((yield outgoing))
            except StopAsyncIteration:
                request.extensions[WANTS] = ""
            finally:
                await flow.aclose()

    def _add_new_token(self, request: httpx2.Request) -> bool:
        """Send the current token if the request was sent with another one."""
        before = request.headers.get("Authorization")
        self._add_auth_header(request)
        return request.headers.get("Authorization") != before

    async def _with_own_issuer(self, response: httpx2.Response) -> httpx2.Response:
        """Servers of 2025-03-26 may name an issuer with a path on their own origin, which the library does not accept."""
        origin = urlsplit(self.context.server_url)._replace(path="", query="", fragment="").geturl()
        is_legacy = self.context.auth_server_url is None and str(response.request.url) == f"{origin}{LEGACY_METADATA}"
        if not is_legacy or response.status_code != OK:
            return response
        try:
            document = msgspec.json.decode(await response.aread(), type=dict[str, object])
        except msgspec.DecodeError:
            return response
        if not str(document.get("issuer")).startswith(f"{origin}/"):
            return response
        return httpx2.Response(OK, json=document | {"issuer": origin}, request=response.request)

    async def _load(self) -> None:
        """Use what another process has stored meanwhile."""
        if not self._initialized or self._version != self._file.version():
            await self._initialize()
            self._initialized = True

    def _must_refresh(self) -> bool:
        return not self.context.is_token_valid() and self.context.can_refresh_token()

    async def _accept_refresh(self, response: httpx2.Response) -> None:
        # If it failed, the next request starts from the stored login: the failure may be temporary.
        self._initialized = await self._handle_refresh_response(response)
        self._version = self._file.version()

    async def _perform_authorization(self) -> httpx2.Request:
        self._check_servers()
        self.context.client_metadata.scope = union_scopes(self.context.client_metadata.scope, self._more_scope)
        self._logins.set_metadata(self.context.oauth_metadata, self.context.protected_resource_metadata)
        return await super()._perform_authorization()

    def _check_servers(self) -> None:
        """Refuse an authorization server that is not the configured one, or that would get secrets unencrypted."""
        found, wanted = self.context.oauth_metadata, self._settings.issuer
        if wanted is not None and (found is None or not issuers_match(str(found.issuer), wanted)):
            named = "no issuer" if found is None else str(found.issuer)
            raise OAuthFlowError(f"wrong issuer: the server names {named}, the settings name {wanted}")
        client = self.context.client_info
        if self._settings.client_id is not None and (client is None or client.client_id != self._settings.client_id):
            raise OAuthFlowError("wrong issuer: the configured client belongs to another authorization server")
        if found is None or urlsplit(self.context.server_url).scheme != "https":
            return
        for endpoint in (found.authorization_endpoint, found.token_endpoint):
            if endpoint is not None and urlsplit(str(endpoint)).scheme != "https":
                raise OAuthFlowError(f"the authorization server uses an address without encryption: {endpoint}")

    async def _remember_url(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise OAuthFlowError("the authorization server names an address that is not a web page")
        self._url = url

    async def _ask_person(self) -> AuthorizationCodeResult:
        assert self._authorize is not None, "only a person is redirected"
        return await self._authorize(self._url)


def _challenge(response: httpx2.Response) -> str:
    """What the server wants before it accepts the request; empty if it accepted it."""
    if response.status_code == UNAUTHORIZED:
        return "a login"
    if response.status_code == FORBIDDEN and extract_field_from_www_auth(response, "error") == "insufficient_scope":
        return f"a login with the scope {extract_scope_from_www_auth(response) or '(not named)'}"
    return ""


def _encode(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _decode(raw: msgspec.Raw, parse: Callable[[bytes], T]) -> T | None:
    return None if bytes(raw) == NOTHING else parse(bytes(raw))
