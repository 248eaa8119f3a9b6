"""The checks before each page, and the headers after it.

Only this machine reaches the inspector by itself. Behind a gateway, the gateway has checked key, right and host, and
proves that by a secret; then its headers name the tenant. A web page of another site can neither read a page (Host and
Origin are checked) nor change anything (the two actions need a token that only our pages have).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

__all__ = ["HEADERS", "PROOF_HEADER", "TENANT_HEADER", "VISITOR", "Visitor", "Watch", "WrongVisitor"]

PROOF_HEADER = "x-everlong-inspector"
"""The header by which a gateway proves that it is the one that started this process."""
TENANT_HEADER = "x-everlong-tenant"

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # With no-referrer, browsers would hide the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
}
"""Headers of every answer."""


class WrongVisitor(Exception):  # noqa: N818 - what becomes of a request
    """The refusal of a request; the message is for the person in front of the browser."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """The sender of a request that was let in."""

    tenant: str
    origin: str
    """The address of our own pages as the browser knows it."""


VISITOR = web.RequestKey("visitor", Visitor)
"""The key under which a request has its sender."""


@dataclass(frozen=True, slots=True)
class Watch:
    """The watch at the entrance.

    Args:
        tenant: The tenant whose conversations are shown without a gateway.
        proof: The secret of the gateway that passes requests on; empty without a gateway.
    """

    tenant: str = "local"
    proof: str = field(default="", repr=False)
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def admit(self, method: str, headers: Mapping[str, str]) -> Visitor:
        """Return the sender of a request; raise `WrongVisitor` if it may not see anything."""
        host = headers.get("Host", "")
        if self.proof:
            if not hmac.compare_digest(headers.get(PROOF_HEADER, "").encode(), self.proof.encode()):
                raise WrongVisitor("this inspector answers its gateway only; open /inspector at the gateway's address")
            tenant = headers.get(TENANT_HEADER, "")
            if not tenant:
                raise WrongVisitor("the gateway did not say whose conversations to show")
        else:
            tenant = self.tenant
            if not _is_this_machine(host):
                raise WrongVisitor(f"the inspector is not known as {host[:100]!r}; call it 127.0.0.1 or localhost")
        _check_origin(method, host, headers)
        return Visitor(tenant, host)

    def token(self, visitor: Visitor, action: str) -> str:
        """Return the token that a form for an action has to bring back."""
        said = f"{visitor.tenant}\n{action}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, said, hashlib.sha256).hexdigest()

    def check_token(self, visitor: Visitor, action: str, given: str) -> None:
        """Raise `WrongVisitor` unless a form brought the token of its action."""
        if not hmac.compare_digest(self.token(visitor, action).encode(), given.encode("utf-8", "surrogatepass")):
            raise WrongVisitor("this form is out of date or not one of ours; load the page again and repeat it")


def _check_origin(method: str, host: str, headers: Mapping[str, str]) -> None:
    """Refuse requests that a page of another site sends; following a link from there is allowed."""
    site = headers.get("Sec-Fetch-Site", "").strip().lower()
    is_link = method in {"GET", "HEAD"} and headers.get("Sec-Fetch-Mode", "").strip().lower() == "navigate"
    origin = headers.get("Origin")
    if origin is not None:
        try:
            named = urlsplit(origin).netloc.lower()
        except ValueError:
            named = ""
        if not named or named != host.lower():
            raise WrongVisitor("the page that sent this is not the inspector")
    elif method not in {"GET", "HEAD"} and site != "same-origin":
        raise WrongVisitor("a browser says which page sends a form; this request does not")
    if site in {"cross-site", "same-site"} and not is_link:
        raise WrongVisitor("the page that sent this is not the inspector")


def _is_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
