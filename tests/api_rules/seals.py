"""Signatures of thinking and encrypted content, as the server writes them and knows them again."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

_SECRET = b"the test server's own seal"


def sign(text: str, body: Mapping[str, Any], nonce: str) -> str:
    """Return the signature of a thinking block in the answer to this request."""
    place = prefix_hash(body, len(body["messages"]))
    return token("s", nonce, place, text)


def redact(data: str, nonce: str) -> str:
    """Return the data of a redacted block, sealed like a signature."""
    return token("r", nonce, base64.urlsafe_b64encode(data.encode()).decode(), "")


def prefix_hash(body: Mapping[str, Any], end: int) -> str:
    """Return the hash of a prompt up to a message, without its markers."""
    before = [body.get("tools"), body.get("system"), body["messages"][:end]]
    text = json.dumps(_strip_markers(before), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _strip_markers(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("content"), str) and "role" in value:
            value = {**value, "content": [{"type": "text", "text": value["content"]}]}
        return {name: _strip_markers(item) for name, item in value.items() if name != "cache_control"}
    return [_strip_markers(item) for item in value] if isinstance(value, list) else value


def token(kind: str, nonce: str, place: str, text: str) -> str:
    """Return the token that proves where and by whom a text was made."""
    seal = hmac.new(_SECRET, f"{kind}\0{nonce}\0{place}\0{text}".encode(), hashlib.sha256).digest()
    return f"{kind}.{nonce}.{place}.{base64.urlsafe_b64encode(seal[:18]).decode()}"


def seal(kind: str, text: str) -> str:
    """Return a text as encrypted content that only the server can make and read again."""
    inner = base64.urlsafe_b64encode(text.encode()).decode()
    seal = hmac.new(_SECRET, f"{kind}\0{inner}".encode(), hashlib.sha256).hexdigest()[:24]
    return f"{kind}.{inner}.{seal}"


def unseal(kind: str, content: Any) -> str | None:
    """Return the text of encrypted content; None if the server did not make it."""
    parts = content.split(".") if isinstance(content, str) else []
    if len(parts) != 3 or parts[0] != kind:
        return None
    try:
        text = base64.urlsafe_b64decode(parts[1].encode()).decode()
    except ValueError:
        return None
    return text if hmac.compare_digest(seal(kind, text), str(content)) else None
