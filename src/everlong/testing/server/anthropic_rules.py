"""What the Anthropic Messages API refuses, and in which words: fields, roles, content, tools, pairs of call and result.

Thinking, cache markers and the window are checked by modules of their own. This one takes a decoded body and returns
nothing: a body that passes may be answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from everlong.testing.server.anthropic_blocks import check_block
from everlong.testing.server.refusal import Refusal
from everlong.testing.server.thinking import check_thinking

__all__ = ["check_anthropic"]

_KNOWN = """
    model messages max_tokens system metadata stop_sequences stream temperature top_k top_p tools tool_choice thinking
    cache_control container context_management output_config service_tier speed inference_geo mcp_servers betas
    diagnostics user_profile_id workspace_id compaction
"""
_FIELDS = frozenset(_KNOWN.split())
_KNOWN_OF_TOOL = """
    type name description input_schema cache_control strict defer_loading eager_input_streaming allowed_callers
    input_examples
"""
_TOOL_FIELDS = frozenset(_KNOWN_OF_TOOL.split())
_COUNT_FIELDS = _FIELDS - {"max_tokens", "stream", "stop_sequences", "temperature", "top_k", "top_p", "metadata"}
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_PREFILL_MODELS = re.compile(r"claude-(2|3|instant|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$)")


def check_anthropic(body: Any, *, betas: str = "", counting: bool = False, alternate_roles: bool = False) -> None:
    """Refuse a body as the API would.

    Args:
        body: the request.
        betas: the features of its ``anthropic-beta`` header.
        counting: for ``/v1/messages/count_tokens``, which wants less.
        alternate_roles: whether two messages of one role in a row are refused.
    """
    if not isinstance(body, dict):
        raise Refusal("Input should be a valid dictionary or object to extract fields from")
    for name in body:
        if name not in (_COUNT_FIELDS if counting else _FIELDS):
            raise Refusal(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refusal("model: Field required" if "model" not in body else "model: Input should be a valid string")
    if not counting:
        _check_max_tokens(body)
        _check_thinking_config(body)
    _check_system(body.get("system"))
    _check_tools(body)
    messages = body.get("messages")
    if messages is None:
        raise Refusal("messages: Field required")
    if not isinstance(messages, list):
        raise Refusal("messages: Input should be a valid list")
    if not messages:
        raise Refusal("messages: at least one message is required")
    for at, message in enumerate(messages):
        _check_message(message, at, is_last=at == len(messages) - 1)
    _check_roles(messages, str(body["model"]), alternate_roles)
    _check_pairs(messages)
    check_thinking(body)
    _check_scopes(body, betas)


_SCOPE_BETA = "prompt-caching-scope-2026-01-05"


def _check_scopes(body: Any, betas: str) -> None:
    if _SCOPE_BETA not in betas and (path := _scoped(body)):
        raise Refusal(f"{path}.ephemeral.scope: Extra inputs are not permitted")


def _scoped(value: Any, path: str = "") -> str:
    """Return where the first cache marker with a scope stands; empty where there is none."""
    if isinstance(value, dict):
        marker = value.get("cache_control")
        if isinstance(marker, dict) and "scope" in marker:
            return f"{path}cache_control"
    if not isinstance(value, dict | list):
        return ""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return next((found for name, one in inner if (found := _scoped(one, f"{path}{name}."))), "")


def _check_max_tokens(body: Mapping[str, Any]) -> None:
    if "max_tokens" not in body:
        raise Refusal("max_tokens: Field required")
    most = body["max_tokens"]
    if not isinstance(most, int) or isinstance(most, bool):
        raise Refusal("max_tokens: Input should be a valid integer")
    if most < 0:
        raise Refusal("max_tokens: Input should be greater than or equal to 0")
    forced = (body.get("tool_choice") or {}).get("type") in {"any", "tool"}
    thinks = (body.get("thinking") or {}).get("type", "disabled") != "disabled"
    if most == 0 and (body.get("stream") or forced or thinks):
        raise Refusal("max_tokens: 0 may not be used with streaming, thinking or a forced tool choice")


def _check_thinking_config(body: Mapping[str, Any]) -> None:
    config = body.get("thinking")
    if config is None:
        return
    kind = config.get("type") if isinstance(config, dict) else None
    if kind not in {"enabled", "disabled", "adaptive", "between_tools"}:
        raise Refusal(
            f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags: 'adaptive', "
            "'between_tools', 'disabled', 'enabled'"
        )
    if kind == "enabled":
        budget = config.get("budget_tokens")
        if not isinstance(budget, int):
            raise Refusal("thinking.enabled.budget_tokens: Field required")
        if budget < 1024:
            raise Refusal("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body["max_tokens"]:
            raise Refusal("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if kind != "disabled" and (body.get("tool_choice") or {}).get("type") in {"any", "tool"}:
        raise Refusal("Thinking may not be enabled when tool_choice forces tool use.")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    if not isinstance(system, list):
        raise Refusal("system: Input should be a valid string or list")
    for index, block in enumerate(system):
        check_block(block, f"system.{index}", "system")


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    choice = body.get("tool_choice")
    if choice is not None and not tools:
        raise Refusal("tool_choice: may only be specified while providing tools")
    names = []
    for index, tool in enumerate(tools or []):
        if tool.get("type", "custom") != "custom":
            names.append(tool.get("name"))
            continue
        extra = tool.keys() - _TOOL_FIELDS
        if extra:
            raise Refusal(f"tools.{index}.custom.{min(extra)}: Extra inputs are not permitted")
        if not isinstance(tool.get("name"), str) or not _TOOL_NAME.fullmatch(tool["name"]):
            raise Refusal(f"tools.{index}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        schema = tool.get("input_schema")
        if not isinstance(schema, dict):
            raise Refusal(f"tools.{index}.custom.input_schema: Field required")
        if schema.get("type") != "object":
            raise Refusal(f"tools.{index}.custom.input_schema.type: Input should be 'object'")
        names.append(tool["name"])
    if len(set(names)) != len(names):
        raise Refusal("tools: Tool names must be unique.")
    if choice is not None and choice.get("type") == "tool" and choice.get("name") not in names:
        raise Refusal(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")


def _check_message(message: Any, at: int, *, is_last: bool) -> None:
    if not isinstance(message, dict):
        raise Refusal(f"messages.{at}: Input should be a valid dictionary")
    role = message.get("role")
    if role not in {"user", "assistant", "system"}:
        raise Refusal(f"messages.{at}.role: Input should be 'user', 'assistant' or 'system'")
    extra = message.keys() - {"role", "content"}
    if extra:
        raise Refusal(f"messages.{at}.{min(extra)}: Extra inputs are not permitted")
    content = message.get("content")
    if not isinstance(content, str | list):
        raise Refusal(f"messages.{at}.content: Input should be a valid {'list' if content is not None else 'string'}")
    if not content and not (is_last and role == "assistant"):
        raise Refusal(
            f"messages.{at}: all messages must have non-empty content except for the optional final assistant message"
        )
    if isinstance(content, str):
        if content and not content.strip():
            raise Refusal("messages: text content blocks must contain non-whitespace text")
        return
    for index, block in enumerate(content):
        check_block(block, f"messages.{at}.content.{index}", role)


def _check_roles(messages: Sequence[Mapping[str, Any]], model: str, alternate: bool) -> None:
    if messages[0]["role"] != "user":
        raise Refusal('messages: first message must use the "user" role')
    if alternate:
        for before, after in pairwise(messages):
            if before["role"] == after["role"]:
                raise Refusal(
                    'messages: roles must alternate between "user" and "assistant", but found multiple '
                    f'"{after["role"]}" roles in a row'
                )
    last = messages[-1]
    if last["role"] != "assistant":
        return
    if not _PREFILL_MODELS.match(model):
        raise Refusal(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    text = last["content"] if isinstance(last["content"], str) else str(last["content"][-1].get("text", ""))
    if text != text.rstrip():
        raise Refusal("messages: final assistant content cannot end with trailing whitespace")


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    waiting: list[str] = []
    waits_at = 0
    for at, message in enumerate(messages):
        blocks = message["content"] if isinstance(message["content"], list) else []
        answered = _answered(blocks, at, waiting)
        missing = [call for call in waiting if call not in answered]
        if missing:
            raise Refusal(_unanswered(waits_at, missing))
        waiting = []
        for block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    raise Refusal(f"messages.{at}.content: `tool_use` ids must be unique")
                seen.add(block["id"])
                waiting.append(block["id"])
        waits_at = at
    if waiting:
        raise Refusal(_unanswered(waits_at, waiting))


def _answered(blocks: Sequence[Mapping[str, Any]], at: int, waiting: Sequence[str]) -> list[str]:
    """The calls that a message answers, with its results standing before all else."""
    answered: list[str] = []
    after_text = False
    for index, block in enumerate(blocks):
        if block["type"] != "tool_result":
            after_text = True
            continue
        call = block["tool_use_id"]
        if call not in waiting:
            raise Refusal(
                f"messages.{at}.content.{index}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        if call in answered:
            raise Refusal(
                f"messages.{at}.content.{index}: each tool_use must have a single result. Found multiple "
                f"`tool_result` blocks with id: {call}"
            )
        if after_text:
            raise Refusal(_unanswered(at - 1, [call]))
        answered.append(call)
    return answered


def _unanswered(at: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
