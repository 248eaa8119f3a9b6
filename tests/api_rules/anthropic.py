"""Refusals of the Anthropic Messages API: fields, roles, content, tools, thinking, pairs of call and result.

The checks take a decoded body and raise a `Refusal` in the API's words. Cache markers and the window are checked
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from everlong.testing.server.exchange import Refusal
from tests.api_rules.prompt_cache import anthropic_blocks_of
from tests.api_rules.seals import prefix_hash, token

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


THINKING = frozenset({"thinking", "redacted_thinking"})
_BINDING_MODELS = re.compile(r"(opus|sonnet)-5-5|(fable|mythos)-5-1")
_CHANGED = (
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must "
    "remain as they were in the original response."
)


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
        place = prefix_hash(body, at) if binds and not drops else None
        for index, block in enumerate(blocks):
            if block["type"] in THINKING:
                _check_block(block, f"messages.{at}.content.{index}", place)
    if config.get("type") == "enabled":
        _check_last_step(messages)


def _check_block(block: Mapping[str, Any], path: str, place: str | None) -> None:
    if block["type"] == "redacted_thinking":
        parts = str(block.get("data")).split(".")
        if len(parts) != 4 or token("r", parts[1], parts[2], "") != block["data"]:
            raise Refusal(f"{path}: Invalid `data` in `redacted_thinking` block")
        return
    parts = str(block.get("signature")).split(".")
    if len(parts) != 4 or parts[0] != "s":
        raise Refusal(f"{path}: Invalid `signature` in `thinking` block")
    if token("s", parts[1], parts[2], str(block.get("thinking"))) != block["signature"]:
        raise Refusal(f"{path}: {_CHANGED}")
    if place is not None and parts[2] != place:
        raise Refusal(
            f"{path}: this `thinking` block is bound to the content before it, which has changed; remove the block, or "
            'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block"'
        )


def _check_last_step(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a last step without its thinking, if thinking is on and tool results answer the step."""
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


_KNOWN = """
    model messages max_tokens system metadata stop_sequences stream temperature top_k top_p tools tool_choice thinking
    cache_control container context_management output_config service_tier speed inference_geo mcp_servers betas
    diagnostics user_profile_id workspace_id compaction
"""
_ANTHROPIC_RULES_FIELDS = frozenset(_KNOWN.split())
_KNOWN_OF_TOOL = """
    type name description input_schema cache_control strict defer_loading eager_input_streaming allowed_callers
    input_examples
"""
_TOOL_FIELDS = frozenset(_KNOWN_OF_TOOL.split())
_COUNT_FIELDS = _ANTHROPIC_RULES_FIELDS - {
    "max_tokens",
    "stream",
    "stop_sequences",
    "temperature",
    "top_k",
    "top_p",
    "metadata",
}
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
        if name not in (_COUNT_FIELDS if counting else _ANTHROPIC_RULES_FIELDS):
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
    check_markers(body)


_SCOPE_BETA = "prompt-caching-scope-2026-01-05"


def _check_scopes(body: Any, betas: str) -> None:
    if _SCOPE_BETA not in betas and (path := _find_scope(body)):
        raise Refusal(f"{path}.ephemeral.scope: Extra inputs are not permitted")


def _find_scope(value: Any, path: str = "") -> str:
    """Return the path of the first cache marker with a scope; empty if there is none."""
    if isinstance(value, dict):
        marker = value.get("cache_control")
        if isinstance(marker, dict) and "scope" in marker:
            return f"{path}cache_control"
    if not isinstance(value, dict | list):
        return ""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    return next((found for name, one in inner if (found := _find_scope(one, f"{path}{name}."))), "")


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
        answered = _answered_calls(blocks, at, waiting)
        missing = [call for call in waiting if call not in answered]
        if missing:
            raise Refusal(_describe_unanswered(waits_at, missing))
        waiting = []
        for block in blocks:
            if block["type"] == "tool_use":
                if block["id"] in seen:
                    raise Refusal(f"messages.{at}.content: `tool_use` ids must be unique")
                seen.add(block["id"])
                waiting.append(block["id"])
        waits_at = at
    if waiting:
        raise Refusal(_describe_unanswered(waits_at, waiting))


def _answered_calls(blocks: Sequence[Mapping[str, Any]], at: int, waiting: Sequence[str]) -> list[str]:
    """Return the calls that a message answers; its results must stand before all else."""
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
            raise Refusal(_describe_unanswered(at - 1, [call]))
        answered.append(call)
    return answered


def _describe_unanswered(at: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def check_markers(body: Mapping[str, Any]) -> None:
    """Refuse too many cache markers, and those in the wrong order or place."""
    for index, tool in enumerate(body.get("tools") or []):
        if tool.get("cache_control") is not None:
            check_marker(tool["cache_control"], f"tools.{index}.cache_control")
            if tool.get("defer_loading"):
                raise Refusal(f"tools.{index}.cache_control: cannot be set on a tool with `defer_loading`")
    automatic = body.get("cache_control")
    blocks = anthropic_blocks_of({name: value for name, value in body.items() if name != "cache_control"})
    ttls = [block.ttl for block in blocks if block.ttl is not None]
    if len(ttls) + (automatic is not None) > 4:
        raise Refusal(
            f"A maximum of 4 blocks with cache_control may be provided. Found {len(ttls) + (automatic is not None)}."
        )
    if automatic is not None:
        check_marker(automatic, "cache_control")
        if blocks[-1].ttl not in {None, automatic.get("ttl", "5m")}:
            raise Refusal("cache_control: the last block is marked with another ttl than the automatic marker")
        ttls.append(automatic.get("ttl", "5m"))
    if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
        raise Refusal(
            "cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. "
            "Note that blocks are processed in the following order: `tools`, `system`, `messages`."
        )
