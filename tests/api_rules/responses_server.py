"""A model server with two more habits of the Responses API: its own compaction, and refusals inside of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from everlong.testing import Ask, ModelServer
from everlong.testing.server.exchange import Record, Refusal, count_text, fault_refusal
from everlong.testing.server.http import (
    ServerReply,
    check_key,
    check_prompt,
    error_reply,
    event_bytes,
    identity,
    parse_body,
    reply_to,
)
from everlong.testing.server.openai_api import frame_response, number_events, response_events, usage_of
from tests.api_rules.seals import seal

_RESPONSES = "/v1/responses"
_COMPACT = "/v1/responses/compact"


class TolerantServer(ModelServer):
    """A server that takes the items of a compaction, and answers as if they were not there."""


class CompactingServer(TolerantServer):
    """A server that answers ``compaction_trigger`` and ``/v1/responses/compact`` with a compaction item."""

    def reply_elsewhere(self, path: str, raw: bytes, headers: Mapping[str, str]) -> ServerReply | None:
        """Compact without asking the script: the item holds the spoken words, no tool results."""
        body, _ = parse_body(raw)
        items = body.get("input") if isinstance(body, dict) else None
        last = items[-1] if isinstance(items, list) and items else {}
        if path != _COMPACT and not (path == _RESPONSES and last.get("type") == "compaction_trigger"):
            return super().reply_elsewhere(path, raw, headers)
        record, fault = self.record_request(lambda number: Record(number, "responses", path, dict(headers), body))
        try:
            if fault is not None and (planned := fault_refusal(fault, "responses")) is not None:
                record.fault = fault.kind
                raise planned
            check_key(self, "responses", headers)
            check_prompt(self, "responses", body, record)
        except Refusal as refusal:
            record.status, record.error = refusal.status, refusal.message
            return error_reply("responses", refusal, record.number)
        return self._compact(record)

    def _compact(self, record: Record) -> ServerReply:
        ask = Ask("responses", record.number, record.body, record.headers, record.prompt_tokens)
        words = "\n".join(turn.text for turn in ask.turns if turn.role in {"user", "assistant"} and turn.text)
        charge = self.charge("responses", record.body, record.prompt_tokens)
        record.status, record.usage = 200, usage_of(charge, count_text(words) // 4, 0)
        item = {"type": "compaction", "id": f"cmp_{record.number:024d}", "encrypted_content": seal("cmp", words)}
        whole = frame_response(record.body, record.number, [item], record.usage)
        if record.path == _COMPACT:
            told = {name: whole[name] for name in ("id", "created_at", "output", "usage")}
            return ServerReply(200, {**told, "object": "response.compaction"}, identity("responses", record.number))
        pieces = [event_bytes(event["type"], event) for event in response_events(whole)]
        streams = bool(record.body.get("stream"))
        return ServerReply(200, whole, identity("responses", record.number), pieces if streams else None)


class LateRefusingServer(ModelServer):
    """A server that refuses a streamed request that is too long inside of the stream."""

    def reply_elsewhere(self, path: str, raw: bytes, headers: Mapping[str, str]) -> ServerReply | None:
        """Turn the refusal of a prompt that is too long into a stream that fails before any output."""
        body: Any = json.loads(raw)
        if path != _RESPONSES or not body.get("stream"):
            return super().reply_elsewhere(path, raw, headers)
        reply = reply_to(self, path, raw, headers)
        error = reply.body.get("error") if isinstance(reply.body, dict) else None
        if not error or error.get("code") != "context_length_exceeded":
            return reply
        begun = {**frame_response(body, 0, [], None), "status": "in_progress"}
        failed = {**begun, "status": "failed", "error": {name: error[name] for name in ("code", "message")}}
        told = [{"type": f"response.{name}", "response": begun} for name in ("created", "in_progress")]
        told.append({"type": "response.failed", "response": failed})
        return ServerReply(
            200, None, reply.headers, [event_bytes(one["type"], one) for one in number_events(iter(told))]
        )
