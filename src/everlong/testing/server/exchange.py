"""One exchange with the server: the API it speaks, the record of the request, its bill, and the refusal."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Api = Literal["openai", "anthropic", "responses"]
"""The API whose rules a request must keep: chat completions, messages, responses."""


def seal(kind: str, text: str) -> str:
    """Return a text as the encrypted content of an answer."""
    return f"{kind}.{base64.urlsafe_b64encode(text.encode()).decode()}"


def unseal(kind: str, content: Any) -> str | None:
    """Return the text of encrypted content; None if it is none of this kind."""
    found, _, inner = content.partition(".") if isinstance(content, str) else ("", "", "")
    try:
        return base64.urlsafe_b64decode(inner.encode()).decode() if found == kind else None
    except ValueError:
        return None


@dataclass(slots=True)
class Record:
    """One request, and its result."""

    number: int
    """The number of this request for a completion, from 0."""
    api: Api
    path: str
    headers: dict[str, str]
    """The headers, with names in lower case."""
    body: dict[str, Any]
    status: int = 0
    """The HTTP status that was sent; 0 if the connection was dropped before."""
    error: str | None = None
    """The words of the refusal or the fault."""
    fault: str | None = None
    """The kind of the fault that was made on purpose."""
    prompt_tokens: int = 0
    usage: dict[str, Any] = field(default_factory=dict)
    """The usage that was reported, in the shape of the API."""

    @property
    def rejected(self) -> bool:
        """True if the server itself refused the request."""
        return self.error is not None and self.fault is None


@dataclass(frozen=True, slots=True)
class CacheCharge:
    """The billing of a prompt's tokens; those neither read nor written are plain input."""

    total: int
    read: int = 0
    write_5m: int = 0
    write_1h: int = 0

    @property
    def written(self) -> int:
        """All tokens that were written to the cache."""
        return self.write_5m + self.write_1h

    @property
    def plain(self) -> int:
        """Tokens at the plain price."""
        return self.total - self.read - self.written


class Refusal(Exception):  # noqa: N818 - not an error of the server but an answer to the client
    """An HTTP error: its status, the API's name for its kind, the words, and further fields."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | int | None = None,
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})
