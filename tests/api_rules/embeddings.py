"""The embeddings API: the rules of a request, and vectors that lie close together for texts that share words.

A vector counts the words of a text by a hash. So nothing but the words decides, and no model is needed.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import struct
from collections.abc import Mapping
from typing import Any

from everlong.testing import ModelServer
from everlong.testing.server.exchange import Record, Refusal, fault_refusal
from everlong.testing.server.http import ServerReply, check_key, damage, error_reply, identity, parse_body

PATH = "/v1/embeddings"
SIZE = 64
"""The numbers of a vector."""

_MOST_INPUTS = 2_048
_WORD = re.compile(r"\w+")


def check_embeddings(body: Any) -> list[str]:
    """Return the texts of a request; raise `Refusal` as the API would."""
    if not isinstance(body, dict) or not isinstance(body.get("model"), str) or not body["model"]:
        raise Refusal("you must provide a model parameter", param="model")
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal("'$.input' is invalid: it must be a text or a list of texts", param="input")
    if any(not text for text in texts):
        raise Refusal("'$.input' is invalid: a text is empty", param="input")
    if len(texts) > _MOST_INPUTS:
        raise Refusal(
            f"'$.input' is invalid: {len(texts)} texts, and at most {_MOST_INPUTS} are allowed", param="input"
        )
    if body.get("encoding_format", "float") not in {"float", "base64"}:
        raise Refusal("encoding_format is float or base64", param="encoding_format")
    return texts


def embeddings(texts: list[str], body: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to a request that keeps the rules."""
    tokens = sum(len(_WORD.findall(text)) for text in texts)
    data = []
    for place, text in enumerate(texts):
        vector: Any = vector_of(text)
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{SIZE}f", *vector)).decode()
        data.append({"object": "embedding", "index": place, "embedding": vector})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}


def vector_of(text: str) -> list[float]:
    """Return the counts of a text's words by hash, as a vector of length 1."""
    counts = [1e-3] * SIZE
    for word in _WORD.findall(text.lower()):
        counts[hashlib.sha256(word.encode()).digest()[0] % SIZE] += 1.0
    length = math.sqrt(sum(count * count for count in counts))
    return [count / length for count in counts]


def embeddings_reply(server: ModelServer, raw: bytes, headers: Mapping[str, str]) -> ServerReply:
    """Return the reply to a request for embeddings; it is recorded like one for a completion and meets faults."""
    body, problem = parse_body(raw)
    record, fault = server.record_request(
        lambda number: Record(number, "openai", PATH, dict(headers), body if isinstance(body, dict) else {})
    )
    try:
        check_key(server, "openai", headers)
        texts = check_embeddings(body if problem is None else None)
        if fault is not None:
            record.fault = record.error = fault.kind
            if fault.kind == "silent":
                return ServerReply(silent_seconds=fault.seconds)
            refusal = fault_refusal(fault, "openai")
            if refusal is not None:
                raise refusal
    except Refusal as refusal:
        record.status, record.error = refusal.status, refusal.message
        return error_reply("openai", refusal, record.number)
    whole = embeddings(texts, record.body)
    record.status, record.usage = 200, whole["usage"]
    reply = ServerReply(200, whole, identity("openai", record.number))
    return reply if fault is None else damage(reply, fault, "openai", record.number)
