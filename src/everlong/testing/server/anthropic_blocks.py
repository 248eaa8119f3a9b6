"""What the Anthropic API refuses of a single content block: its type, its fields, their values."""

from __future__ import annotations

import re
from typing import Any

from everlong.testing.server.refusal import Refusal

__all__ = ["check_block", "check_marker"]

_FIELDS: dict[str, str] = {
    "text": "type text cache_control citations",
    "image": "type source cache_control transformations",
    "document": "type source cache_control citations context title",
    "search_result": "type source title content cache_control citations",
    "tool_use": "type id name input cache_control caller",
    "tool_result": "type tool_use_id content is_error cache_control",
    "thinking": "type thinking signature",
    "redacted_thinking": "type data",
}
_ALLOWED = {
    "system": {"text"},
    "user": {"text", "image", "document", "search_result", "tool_result"},
    "assistant": {"text", "tool_use", "thinking", "redacted_thinking", "document", "image", "search_result"},
    "tool_result": {"text", "image", "document", "search_result"},
}
_ID = re.compile(r"[a-zA-Z0-9_-]+")


def check_block(block: Any, path: str, where: str) -> None:
    """Refuse a block that may not stand ``where`` it does: a role, ``system`` or inside a ``tool_result``."""
    if not isinstance(block, dict):
        raise Refusal(f"{path}: Input should be a valid dictionary or object to extract fields from")
    kind = block.get("type")
    if kind is None:
        raise Refusal(f"{path}.type: Field required")
    if kind not in _ALLOWED[where]:
        tags = ", ".join(f"'{tag}'" for tag in sorted(_ALLOWED[where]))
        raise Refusal(f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}")
    extra = block.keys() - set(_FIELDS[kind].split())
    if extra:
        raise Refusal(f"{path}.{kind}.{min(extra)}: Extra inputs are not permitted")
    if "cache_control" in block:
        check_marker(block["cache_control"], f"{path}.cache_control")
        if where == "tool_result":
            raise Refusal(f"{path}.{kind}.cache_control: nested content cannot be cached; mark the `tool_result` block")
    _CHECKS.get(kind, _any)(block, f"{path}.{kind}")


def check_marker(marker: Any, path: str) -> None:
    """Refuse a cache marker of another form."""
    if marker is None:
        return
    if not isinstance(marker, dict) or marker.get("type") != "ephemeral":
        raise Refusal(f"{path}: Input tag found using 'type' does not match any of the expected tags: 'ephemeral'")
    if extra := marker.keys() - {"type", "ttl", "scope"}:
        raise Refusal(f"{path}.ephemeral.{min(extra)}: Extra inputs are not permitted")
    if marker.get("scope") not in {None, "global"}:
        raise Refusal(f"{path}.ephemeral.scope: Input should be 'global'")
    if marker.get("ttl", "5m") not in {"5m", "1h"}:
        raise Refusal(f"{path}.ephemeral.ttl: Input should be '5m' or '1h'")


def _text(block: dict[str, Any], path: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        raise Refusal(f"{path}.text: {'Field required' if text is None else 'Input should be a valid string'}")
    if not text and block.get("cache_control"):
        raise Refusal(f"{path}: cache_control cannot be set for empty text blocks")
    where = path.split(".", 1)[0]
    if not text:
        raise Refusal(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        raise Refusal(f"{where}: text content blocks must contain non-whitespace text")


def _tool_use(block: dict[str, Any], path: str) -> None:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        raise Refusal(f"{path}.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not isinstance(block.get("name"), str) or not re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", block["name"]):
        raise Refusal(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'")
    if not isinstance(block.get("input"), dict):
        raise Refusal(f"{path}.input: {'Input should be a valid dictionary' if 'input' in block else 'Field required'}")


def _tool_result(block: dict[str, Any], path: str) -> None:
    if not isinstance(block.get("tool_use_id"), str) or not _ID.fullmatch(block["tool_use_id"]):
        raise Refusal(f"{path}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    content = block.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refusal(f"{path}.content: Input should be a valid list")
    for index, part in enumerate(content):
        check_block(part, f"{path}.content.{index}", "tool_result")


def _thinking(block: dict[str, Any], path: str) -> None:
    for name in ("thinking", "signature"):
        if not isinstance(block.get(name), str):
            raise Refusal(f"{path}.{name}: Field required")


def _image(block: dict[str, Any], path: str) -> None:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") not in {"base64", "url", "file"}:
        raise Refusal(f"{path}.source: Input tag found using 'type' does not match any of the expected tags")


def _any(block: dict[str, Any], path: str) -> None:
    del block, path


_CHECKS = {
    "text": _text,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "thinking": _thinking,
    "image": _image,
}
