"""An MCP server behind OAuth, with its authorization server, in the process of the test."""

import asyncio
import contextlib
import json
import secrets
from urllib.parse import parse_qs, urlencode, urlsplit

TOOL = {"name": "whoami", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


class OAuthMcp:
    """Both servers on one port. The attributes say how it behaves; `seen` are the requests to each path."""

    def __init__(self):
        self.url = ""
        self.issuer = None
        self.token_redirect = None
        self.is_silent = False
        self.is_modern = False
        self.refuses_refresh = False
        self.lifetime = 3600
        self.iss = None
        self.seen = {}
        self.valid = set()
        self.refresh_tokens = set()
        self.verifiers = {}

    @contextlib.asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            yield self

    def revoke(self):
        self.valid.clear()

    async def _serve(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._answer(reader, writer)

    async def _answer(self, reader, writer):
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        raw = dict(line.split(": ", 1) for line in lines if line)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, target, _ = head.split(" ")
        found = urlsplit(target)
        self.seen.setdefault(found.path, []).append((raw, body.decode()))
        if self.is_silent and found.path == "/token":
            await asyncio.Event().wait()
        status, more, document = self._respond(method, found, raw, body)
        text = json.dumps(document).encode() if document is not None else b""
        kind = {"Content-Type": "application/json", "Content-Length": str(len(text))} | more
        lines = "".join(f"{name}: {value}\r\n" for name, value in kind.items())
        writer.write(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode() + text)
        await writer.drain()

    def _respond(self, method, found, headers, body):
        match found.path:
            case "/mcp":
                return self._mcp(method, {name.lower(): value for name, value in headers.items()}, body)
            case "/.well-known/oauth-protected-resource/mcp":
                return 200, {}, {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
            case "/.well-known/oauth-authorization-server":
                return 200, {}, self._metadata()
            case "/register":
                return 201, {}, json.loads(body) | {"client_id": "registered"}
            case "/authorize":
                return self._authorize(parse_qs(found.query))
            case "/token":
                return self._token(parse_qs(body.decode()))
        return 404, {}, None

    def _metadata(self):
        return {
            "issuer": self.issuer or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": self.iss is not None,
        }

    def _authorize(self, query):
        code = secrets.token_hex(8)
        self.verifiers[code] = query["code_challenge"][0]
        more = {"iss": self.iss} if self.iss else {}
        redirect = f"{query['redirect_uri'][0]}?{urlencode({'code': code, 'state': query['state'][0], **more})}"
        return 302, {"Location": redirect}, None

    def _token(self, form):
        if self.token_redirect:
            return 307, {"Location": self.token_redirect}, None
        if form["grant_type"] == ["refresh_token"]:
            given = form["refresh_token"][0]
            if self.refuses_refresh or given not in self.refresh_tokens:
                return 400, {}, {"error": "invalid_grant"}
            self.refresh_tokens.discard(given)
        elif form["code"][0] not in self.verifiers:
            return 400, {}, {"error": "invalid_grant"}
        access, refresh = f"access-{secrets.token_hex(8)}", f"refresh-{secrets.token_hex(8)}"
        self.valid.add(access)
        self.refresh_tokens.add(refresh)
        tokens = {"access_token": access, "token_type": "Bearer", "expires_in": self.lifetime}
        return 200, {}, tokens | {"refresh_token": refresh}

    def _mcp(self, method, headers, body):
        if self.is_modern and b'"initialize"' in body:
            return (
                400,
                {},
                {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": {"code": -32600, "message": "old"}},
            )
        if headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            address = f"{self.url}/.well-known/oauth-protected-resource/mcp"
            return 401, {"WWW-Authenticate": f'Bearer resource_metadata="{address}"'}, {"error": "invalid_token"}
        if method != "POST":
            return 405, {}, None
        asked = json.loads(body)
        results = {
            "initialize": {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "you"}]},
            "ping": {},
        }
        if "id" not in asked:
            return 202, {}, None
        if asked["method"] not in results:
            error = {"code": -32601, "message": "unknown"}
            return 404, {}, {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        return 200, {}, {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
