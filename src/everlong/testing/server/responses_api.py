"""Answers in the shape of the OpenAI Responses API: whole, and as a stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everlong.testing.server.anthropic_api import pieces
from everlong.testing.server.exchange import CacheCharge, seal
from everlong.testing.server.script import Answer
from everlong.testing.server.window import count_text, count_value

__all__ = ["events", "frame", "number_events", "response", "usage_of"]

_CREATED = 1_767_225_600


def response(answer: Answer, body: Mapping[str, Any], charge: CacheCharge, number: int) -> dict[str, Any]:
    """Return a whole answer."""
    output = _output(answer, body, number)
    reasoning = count_text(answer.thinking or "")
    size = reasoning + sum(count_value(item) for item in output if item["type"] != "reasoning")
    most = body.get("max_output_tokens") or size
    is_cut = size > most
    if is_cut:
        for item in output:
            if item["type"] == "message":
                part = item["content"][0]
                while part.get("text") and count_text(part["text"]) > most - reasoning:
                    part["text"] = part["text"][: len(part["text"]) * 3 // 4]
    whole = frame(body, number, output, usage_of(charge, min(size, most), reasoning))
    if is_cut:
        whole |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return whole


def _output(answer: Answer, body: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = []
    if answer.thinking is not None:
        thought: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number:08d}", "summary": []}
        if (body.get("reasoning") or {}).get("summary"):
            thought["summary"] = [{"type": "summary_text", "text": answer.thinking}]
        if "reasoning.encrypted_content" in (body.get("include") or []):
            thought["encrypted_content"] = seal("rs", answer.thinking)
        output.append(thought)
    if answer.text or answer.refused:
        text = answer.text or "I can't help with that."
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        said = {"type": "refusal", "refusal": text} if answer.refused else part
        frame = {"type": "message", "id": f"msg_{number:08d}", "status": "completed", "role": "assistant"}
        output.append({**frame, "content": [said]})
    custom = {tool.get("name") for tool in body.get("tools") or [] if tool.get("type") == "custom"}
    spaces = _namespaces(body)
    for index, call in enumerate(answer.calls):
        is_custom = call.name in custom
        space = {"namespace": spaces[call.name]} if call.name in spaces else {}
        output.append(
            {
                **space,
                "type": "custom_tool_call" if is_custom else "function_call",
                "id": f"{'ctc' if is_custom else 'fc'}_{number:08d}{index:04d}",
                "status": "completed",
                "call_id": call.id or f"call_{number:08d}{index:04d}",
                "name": call.name,
                "input" if is_custom else "arguments": call.arguments_text,
            }
        )
    return output


def _namespaces(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the namespace of each tool that stands in one, by the tool's name."""
    spaces = [tool for tool in body.get("tools") or [] if tool.get("type") == "namespace"]
    return {str(one.get("name")): str(space.get("name")) for space in spaces for one in space.get("tools") or []}


def frame(body: Mapping[str, Any], number: int, output: list[Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    """Return a response around its output."""
    return {
        "id": f"resp_{number:024d}",
        "object": "response",
        "created_at": _CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "model": body["model"],
        "output": output,
        "parallel_tool_calls": bool(body.get("parallel_tool_calls", True)),
        "store": bool(body.get("store", True)),
        "temperature": 1.0,
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage,
    }


def usage_of(charge: CacheCharge, output: int, reasoning: int) -> dict[str, Any]:
    """Return the usage that the API reports."""
    return {
        "input_tokens": charge.total,
        "input_tokens_details": {"cached_tokens": charge.read, "cache_write_tokens": charge.written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": charge.total + output,
    }


def events(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the events of a stream that adds up to an answer, numbered."""
    return number_events(_events(whole))


def number_events(told: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield events with their numbers."""
    for number, event in enumerate(told):
        yield {**event, "sequence_number": number}


def _events(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": begun}
    for index, item in enumerate(whole["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": _unfinished(item)}
        yield from _item_events(item, place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _unfinished(item: Mapping[str, Any]) -> dict[str, Any]:
    empties: dict[str, dict[str, Any]] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    empty = empties.get(item["type"], {})
    return {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}


def _item_events(item: Mapping[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if item["type"] == "message":
        for index, part in enumerate(item["content"]):
            name = "refusal" if part["type"] == "refusal" else "text"
            kind = f"response.{part['type']}"
            here = {**place, "content_index": index, **({"logprobs": []} if name == "text" else {})}
            empty = {**part, name: ""}
            yield {"type": "response.content_part.added", **place, "content_index": index, "part": empty}
            for piece in pieces(part[name]):
                yield {"type": f"{kind}.delta", **here, "delta": piece}
            yield {"type": f"{kind}.done", **here, name: part[name]}
            yield {"type": "response.content_part.done", **place, "content_index": index, "part": part}
    elif item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
