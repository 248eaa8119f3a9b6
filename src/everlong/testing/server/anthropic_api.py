"""Answers in the shape of the Anthropic Messages API: whole, as a stream of events, and as errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from everlong.testing.server.exchange import CacheCharge, Refusal, count_text, count_value, seal
from everlong.testing.server.script import Answer

__all__ = ["error_body", "events", "message", "models"]


def error_body(refusal: Refusal, request_id: str) -> dict[str, Any]:
    """Return an error as the API sends it."""
    error = {"type": refusal.kind, "message": refusal.message, **refusal.extra}
    return {"type": "error", "error": error, "request_id": request_id}


def message(answer: Answer, body: Mapping[str, Any], charge: CacheCharge, number: int) -> dict[str, Any]:
    """Return a whole answer."""
    content = _content(answer, body, number)
    output = sum(count_value(block) for block in content)
    thought = sum(count_value(block) for block in content if "thinking" in block["type"])
    most = body.get("max_tokens") or 0
    cut = output > most
    usage = {
        "input_tokens": charge.plain,
        "cache_creation_input_tokens": charge.written,
        "cache_read_input_tokens": charge.read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": charge.write_5m,
            "ephemeral_1h_input_tokens": charge.write_1h,
        },
        "output_tokens": min(output, most),
        "output_tokens_details": {"thinking_tokens": min(thought, most)},
        "service_tier": "standard",
    }
    return {
        "id": f"msg_{number:024d}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": _shorten(content, most) if cut else content,
        "stop_reason": answer.stop or _reason(answer, cut),
        "stop_sequence": None,
        "usage": usage,
    }


def sign(text: str, body: Mapping[str, Any], nonce: str) -> str:
    """Return the signature of a thinking block in the answer to a request."""
    del body
    return seal(nonce, text)


def redact(data: str, nonce: str) -> str:
    """Return the data of a redacted block."""
    return seal(nonce, data)


def _reason(answer: Answer, cut: bool) -> str:
    if answer.refused:
        return "refusal"
    return "max_tokens" if cut else "tool_use" if answer.calls else "end_turn"


def _content(answer: Answer, body: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = []
    if answer.thinking is not None:
        omitted = (body.get("thinking") or {}).get("display") == "omitted"
        text = "" if omitted else answer.thinking
        content.append({"type": "thinking", "thinking": text, "signature": sign(text, body, f"t{number}")})
    if answer.redacted_thinking is not None:
        content.append({"type": "redacted_thinking", "data": redact(answer.redacted_thinking, f"d{number}")})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    for index, call in enumerate(answer.calls):
        identifier = call.id or f"toolu_{number:08d}{index:04d}"
        arguments = call.arguments if not isinstance(call.arguments, str) else json.loads(call.arguments)
        content.append({"type": "tool_use", "id": identifier, "name": call.name, "input": arguments})
    return content


def _shorten(content: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return as much of an answer as the limit allows; text is cut, and calls beyond it are left out."""
    kept: list[dict[str, Any]] = []
    for block in content:
        if count_value(block) <= most:
            kept.append(block)
            most -= count_value(block)
            continue
        if block["type"] == "text":
            text = block["text"]
            while text and count_text(text) > most:
                text = text[: len(text) * 3 // 4]
            kept += [{**block, "text": text}] if text.strip() else []
        break
    return kept


def events(whole: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events of a stream that adds up to an answer, in the API's order."""
    usage = {**whole["usage"], "output_tokens": 1}
    start = {**whole, "content": [], "stop_reason": None, "usage": usage}
    yield "message_start", {"type": "message_start", "message": start}
    yield "ping", {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        empty, deltas = _deltas(block)
        yield "content_block_start", {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield "content_block_delta", {"type": "content_block_delta", "index": index, "delta": delta}
        yield "content_block_stop", {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": whole["stop_sequence"]}
    yield "message_delta", {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
    yield "message_stop", {"type": "message_stop"}


def _deltas(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if block["type"] == "text":
        return {**block, "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    if block["type"] == "thinking":
        thought = [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
        seal = {"type": "signature_delta", "signature": block["signature"]}
        return {**block, "thinking": "", "signature": ""}, [*thought, seal]
    if block["type"] == "tool_use":
        text = json.dumps(block["input"], ensure_ascii=False)
        parts = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text)]]
        return {**block, "input": {}}, parts
    return dict(block), []


def pieces(text: str, count: int = 6) -> list[str]:
    """Return a text in a few pieces."""
    size = max(1, -(-len(text) // count))
    return [text[at : at + size] for at in range(0, len(text), size)]


def models(names: list[str], window: int) -> dict[str, Any]:
    """Return the list of models."""
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": window,
            "max_tokens": window // 2,
        }
        for name in names
    ]
    ends = {"first_id": names[0], "last_id": names[-1]} if names else {"first_id": None, "last_id": None}
    return {"data": data, "has_more": False, **ends}
