"""Refusals of the OpenAI chat completions API: fields, roles, content, tools, pairs of call and result.

Other servers that speak the format are laxer about fields; ``dialect`` says which one is played. The window is checked
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from everlong.testing.server.exchange import Dialect, Refusal

_KNOWN = """
    messages model audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
    metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
"""
_FIELDS = frozenset(_KNOWN.split())
_MESSAGE_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    "assistant": {"role", "content", "name", "tool_calls", "refusal", "audio", "function_call"},
    "tool": {"role", "content", "tool_call_id"},
    "function": {"role", "content", "name"},
}
_PART_FIELDS = {
    "text": {"type", "text", "prompt_cache_breakpoint"},
    "refusal": {"type", "refusal"},
    "image_url": {"type", "image_url", "prompt_cache_breakpoint"},
    "input_audio": {"type", "input_audio"},
    "file": {"type", "file", "prompt_cache_breakpoint"},
}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REASONING_MODELS = re.compile(r"(o\d|gpt-[5-9])")


def check_openai(body: Any, dialect: Dialect = "openai") -> None:
    """Refuse a body as the API would."""
    if not isinstance(body, dict):
        raise Refusal("We could not parse the JSON body of your request.")
    strict = dialect == "openai"
    if strict:
        _check_fields(body)
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Refusal("you must provide a model parameter")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refusal(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )
    _check_tools(body)
    messages = body.get("messages")
    if messages is None:
        raise Refusal("Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter")
    if not isinstance(messages, list):
        raise Refusal(
            "Invalid type for 'messages': expected an array of objects.", param="messages", code="invalid_type"
        )
    if not messages:
        raise _empty("messages")
    for at, message in enumerate(messages):
        _check_message(message, at, strict)
    _check_pairs(messages)


def _empty(param: str) -> Refusal:
    return Refusal(
        f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        param=param,
        code="empty_array",
    )


def _check_fields(body: Mapping[str, Any]) -> None:
    for name in body:
        if name not in _FIELDS:
            raise _unknown(name)
    if "max_tokens" in body and "max_completion_tokens" in body:
        raise Refusal(
            "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.", code="invalid_value"
        )
    if "max_tokens" in body and _REASONING_MODELS.match(str(body.get("model"))):
        raise Refusal(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' "
            "instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )
    for name in ("max_tokens", "max_completion_tokens"):
        most = body.get(name)
        if most is not None and (not isinstance(most, int) or most < 1):
            raise Refusal(
                f"Invalid '{name}': integer below minimum value. Expected a value >= 1, but got {most} instead.",
                param=name,
                code="integer_below_min_value",
            )


def _check_tools(body: Mapping[str, Any]) -> None:
    tools = body.get("tools")
    if tools is None:
        if body.get("tool_choice") not in {None, "none"}:
            raise Refusal(
                "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.",
                param="tool_choice",
            )
        return
    if not tools:
        raise _empty("tools")
    for index, tool in enumerate(tools):
        if tool.get("type") == "custom":
            continue
        function = tool.get("function")
        if tool.get("type") != "function" or not isinstance(function, dict):
            raise Refusal(
                f"Missing required parameter: 'tools[{index}].function'.",
                param=f"tools[{index}].function",
                code="missing_required_parameter",
            )
        _check_name(function.get("name"), f"tools[{index}].function.name")
        parameters = function.get("parameters")
        if parameters is not None and parameters.get("type") != "object":
            raise Refusal(
                f"Invalid schema for function '{function['name']}': schema must be a JSON Schema of "
                f"'type: \"object\"', got 'type: \"{parameters.get('type')}\"'.",
                param=f"tools[{index}].function.parameters",
                code="invalid_function_parameters",
            )


def _check_name(name: Any, path: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise Refusal(
            f"Invalid '{path}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            param=path,
            code="invalid_value",
        )


def _check_message(message: Any, at: int, strict: bool) -> None:
    if not isinstance(message, dict):
        raise Refusal(f"Invalid type for 'messages[{at}]': expected an object.", param=f"messages[{at}]")
    role = message.get("role")
    if role not in _MESSAGE_FIELDS:
        raise Refusal(
            f"Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and "
            "'developer'.",
            param=f"messages[{at}].role",
            code="invalid_value",
        )
    extra = message.keys() - _MESSAGE_FIELDS[role] if strict else set()
    if extra:
        raise _unknown(f"messages[{at}].{min(extra)}")
    _check_content(message, at, strict)
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise Refusal(
            f"Missing required parameter: 'messages[{at}].tool_call_id'.",
            param=f"messages[{at}].tool_call_id",
            code="missing_required_parameter",
        )
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], at, strict)


def _unknown(path: str) -> Refusal:
    return Refusal(f"Unknown parameter: '{path}'.", param=path, code="unknown_parameter")


def _check_content(message: Mapping[str, Any], at: int, strict: bool) -> None:
    content = message.get("content")
    if content is None:
        if message["role"] == "assistant" and (message.get("tool_calls") or message.get("refusal")):
            return
        raise Refusal("Invalid value for 'content': expected a string, got null.", param=f"messages.[{at}].content")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise Refusal(
            f"Invalid type for 'messages[{at}].content': expected one of a string or array of objects.",
            param=f"messages[{at}].content",
            code="invalid_type",
        )
    if not content:
        raise _empty(f"messages[{at}].content")
    for index, part in enumerate(content):
        path = f"messages[{at}].content[{index}]"
        kind = str(part.get("type")) if isinstance(part, dict) else ""
        if strict and kind not in _PART_FIELDS:
            supported = "', '".join(sorted(_PART_FIELDS))
            raise Refusal(
                f"Invalid value: '{kind}'. Supported values are: '{supported}'.", param=path, code="invalid_value"
            )
        if strict and part.keys() - _PART_FIELDS[kind]:
            raise _unknown(f"{path}.{min(part.keys() - _PART_FIELDS[kind])}")
        if kind == "text" and not isinstance(part.get("text"), str):
            raise Refusal(f"Invalid type for '{path}.text': expected a string.", param=f"{path}.text")


def _check_calls(calls: Any, at: int, strict: bool) -> None:
    path = f"messages[{at}].tool_calls"
    if not calls:
        raise _empty(path)
    for index, call in enumerate(calls):
        here = f"{path}[{index}]"
        if not isinstance(call.get("id"), str):
            raise Refusal(f"Missing required parameter: '{here}.id'.", param=f"{here}.id")
        if strict and len(call["id"]) > 40:
            raise Refusal(
                f"Invalid '{here}.id': string too long. Expected a string with maximum length 40, but got a string "
                f"with length {len(call['id'])} instead.",
                param=f"{here}.id",
                code="string_above_max_length",
            )
        if strict and call.keys() - {"id", "type", "function", "custom"}:
            raise _unknown(f"{here}.{min(call.keys() - {'id', 'type', 'function', 'custom'})}")
        if call.get("type") == "custom":
            continue
        function = call.get("function")
        if not isinstance(function, dict):
            raise Refusal(f"Missing required parameter: '{here}.function'.", param=f"{here}.function")
        _check_name(function.get("name"), f"{here}.function.name")
        if not isinstance(function.get("arguments"), str):
            raise Refusal(
                f"Invalid type for '{here}.function.arguments': expected a string, but got an object instead.",
                param=f"{here}.function.arguments",
                code="invalid_type",
            )


def _check_pairs(messages: Sequence[Mapping[str, Any]]) -> None:
    waiting: list[str] = []
    for at, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refusal(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls'.",
                    param=f"messages.[{at}].role",
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            break
        waiting = [call["id"] for call in message.get("tool_calls") or []]
    if waiting:
        raise Refusal(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
            param="messages",
        )
