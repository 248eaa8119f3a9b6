"""Rollouts of Codex: one session in one file, an item of the Responses API or an event on each line.

The items are the conversation as it was sent. Events say it a second time for people, so only their figures, their
names and the turns that a person took back are read. A compaction does not end the conversation: the items before it
stand in the file themselves, and the list that took their place is left out. A sub-agent has a file of its own, which
names the thread that began it. A forked thread and many a sub-agent begin with a copy of the other thread: its words
were sent along, but its tokens were spent there, and its first line is left out. Newer rollouts number their lines and
name the first one of their own; in older ones the copies are older than the thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everlong.errors import TranscriptError
from everlong.model import Message, begins_with_wrapper, part_text, parts_of, seconds_of, text_of, typed_words
from everlong.wire.logs import LogFacts, LogRun, LogUsage, count_of, text_at, usage_at, value_at
from everlong.wire.responses import from_items, message_of_answer

__all__ = ["is_codex_line", "read_codex"]

_TYPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
_SAID = frozenset({"reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call"})
_USAGE = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cached_input_tokens",
    "cache_write_tokens": "cache_write_input_tokens",
    "reasoning_tokens": "reasoning_output_tokens",
}


def is_codex_line(entry: Mapping[str, Any]) -> bool:
    """Return whether a line is one of a rollout."""
    return text_at(entry, "type") in _TYPES and isinstance(entry.get("payload"), dict)


def read_codex(entries: Iterable[Mapping[str, Any]]) -> list[LogRun]:
    """Return the conversation of a rollout, given its lines."""
    rollout = _Rollout()
    for entry in entries:
        payload, time = entry.get("payload"), seconds_of(entry.get("timestamp"))
        if not isinstance(payload, dict):
            continue
        if entry.get("type") == "session_meta" and rollout.run.facts.session is None:  # others are of a forked thread
            rollout.read_session(payload, time)
        elif entry.get("type") == "turn_context":
            rollout.run.learn(model=text_at(payload, "model"), folder=text_at(payload, "cwd"))
        elif entry.get("type") == "response_item":
            rollout.read_item(payload, time)
        elif entry.get("type") == "event_msg":
            rollout.read_event(payload, is_copy=rollout.is_copy(entry, time))
    rollout.end_answer()
    return [rollout.run]


class _Rollout:
    def __init__(self) -> None:
        self.run = LogRun(LogFacts("codex"))
        self._answer: list[dict[str, Any]] = []
        """The items of the answer that is being read."""
        self._answer_time: float | None = None
        self._total = LogUsage()
        """The usage of the whole session, as the last count said."""
        self._own_from: int | None = None
        """The number of the first line that is no copy of another thread's, if the rollout says it."""
        self._turns: list[int] = []
        """Messages before each of the person's turns."""

    def read_session(self, payload: Mapping[str, Any], time: float | None) -> None:
        parent = text_at(payload, "source.subagent.thread_spawn.parent_thread_id", "parent_thread_id", "forked_from_id")
        ident = text_at(payload, "id", "session_id")
        is_agent = isinstance(payload.get("source"), dict) or text_at(payload, "parent_thread_id") is not None
        own = payload.get("subagent_history_start_ordinal")
        self._own_from = own if isinstance(own, int) and not isinstance(own, bool) else None
        self.run.learn(
            session=ident,
            agent=(text_at(payload, "agent_nickname", "agent_path") or ident) if is_agent else None,
            works_for=parent,
            folder=text_at(payload, "cwd"),
            git_branch=text_at(payload, "git.branch"),
            version=text_at(payload, "cli_version"),
            started=seconds_of(payload.get("timestamp")) or time,
        )
        prompt = text_at(payload, "base_instructions.text", "instructions")
        if prompt is not None:
            self.run.say(time, {"role": "system", "content": prompt})

    def is_copy(self, entry: Mapping[str, Any], time: float | None) -> bool:
        """Return whether a line was copied from the thread that this one was forked from, or works for."""
        number, began = entry.get("ordinal"), self.run.facts.started
        if self._own_from is not None and isinstance(number, int):
            return number < self._own_from
        return self.run.facts.works_for is not None and time is not None and began is not None and time < began

    def read_item(self, item: dict[str, Any], time: float | None) -> None:
        item = {name: value for name, value in item.items() if not name.startswith("internal_")}
        if text_at(item, "type") in _SAID or (item.get("type") == "message" and item.get("role") == "assistant"):
            self._answer.append(item)
            self._answer_time = time
            return
        self.end_answer()
        try:
            made = [message for some in from_items([item]) for message in some]
        except TranscriptError:
            return
        for message in made:
            if message.get("role") == "user" and not _is_context(message):
                self._turns.append(len(self.run.messages))
            self.run.say(time, message)

    def end_answer(self) -> None:
        if self._answer:
            self.run.say(self._answer_time, message_of_answer(self._answer))
            self._answer = []

    def read_event(self, payload: Mapping[str, Any], *, is_copy: bool) -> None:
        kind, total = payload.get("type"), value_at(payload, "info.total_token_usage")
        if kind == "token_count" and isinstance(total, dict):
            self._count(usage_at(total, **_USAGE).without_cached_input(), is_copy=is_copy)
        elif kind == "thread_name_updated":
            self.run.learn(title=text_at(payload, "thread_name", "name"))
        elif kind == "thread_rolled_back":
            self.end_answer()
            back = min(count_of(payload.get("num_turns")), len(self._turns))
            if back:
                self.run.drop_from(self._turns[-back])
                del self._turns[-back:]

    def _count(self, now: LogUsage, *, is_copy: bool) -> None:
        """Add what was used since the last count; counts are of the whole session and are repeated.

        What another thread has used (``is_copy``) is only where this one's count begins.
        """
        before, self._total = self._total, now
        if is_copy or now == before:
            return
        if now.output_tokens < before.output_tokens:  # another process has begun to count anew
            before = LogUsage()
        grown = LogUsage(*(max(0, int(new - old)) for new, old in zip(now, before, strict=True)))
        self.run.usage = self.run.usage.plus(grown._replace(api_calls=1))


def _is_context(message: Message) -> bool:
    """Return whether a user's message is what Codex tells the model about the surroundings."""
    is_wrapped = begins_with_wrapper(text_of(message)) and not typed_words(message)
    return is_wrapped and all(map(part_text, parts_of(message)))
