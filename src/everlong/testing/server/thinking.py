"""Thinking blocks: how the server signs them, and that they come back as they were.

A signature covers the thinking's text and, for models that bind it, everything that stood before it. It can be checked
without remembering anything, so a conversation may go on with another server.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from everlong.testing.server.refusal import Refusal

__all__ = ["THINKING", "check_thinking", "redacted", "signed"]

THINKING = frozenset({"thinking", "redacted_thinking"})
_SECRET = b"the test server's own seal"
_BINDING_MODELS = re.compile(r"(opus|sonnet)-5-5|(fable|mythos)-5-1")
_CHANGED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)


def signed(text: str, body: Mapping[str, Any], nonce: str) -> str:
    """The signature of a thinking block in the answer to this request."""
    place = _prefix_hash(body, len(body["messages"]))
    return _token("s", nonce, place, text)


def redacted(data: str, nonce: str) -> str:
    """The data of a redacted block, sealed like a signature."""
    return _token("r", nonce, base64.urlsafe_b64encode(data.encode()).decode(), "")


def check_thinking(body: Mapping[str, Any]) -> None:
    """Refuse thinking that was changed, is out of place or is missing."""
    messages = body["messages"]
    config = body.get("thinking") or {}
    binds = bool(_BINDING_MODELS.search(str(body.get("model"))))
    binding = config.get("block_binding") or {}
    drops = binding.get("prefix_mismatch_behavior") == "drop_block"
    for at, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        kinds = [block["type"] for block in blocks]
        if not THINKING & set(kinds):
            continue
        if message["role"] != "assistant":
            raise Refusal(f"messages.{at}.content: thinking blocks may only be in `assistant` messages")
        if kinds[0] not in THINKING:
            raise Refusal(
                f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`."
            )
        if kinds[-1] in THINKING:
            raise Refusal(f"messages.{at}: The final block in an assistant message cannot be `{kinds[-1]}`.")
        place = _prefix_hash(body, at) if binds and not drops else None
        for index, block in enumerate(blocks):
            if block["type"] in THINKING:
                _check_block(block, f"messages.{at}.content.{index}", place)
    if config.get("type") == "enabled":
        _check_last_step(messages)


def _check_block(block: Mapping[str, Any], path: str, place: str | None) -> None:
    if block["type"] == "redacted_thinking":
        parts = str(block.get("data")).split(".")
        if len(parts) != 4 or _token("r", parts[1], parts[2], "") != block["data"]:
            raise Refusal(f"{path}: Invalid `data` in `redacted_thinking` block")
        return
    parts = str(block.get("signature")).split(".")
    if len(parts) != 4 or parts[0] != "s":
        raise Refusal(f"{path}: Invalid `signature` in `thinking` block")
    if _token("s", parts[1], parts[2], str(block.get("thinking"))) != block["signature"]:
        raise Refusal(f"{path}: {_CHANGED}")
    if place is not None and parts[2] != place:
        raise Refusal(
            f"{path}: this `thinking` block is bound to the content before it, which has changed; remove the block, or "
            'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block"'
        )


def _check_last_step(messages: Sequence[Mapping[str, Any]]) -> None:
    """With thinking on, the step that tool results answer must have its thinking."""
    if messages[-1]["role"] != "user" or not isinstance(messages[-1]["content"], list):
        return
    if not any(block["type"] == "tool_result" for block in messages[-1]["content"]):
        return
    at = len(messages) - 2
    first = messages[at]["content"][0]["type"]
    if first not in THINKING:
        raise Refusal(
            f"messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the "
            "lastmost set of `tool_use` and `tool_result` blocks). To avoid this requirement, disable `thinking`."
        )


def _prefix_hash(body: Mapping[str, Any], end: int) -> str:
    before = [body.get("tools"), body.get("system"), body["messages"][:end]]
    text = json.dumps(_unmarked(before), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get("content"), str) and "role" in value:
            value = {**value, "content": [{"type": "text", "text": value["content"]}]}
        return {name: _unmarked(item) for name, item in value.items() if name != "cache_control"}
    return [_unmarked(item) for item in value] if isinstance(value, list) else value


def _token(kind: str, nonce: str, place: str, text: str) -> str:
    seal = hmac.new(_SECRET, f"{kind}\0{nonce}\0{place}\0{text}".encode(), hashlib.sha256).digest()
    return f"{kind}.{nonce}.{place}.{base64.urlsafe_b64encode(seal[:18]).decode()}"
