"""Answers in the shape of the OpenAI chat completions API: whole, as a stream of chunks, and as errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from everlong.testing.server.anthropic_api import pieces
from everlong.testing.server.exchange import CacheCharge, Refusal
from everlong.testing.server.script import Answer
from everlong.testing.server.window import Dialect, count_text, count_value

__all__ = ["chunks", "completion", "error_body", "models"]

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
