"""Checks each request before it is served: its caller, its host name, the web page that sends it, the rate of changes.

A middleware does this, so each new operation is protected, too.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pidts.follow.loopback import is_loopback
from pidts.web.peer import user_of
from pidts.web.refusals import Refusal, answer_error

COOKIE: Final = "pidts"
MOST_BODY: Final = 1_000_000
CHANGES_PER_SECOND: Final = 20
_SESSION_SECONDS: Final = 12 * 3600
LOGIN: Final = "/api/login"
_OPEN: Final = frozenset({"/healthz", "/readyz", LOGIN})
"""Paths that need no token, since they show nothing about the tasks."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BODIES: Final = frozenset({"application/json", "application/yaml", "application/x-yaml", "text/yaml"})
_OF_BROWSERS: Final = ("origin", "sec-fetch-site", "referer", "cookie")
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_MOST_CLIENTS: Final = 10_000

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules by which the service decides which callers it answers."""

    host: str
    """The address or name at which the service listens."""
    token: str = field(default="", repr=False)
    """The token. If it is empty, no token is needed, and only processes of this user and of root may call."""
    uses_tls: bool = False

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    def session(self, now: float) -> str:
        """Returns the value of a cookie that replaces the token for a limited time. It does not contain the token."""
        expires = str(int(now) + _SESSION_SECONDS)
        return f"{expires}.{self._signed(expires)}"

    def knows(self, headers: Mapping[str, str], now: float) -> bool:
        """Whether a request has the token or a valid cookie."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        expires, _, signed = cookie.value.partition(".") if cookie is not None else ("", "", "")
        if not (expires.isascii() and expires.isdigit() and len(expires) < 15 and int(expires) > now):
            return False
        return hmac.compare_digest(signed.encode(), self._signed(expires).encode())

    def is_token(self, given: str) -> bool:
        """Whether `given` is the token. A comparison takes equally long for all texts of one length."""
        return bool(self.token) and hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def _signed(self, text: str) -> str:
        return hmac.new(self.token.encode(), f"session {text}".encode(), hashlib.sha256).hexdigest()


@dataclass(slots=True)
class _RateLimit:
    left: float
    at: float


class AccessGuard:
    """The middleware. It refuses a request or passes it on, limits its body, and adds headers to each answer."""

    def __init__(self, app: ASGIApp, policy: Policy, clock: Callable[[], float] = time.monotonic) -> None:
        self._app, self._policy, self._clock = app, policy, clock
        self._buckets: dict[str, _RateLimit] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(one for one in added if one[0] not in known)]
            await send(message)

        try:
            self._check(scope)
        except Refusal as error:
            extra = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            # The body may not have arrived yet, and is not read. So the connection cannot be used for another request.
            await answer_error(error, {"Connection": "close", **(extra or {})})(scope, receive, with_headers)
            return
        await self._app(scope, _limited(receive), with_headers)

    def _check(self, scope: Scope) -> None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        self._check_host(headers)
        self._check_caller(scope, headers, path)
        if method not in _SAFE:
            self._check_page(headers)
            self._count(scope)
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 12) or int(length) > MOST_BODY:
            raise _too_long()

    def _check_host(self, headers: Headers) -> None:
        """Refuses host names that a web page may have pointed to this machine (DNS rebinding)."""
        if not self._policy.on_loopback:
            return  # then each request needs a token, which such a page does not have
        name = host_name(headers.get("host", ""))
        if name not in _LOOPBACK | {self._policy.host.lower()}:
            raise Refusal(
                "host-refused",
                403,
                "the request names a host that is not this machine's loopback",
                "Call the service as http://127.0.0.1:PORT/ or http://localhost:PORT/",
            )

    def _check_caller(self, scope: Scope, headers: Headers, path: str) -> None:
        if self._policy.token:
            if path in _OPEN or (scope["method"] in _SAFE and is_of_page(path)):
                return
            if not self._policy.knows(headers, time.time()):
                what = "the request needs the service's token"
                todo = "In a command, use --token-file FILE. A program sends FILE's token: Authorization: Bearer TOKEN"
                raise Refusal("token-needed", 401, what, todo)
            return
        client, server = scope.get("client"), scope.get("server")
        user = user_of(tuple(client), tuple(server)) if client and server else None
        if user not in {0, os.geteuid()}:
            who = "an unknown process" if user is None else f"user {user}"
            raise Refusal(
                "other-user",
                403,
                f"the service serves user {os.geteuid()} only, and the request comes from {who}",
                "Start the service with --token-file to allow other users",
            )

    def _check_page(self, headers: Headers) -> None:
        """Refuses a change that a foreign web page makes a browser send.

        A browser names the page (Origin, Sec-Fetch-Site or Referer) or sends the cookie. A request with none of these
        comes from a program, which no page can control.
        """
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, headers.get("host", "")):
            raise Refusal(
                "origin-refused", 403, "the request comes from a page of another origin", "Use the service's own page"
            )
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            raise Refusal(
                "origin-refused", 403, "the request comes from a page of another site", "Use the service's own page"
            )
        if not any(name in headers for name in _OF_BROWSERS):
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if kind in _BODIES or (headers.get("x-pidts") == "1" and not has_body):
            return
        raise Refusal(
            "csrf-refused",
            403,
            "a form on a foreign web page could have sent this change",
            "Send the header X-Pidts: 1, or a body as application/json or application/yaml",
        )

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        # If other machines connect and the service has no TLS, there may be a proxy with TLS in front of the service.
        schemes = {"https"} if self._policy.uses_tls else {"http"} if self._policy.on_loopback else {"http", "https"}
        return parts.scheme in schemes and parts.netloc.lower() == host.lower()

    def _count(self, scope: Scope) -> None:
        client, now = (scope.get("client") or ("", 0))[0], self._clock()
        if scope["path"] == LOGIN:  # a user who guesses tokens must not block changes of other users at this address
            client += LOGIN
        bucket = self._buckets.get(client)
        if bucket is None:
            if len(self._buckets) >= _MOST_CLIENTS:
                self._buckets.clear()
            bucket = self._buckets[client] = _RateLimit(CHANGES_PER_SECOND, now)
        bucket.left = min(CHANGES_PER_SECOND, bucket.left + (now - bucket.at) * CHANGES_PER_SECOND)
        bucket.at = now
        if bucket.left < 1:
            what = f"more than {CHANGES_PER_SECOND} changes in a second come from this address"
            raise Refusal("too-many-requests", 429, what, "Try again in a second")
        bucket.left -= 1


def is_of_page(path: str) -> bool:
    """Whether a path is a file of the page. These files contain nothing about the tasks."""
    return not path.startswith("/api/") and path not in {"/metrics", "/openapi.json"}


def host_name(host: str) -> str:
    """Returns the name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _too_long() -> Refusal:
    return Refusal("body-too-long", 413, f"a body has at most {MOST_BODY:,} bytes", "Send a shorter body")


def _limited(receive: Receive) -> Receive:
    """Returns a function that does the same as `receive`, and refuses a body of more than `MOST_BODY` bytes."""
    got = 0

    async def limited() -> Message:
        nonlocal got
        message = await receive()
        if message["type"] == "http.request":
            got += len(message.get("body", b""))
            if got > MOST_BODY:
                raise _too_long()
        return message

    return limited
