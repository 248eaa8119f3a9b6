"""Rollouts of Codex: one session in one file, an item of the Responses API or an event on each line.

The items are the conversation as it was sent. Events say it a second time for people, so only their figures, their
names and the turns that a person took back are read. A compaction does not end the conversation: the items before it
stand in the file themselves, and the list that took their place is left out. A sub-agent has a file of its own, which
names the thread that began it. A forked thread and many a sub-agent begin with a copy of the other thread: its words
were sent along, but its tokens were spent there, and its first line is left out. Newer rollouts number their lines and
name the first one of their own; in older ones the copies are older than the thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlong.errors import TranscriptError
from everlong.model import Message, begins_with_wrapper, part_text, parts_of, seconds_of, text_of, typed_words
from everlong.wire.logs.log import (
    LogFacts,
    LogReader,
    LogUsage,
    NeedsWhole,
    count_of,
    parse_line,
    text_field,
)
from everlong.wire.responses import from_items, message_of_answer

__all__ = ["CodexReader", "is_rollout"]

_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SAID = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"})


def is_rollout(entry: Mapping[str, Any]) -> bool:
    """Return whether a line is one of a rollout."""
    return text_field(entry, "type") in _TYPES and isinstance(entry.get("payload"), dict)


class CodexReader(LogReader):
    """The reader of a rollout."""

    client = "codex"

    def __init__(self, carried: Mapping[str, Any] | None = None, offset: int = 0, *, is_whole: bool = False) -> None:
        super().__init__(carried, offset, is_whole=is_whole)
        self._step: list[dict[str, Any]] = []
        """The items of the answer that is being read."""
        self._step_time: float | None = None
        self._calls: set[str] = set()
        """Calls without a result."""
        told = (carried or {}).get("total")
        self._total = LogUsage.of(told) if isinstance(told, dict) else LogUsage()
        """The usage of the whole session, as the last count said."""
        own = (carried or {}).get("own_from")
        self._own_from = own if isinstance(own, int) else None
        """The number of the first line that is no copy of another thread's, if the rollout says it."""
        self._turns: list[int] = []
        """Messages at the beginning of each of the person's turns of the open part."""

    def state(self) -> dict[str, Any]:
        """Return the count so far, and the number of the first line of its own."""
        return {"total": self._total.to_dict(), "own_from": self._own_from}

    def feed(self, line: bytes, offset: int) -> None:
        """Read the next line."""
        entry = parse_line(line)
        payload = entry.get("payload") if isinstance(entry, dict) else None
        if not isinstance(payload, dict):
            return
        kind, time = entry.get("type"), seconds_of(entry.get("timestamp"))
        if kind == "session_meta":
            self._meet(payload, time)
        elif kind == "turn_context":
            self.learn(model=text_field(payload, "model"), folder=text_field(payload, "cwd"))
        elif kind == "response_item":
            self._read_item(payload, time, offset)
        elif kind == "event_msg":
            self._read_event(payload, is_copy=self._is_copy(entry, time))

    def finish(self) -> None:
        """Tell the answer that is being read."""
        self._end_step()

    def _meet(self, payload: Mapping[str, Any], time: float | None) -> None:
        if self.facts.session is not None:
            return  # of the thread that this one was forked from
        git = payload.get("git")
        branch = text_field(git, "branch") if isinstance(git, dict) else None
        parent = text_field(payload, "parent_thread_id", "forked_from_id")
        ident = text_field(payload, "id", "session_id")
        agent = None
        source = payload.get("source")
        if isinstance(source, dict) or text_field(payload, "parent_thread_id") is not None:
            agent = text_field(payload, "agent_nickname", "agent_path") or ident
            spawn = source.get("subagent") if isinstance(source, dict) else None
            if isinstance(spawn, dict) and isinstance(spawn.get("thread_spawn"), dict):
                parent = text_field(spawn["thread_spawn"], "parent_thread_id") or parent
        own = payload.get("subagent_history_start_ordinal")
        self._own_from = own if isinstance(own, int) and not isinstance(own, bool) else None
        self.facts = LogFacts(
            self.client,
            ident,
            agent=agent,
            works_for=parent,
            folder=text_field(payload, "cwd"),
            git_branch=branch,
            version=text_field(payload, "cli_version"),
            model=self.facts.model,
            started=seconds_of(payload.get("timestamp")) or time,
        )
        instructions = payload.get("base_instructions")
        prompt = text_field(instructions, "text") if isinstance(instructions, dict) else None
        prompt = prompt or text_field(payload, "instructions")
        if prompt is not None:
            self.say({"role": "system", "content": prompt}, time)

    def _is_copy(self, entry: Mapping[str, Any], time: float | None) -> bool:
        """Return whether a line was copied from the thread that this one was forked from, or works for."""
        number, began = entry.get("ordinal"), self.facts.started
        if self._own_from is not None and isinstance(number, int):
            return number < self._own_from
        return self.facts.works_for is not None and time is not None and began is not None and time < began

    def _read_item(self, item: dict[str, Any], time: float | None, offset: int) -> None:
        kind = text_field(item, "type")
        item = {name: value for name, value in item.items() if not name.startswith("internal_")}
        if kind in _SAID or (kind == "message" and item.get("role") == "assistant"):
            if not self._step and not self._calls:
                self._settle_before(offset)
            self._step.append(item)
            self._step_time = time
            if isinstance(item.get("call_id"), str) and str(kind).endswith("_call"):
                self._calls.add(item["call_id"])
            return
        self._end_step()
        try:
            made = [message for some in from_items([item]) for message in some]
        except TranscriptError:
            return
        for message in made:
            if message.get("role") == "tool":
                self._calls.discard(str(message.get("tool_call_id")))
            elif message.get("role") == "user" and not _is_context(message):
                if not self._calls:
                    self._settle_before(offset)
                self._turns.append(len(self._open.messages))
            self.say(message, time)

    def _settle_before(self, offset: int) -> None:
        self.settle(offset)
        if not self.is_whole:
            self._turns.clear()

    def _end_step(self) -> None:
        if self._step:
            self.say(message_of_answer(self._step), self._step_time)
            self._step = []

    def _read_event(self, payload: Mapping[str, Any], *, is_copy: bool) -> None:
        kind = payload.get("type")
        if kind == "token_count":
            info = payload.get("info")
            total = info.get("total_token_usage") if isinstance(info, dict) else None
            if isinstance(total, dict):
                self._count(total, is_copy=is_copy)
        elif kind == "thread_name_updated":
            self.learn(title=text_field(payload, "thread_name", "name"))
        elif kind == "thread_rolled_back":
            self._end_step()
            back = count_of(payload.get("num_turns"))
            if back > len(self._turns) and not self.is_whole:
                raise NeedsWhole
            back = min(back, len(self._turns))
            if back:
                at = self._turns[-back]
                del self._open.messages[at:], self._open.times[at:], self._turns[-back:]
                self._calls.clear()

    def _count(self, told: Mapping[str, Any], *, is_copy: bool) -> None:
        """Add what was used since the last count; counts are of the whole session and are repeated.

        What another thread has used (``is_copy``) is only where this one's count begins.
        """
        read, written = count_of(told.get("cached_input_tokens")), count_of(told.get("cache_write_input_tokens"))
        now = LogUsage(
            max(0, count_of(told.get("input_tokens")) - read - written),
            count_of(told.get("output_tokens")),
            read,
            written,
            count_of(told.get("reasoning_output_tokens")),
        )
        if now == self._total:
            return
        if is_copy:
            self._total = now
            return
        if now.output_tokens < self._total.output_tokens:  # another process has begun to count anew
            self._total = LogUsage()
        before, self._total = self._total, now
        self.count(
            LogUsage(
                max(0, now.input_tokens - before.input_tokens),
                now.output_tokens - before.output_tokens,
                max(0, now.cache_read_tokens - before.cache_read_tokens),
                max(0, now.cache_write_tokens - before.cache_write_tokens),
                max(0, now.reasoning_tokens - before.reasoning_tokens),
                1,
            )
        )


def _is_context(message: Message) -> bool:
    """Return whether a user's message is what Codex tells the model about the surroundings."""
    is_wrapped = begins_with_wrapper(text_of(message)) and not typed_words(message)
    return is_wrapped and all(map(part_text, parts_of(message)))
