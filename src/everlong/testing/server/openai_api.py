"""Answers in the shapes of the OpenAI APIs, chat completions and responses: whole, as a stream, and as errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everlong.testing.server.anthropic_api import pieces
from everlong.testing.server.exchange import CacheCharge, Dialect, Refusal, count_text, count_value, seal
from everlong.testing.server.script import Answer

__all__ = [
    "chunks",
    "completion",
    "error_body",
    "frame_response",
    "models",
    "number_events",
    "response",
    "response_events",
    "usage_of",
]

_CREATED = 1_767_225_600


def error_body(refusal: Refusal) -> dict[str, Any]:
    """Return an error as the API sends it."""
    error = {"message": refusal.message, "type": refusal.kind, "param": refusal.param, "code": refusal.code}
    return {"error": {**error, **refusal.extra}}


def completion(
    answer: Answer, body: Mapping[str, Any], charge: CacheCharge, number: int, dialect: Dialect
) -> dict[str, Any]:
    """Return a whole answer."""
    said: dict[str, Any] = {"role": "assistant", "content": answer.text or None, "refusal": None}
    if answer.refused:
        said.update(content=None, refusal=answer.text or "I can't help with that.")
    if answer.thinking is not None and dialect != "openai":
        said["reasoning" if dialect == "openrouter" else "reasoning_content"] = answer.thinking
    if answer.calls:
        said["tool_calls"] = [
            {
                "id": call.id or f"call_{number:08d}{index:04d}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for index, call in enumerate(answer.calls)
        ]
    reasoning = count_text(answer.thinking or "")
    output = reasoning + count_value({key: said[key] for key in ("content", "tool_calls", "refusal") if said.get(key)})
    most = body.get("max_completion_tokens") or body.get("max_tokens") or output
    cut = output > most
    if cut and said["content"]:
        text = said["content"]
        while text and count_text(text) > most - reasoning:
            text = text[: len(text) * 3 // 4]
        said["content"] = text
    natural = "length" if cut else "tool_calls" if answer.calls else "stop"
    choice = {"index": 0, "message": said, "logprobs": None, "finish_reason": answer.stop or natural}
    return {
        "id": f"chatcmpl-{number:024d}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": body["model"],
        "choices": [choice],
        "usage": _usage(charge, min(output, most), reasoning),
    }


def _usage(charge: CacheCharge, output: int, reasoning: int) -> dict[str, Any]:
    return {
        "prompt_tokens": charge.total,
        "completion_tokens": output,
        "total_tokens": charge.total + output,
        "prompt_tokens_details": {"cached_tokens": charge.read, "cache_write_tokens": charge.written},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def chunks(whole: Mapping[str, Any], body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the chunks of a stream that adds up to an answer; usage comes last, and only on request."""
    frame = {"id": whole["id"], "object": "chat.completion.chunk", "created": _CREATED, "model": whole["model"]}
    choice = whole["choices"][0]
    said = choice["message"]
    wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    rest: dict[str, Any] = {"usage": None} if wants_usage else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **rest}

    yield chunk({"role": "assistant", "content": ""})
    for name in ("reasoning", "reasoning_content", "content", "refusal"):
        for piece in pieces(said.get(name) or ""):
            yield chunk({name: piece})
    for index, call in enumerate(said.get("tool_calls") or []):
        head = {"index": index, "id": call["id"], "type": "function"}
        yield chunk({"tool_calls": [{**head, "function": {"name": call["function"]["name"], "arguments": ""}}]})
        for piece in pieces(call["function"]["arguments"]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, choice["finish_reason"])
    if wants_usage:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def models(names: list[str], window: int, dialect: Dialect) -> dict[str, Any]:
    """Return the list of models; each maker states their window in another place, or not at all."""
    told: dict[Dialect, dict[str, Any]] = {
        "openai": {},
        "openrouter": {"context_length": window},
        "vllm": {"max_model_len": window},
        "llama.cpp": {"meta": {"n_ctx": window, "n_ctx_train": window * 4}},
    }
    data = [{"id": name, "object": "model", "created": _CREATED, "owned_by": "test", **told[dialect]} for name in names]
    return {"object": "list", "data": data}


# -- responses ---------------------------------------------------------------------------------------------------------


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
    whole = frame_response(body, number, output, usage_of(charge, min(size, most), reasoning))
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


def frame_response(
    body: Mapping[str, Any], number: int, output: list[Any], usage: dict[str, Any] | None
) -> dict[str, Any]:
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


def response_events(whole: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
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
