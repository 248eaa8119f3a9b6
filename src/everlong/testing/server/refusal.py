"""What the server throws inside when it will not take a request; each API gives it its own shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Refusal(Exception):  # noqa: N818 - not an error of the server but an answer to the client
    """An HTTP error: its status, the API's name for its kind, the words, and what else the API would send."""

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
