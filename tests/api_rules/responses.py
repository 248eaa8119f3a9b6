"""Refusals of the OpenAI Responses API: fields, items, content, pairs of call and result, reasoning.

Other servers that speak the format are laxer about fields; ``dialect`` says which one is played. The window is checked
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from everlong.testing.server.exchange import Dialect, Refusal
from tests.api_rules.seals import unseal

_KNOWN = """
    background client_metadata context_management conversation include input instructions max_output_tokens
    max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream stream_options
    temperature text tool_choice tools top_logprobs top_p truncation user
"""
_FIELDS = frozenset(_KNOWN.split())
_ROLES = ("assistant", "system", "developer", "user")
_ITEM_FIELDS: dict[str, str] = {
    "message": "type id role content status phase",
    "reasoning": "type id summary content encrypted_content status",
    "function_call": "type id call_id name arguments status namespace",
    "function_call_output": "type id call_id output status",
    "custom_tool_call": "type id call_id name input status namespace",
    "custom_tool_call_output": "type id call_id output status",
    "web_search_call": "type id status action",
    "local_shell_call": "type id call_id action status",
    "local_shell_call_output": "type id call_id output status",
    "compaction": "type id encrypted_content created_by",
    "compaction_trigger": "type",
}
_ANY_ITEM = frozenset({"internal_chat_message_metadata_passthrough"})
"""Fields that Codex writes on items for its maker's own API."""
_COMPACTING = frozenset({"compaction", "compaction_trigger"})
_PART_FIELDS = {
    "input_text": {"type", "text", "prompt_cache_breakpoint"},
    "input_image": {"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"},
    "input_file": {"type", "file_id", "file_url", "file_data", "filename", "prompt_cache_breakpoint"},
    "output_text": {"type", "text", "annotations", "logprobs"},
    "refusal": {"type", "refusal"},
}
_ASSISTANT_PARTS = ("output_text", "refusal")
_OTHER_PARTS = ("input_text", "input_image", "input_file")
_CALLS = {"function_call": "function call", "custom_tool_call": "custom tool call", "local_shell_call": "shell call"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_responses(body: Any, dialect: Dialect = "openai", *, knows_compaction: bool = False) -> None:
    """Refuse a body as the API would."""
    if not isinstance(body, dict):
        raise Refusal("We could not parse the JSON body of your request.")
    _check_fields(body, is_strict=dialect == "openai", knows_compaction=knows_compaction)
    _check_tools(body)
    items = body.get("input")
    if isinstance(items, str) and items:
        return
    if not isinstance(items, list):
        raise _missing("input")
    if not items:
        raise Refusal("Invalid 'input': empty array.", param="input", code="empty_array")
    for at, item in enumerate(items):
        _check_item(item, f"input[{at}]", dialect == "openai", knows_compaction)
        if item.get("type") == "compaction_trigger" and at != len(items) - 1:
            raise Refusal("'compaction_trigger' must be the last input item.", param=f"input[{at}]")
    _check_pairs(items)
    _check_reasoning(items, is_stored=bool(body.get("store", True)))


def _check_fields(body: Mapping[str, Any], *, is_strict: bool, knows_compaction: bool) -> None:
    for name in body if is_strict else ():
        if name not in _FIELDS:
            raise _unknown(name)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise _missing("model")
    for name in ("previous_response_id", "conversation"):
        if body.get(name) is not None:
            raise Refusal(f"'{body[name]}' not found.", status=404, param=name, code=f"{name}_not_found")
    if body.get("context_management") is not None and not knows_compaction:
        raise _unknown("context_management")


def _unknown(path: str) -> Refusal:
    return Refusal(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def _missing(path: str) -> Refusal:
    return Refusal(f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter")


def _invalid(value: Any, path: str, supported: Sequence[str]) -> Refusal:
    listed = ", ".join(f"'{one}'" for one in supported)
    return Refusal(f"Invalid value: '{value}'. Supported values are: {listed}.", param=path, code="invalid_value")


def _check_tools(body: Mapping[str, Any]) -> None:
    for index, tool in enumerate(body.get("tools") or []):
        path = f"tools[{index}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise _missing(f"{path}.type")
        if tool["type"] in {"function", "custom"} and not _NAME.fullmatch(str(tool.get("name"))):
            raise _missing(f"{path}.name")
        parameters = tool.get("parameters")
        if isinstance(parameters, dict) and parameters.get("type") != "object":
            raise Refusal(
                f"Invalid schema for function '{tool.get('name')}': schema must be a JSON Schema of 'type: \"object\"'",
                param=f"{path}.parameters",
                code="invalid_function_parameters",
            )


def _check_item(item: Any, path: str, strict: bool, knows_compaction: bool) -> None:
    if not isinstance(item, dict):
        raise Refusal(f"Invalid type for '{path}': expected an object.", param=path, code="invalid_type")
    kind = item.get("type", "message")
    known = [name for name in _ITEM_FIELDS if knows_compaction or name not in _COMPACTING]
    if kind not in known:
        raise _invalid(kind, f"{path}.type" if "type" in item else path, known)
    extra = item.keys() - set(_ITEM_FIELDS[kind].split()) - _ANY_ITEM
    if strict and extra:
        raise _unknown(f"{path}.{min(extra)}")
    if kind == "message":
        _check_message(item, path, strict)
    elif kind == "reasoning":
        if not isinstance(item.get("summary"), list):
            raise _missing(f"{path}.summary")
    elif kind == "compaction":
        if unseal("cmp", item.get("encrypted_content")) is None:
            raise Refusal("The encrypted content for the compaction item could not be verified.", param=path)
    elif "call_id" in _ITEM_FIELDS[kind]:
        _check_call(item, kind, path, strict)


def _check_call(item: Mapping[str, Any], kind: str, path: str, strict: bool) -> None:
    if not isinstance(item.get("call_id"), str) or not item["call_id"]:
        raise _missing(f"{path}.call_id")
    if kind.endswith("_output"):
        output = item.get("output")
        if isinstance(output, list):
            for index, part in enumerate(output):
                _check_part(part, f"{path}.output[{index}]", _OTHER_PARTS, strict)
        elif not isinstance(output, str):
            raise _missing(f"{path}.output")
        return
    if kind == "local_shell_call":
        return
    if not _NAME.fullmatch(str(item.get("name"))):
        raise _missing(f"{path}.name")
    words = "arguments" if kind == "function_call" else "input"
    if not isinstance(item.get(words), str):
        raise Refusal(f"Invalid type for '{path}.{words}': expected a string.", param=f"{path}.{words}")


def _check_message(item: Mapping[str, Any], path: str, strict: bool) -> None:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise _invalid(role, f"{path}.role", _ROLES)
    if isinstance(content, str):
        return
    if not isinstance(content, list) or not content:
        raise Refusal(
            f"Invalid type for '{path}.content': expected one of an array of objects or string.",
            param=f"{path}.content",
            code="invalid_type",
        )
    allowed = _ASSISTANT_PARTS if role == "assistant" else _OTHER_PARTS
    for index, part in enumerate(content):
        _check_part(part, f"{path}.content[{index}]", allowed, strict)


def _check_part(part: Any, path: str, allowed: Sequence[str], strict: bool) -> None:
    kind = str(part.get("type")) if isinstance(part, dict) else ""
    if kind not in allowed:
        raise _invalid(kind, path, allowed)
    extra = part.keys() - _PART_FIELDS[kind]
    if strict and extra:
        raise _unknown(f"{path}.{min(extra)}")
    if kind in {"input_text", "output_text"} and not isinstance(part.get("text"), str):
        raise Refusal(f"Invalid type for '{path}.text': expected a string.", param=f"{path}.text")


def _check_pairs(items: Sequence[Mapping[str, Any]]) -> None:
    waiting: dict[str, str] = {}
    for item in items:
        kind = str(item.get("type", "message"))
        if kind in _CALLS:
            waiting[item["call_id"]] = kind
        elif kind.removesuffix("_output") in _CALLS:
            called = kind.removesuffix("_output")
            if waiting.pop(item["call_id"], None) != called:
                raise Refusal(
                    f"No tool call found for {_CALLS[called]} output with call_id {item['call_id']}.", param="input"
                )
    for call_id, kind in waiting.items():
        raise Refusal(f"No tool output found for {_CALLS[kind]} {call_id}.", param="input")


def _check_reasoning(items: Sequence[Mapping[str, Any]], *, is_stored: bool) -> None:
    for at, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        name = item.get("id") or f"input[{at}]"
        content = item.get("encrypted_content")
        if content is None and not is_stored:
            raise Refusal(
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. Try again "
                "with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
        if content is not None and unseal("rs", content) is None:
            raise Refusal(f"The encrypted content for item {name} could not be verified.", param="input")
        following = items[at + 1] if at + 1 < len(items) else {}
        is_followed = following.get("type") in {"reasoning", *_CALLS, "web_search_call"}
        if not is_followed and following.get("role") != "assistant":
            raise Refusal(
                f"Item '{name}' of type 'reasoning' was provided without its required following item.", param="input"
            )
