"""Session logs of Claude Code: the conversations in them, with the facts and figures that stand in their lines.

A log has an object on each line, linked by ``uuid`` and ``parentUuid`` to a tree. One reply is several lines, one for
each block, with the same message id; the results of parallel calls hang on different ones of them. So lines are joined
to steps first: a reply, the results of its calls, or the words of a person; lines that resuming has written again join
the same steps. Rewinding leaves branches behind, sub-agents write between the lines of the main conversation, and
compaction begins a new tree. If the file has the turns that a summary of Claude Code stands for, the turns are returned
and not the summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from everlong.errors import TranscriptError
from everlong.model import added_parts, seconds_of
from everlong.wire.anthropic import to_openai
from everlong.wire.logs import LogFacts, LogRun, LogUsage, dollars_of, text_at, usage_at

REQUEST_LINES = (b'{"type":"api-request', b'{"type": "api-request')
"""The beginnings of lines that note requests: long, many, and nothing but repetitions of other lines."""
_MOST_ABANDONED = 100
"""Branches of one log that are kept beside the one on which it ended."""
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
"""The lines that have a title; a later kind counts more."""
_FACTS = {"folder": "cwd", "git_branch": "gitBranch", "version": "version"}
_USAGE = {
    "input_tokens": "message.usage.input_tokens",
    "output_tokens": "message.usage.output_tokens",
    "cache_read_tokens": "message.usage.cache_read_input_tokens",
    "cache_write_tokens": "message.usage.cache_creation_input_tokens",
    "reasoning_tokens": "message.usage.output_tokens_details.thinking_tokens",
    "cost": "costUSD",
}


def is_claude_code_line(entry: Mapping[str, Any]) -> bool:
    """Return whether a line is one of a session log."""
    if "role" in entry or "messages" in entry or not isinstance(entry.get("type"), str):
        return False
    return "parentUuid" in entry or "sessionId" in entry or "leafUuid" in entry or "parent_tool_use_id" in entry


def read_claude_code(entries: Iterable[dict[str, Any]]) -> list[LogRun]:
    """Return the conversations of a log: branches that were left, then the main one, then those of sub-agents.

    Raises:
        TranscriptError: It has no messages.
    """
    entries = list(entries)
    threads: dict[_Thread, list[_Step]] = {}
    for step in _join_lines(entries):
        threads.setdefault(step.thread, []).append(step)
    if not threads:
        raise TranscriptError("the session log has no messages; choose another one")
    trees = [threads[one] for one in sorted(threads, key=lambda thread: thread[0] is not None)]
    ends = [step for tree in trees for step in tree[:-1] if step.is_end and not step.lines[0].get("isMeta")]
    runs = [_branch(step) for step in ends[-_MOST_ABANDONED:]]
    for run in runs:
        run.is_abandoned = True
    for tree in trees:
        runs.append(_branch(tree[-1]))
        _learn_figures(runs[-1], tree, entries)
    return runs


def _learn_figures(run: LogRun, tree: Sequence[_Step], lines: Sequence[dict[str, Any]]) -> None:
    """Note the tokens, dollars and title of a conversation, those of the branches that were left included."""
    replies = [line for step in tree if step.is_reply for line in step.lines]
    used = {text_at(line, "message.id", "uuid"): usage_at(line, **_USAGE) for line in replies}
    run.usage = LogUsage().plus(*used.values())
    if run.facts.agent is None:
        for kind, path in _TITLES.items():
            titles = (text_at(line, path) for line in reversed(lines) if line.get("type") == kind)
            run.learn(title=next(filter(None, titles), None))
        totals = [dollars_of(line.get("totalCostUSD")) for line in lines if line.get("type") == "cost-state"]
        run.usage = run.usage._replace(cost=_sum_of_growth(totals) or run.usage.cost)


def _sum_of_growth(totals: Iterable[float]) -> float:
    """Return what running totals of dollars add up to; one that falls has begun anew."""
    spent = before = 0.0
    for total in totals:
        spent += total if total < before else total - before
        before = total
    return spent


def is_log(entries: Iterable[dict[str, Any]]) -> bool:
    """Return whether lines of JSONL are a session log: none is a message itself, and at least one wraps one."""
    found = False
    for entry in entries:
        if "role" in entry or "messages" in entry:
            return False
        found = found or _content(entry) is not None
    return found


def _content(entry: dict[str, Any]) -> str | list[Any] | None:
    """Return the content of a line's message; None if the line has no message that a model saw."""
    message = entry.get("message")
    if entry.get("type") not in ("user", "assistant") or not isinstance(message, dict):
        return None
    content = message.get("content")
    if entry.get("isApiErrorMessage") or not content or not isinstance(content, str | list):
        return None
    return content


# -- the tree ---------------------------------------------------------------------------------------------------------

_Thread = tuple[str | None, str | None]
"""The identity of a conversation: its sub-agent, or the session in which it began."""


@dataclass(slots=True, eq=False)
class _Step:
    """The lines of one reply, of the results of its calls, or of a person's words; with the step before it."""

    key: tuple[object, ...]
    thread: _Thread
    parent: _Step | None
    lines: list[dict[str, Any]] = field(default_factory=list)
    is_end: bool = True

    @property
    def is_reply(self) -> bool:
        return self.key[0] == "reply"


def _join_lines(entries: Iterable[dict[str, Any]]) -> Iterator[_Step]:
    """Yield the steps of all conversations, each after the one before it."""
    steps: dict[tuple[object, ...], _Step] = {}
    at: dict[str | None, _Step | None] = {}
    """The step of each line by its uuid; of a line without a message, the step above it."""
    newest: dict[str | bool, _Step] = {}
    callers: dict[str, object] = {}
    for number, entry in enumerate(entries):
        uuid, content = text_at(entry, "uuid"), _content(entry)
        if uuid in at or (uuid is None and content is None):
            continue
        is_side = bool(entry.get("isSidechain") or entry.get("parent_tool_use_id"))
        agent = text_at(entry, "agentId", "parent_tool_use_id") if is_side else None
        side = agent or is_side
        before = newest.get(side)
        above = _above(entry, at, before)
        if above is not None and (above.thread[0] is not None) != is_side:
            above = None if is_side else before
        if content is not None:
            name = uuid or f"line {number}"
            root = (agent or name, None) if is_side else (None, text_at(entry, "sessionId", "session_id"))
            thread = root if above is None or agent is not None else above.thread
            key = _step_key(entry, name, above, callers)
            step = steps.get((side, key))
            if step is None:
                # Each sub-agent has its own words only: with all above it, many agents would take a square of time.
                step = steps[side, key] = _Step(key, thread, above if above and above.thread == thread else None)
                if above is not None:
                    above.is_end = False
                yield step
            step.lines.append(entry)
            if step.is_reply:
                callers.update(dict.fromkeys(_calls(entry, "tool_use", "id"), key))
            newest[side] = above = step
        at[uuid] = above


def _above(entry: dict[str, Any], at: Mapping[str | None, _Step | None], before: _Step | None) -> _Step | None:
    """Return the step above a line; where its parent is not in the log, the order of the lines is the only link."""
    parent = text_at(entry, "parentUuid")
    if parent is None and (entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary")):
        parent = text_at(entry, "logicalParentUuid") or ""
    return None if parent is None and "parentUuid" in entry else at.get(parent, before)


def _step_key(
    entry: dict[str, Any], name: str, above: _Step | None, callers: Mapping[str, object]
) -> tuple[object, ...]:
    """Return what all lines of one step share, also where they are written again under other uuids."""
    if entry["type"] == "assistant":
        return "reply", str(entry["message"].get("id") or name)
    calls = _calls(entry, "tool_result", "tool_use_id")
    if calls:
        return "results", callers.get(calls[0], calls[0])
    if above is not None and above.key[0] == "results" and entry.get("isMeta"):
        return above.key
    return "words", id(above), _canonical_json(entry["message"]["content"])


def _blocks(entry: dict[str, Any]) -> list[Any]:
    content = entry["message"]["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _calls(entry: dict[str, Any], kind: str, name: str) -> list[str]:
    """Return the ids of the calls that a line makes, or answers."""
    blocks = (block for block in _blocks(entry) if isinstance(block, dict) and block.get("type") == kind)
    return [block[name] for block in blocks if isinstance(block.get(name), str)]


def _canonical_json(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        raise TranscriptError("a message is nested too deeply to be compared; check how the log was made") from None


# -- one conversation -------------------------------------------------------------------------------------------------


def _branch(end: _Step) -> LogRun:
    """Return the conversation that ends with a step."""
    path = [end]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    agent, session = end.thread[0], text_at(end.lines[0], "sessionId", "session_id")
    run = LogRun(LogFacts("claude-code", session, agent, session if agent is not None else None))
    for step in reversed(path):
        for line in step.lines:
            run.learn(**{name: text_at(line, place) for name, place in _FACTS.items()})
            model = text_at(line, "message.model")
            run.learn(model=None if model is None or model.startswith("<") else model)
        if step.lines[0].get("isCompactSummary") and run.messages:
            continue
        time = seconds_of(text_at(step.lines[0], "timestamp"))
        run.learn(started=time if run.facts.started is None else None)
        for message in _messages(step):
            run.say(time, *to_openai([message], before=run.messages[-1] if run.messages else None))
    return run


def _messages(step: _Step) -> list[dict[str, Any]]:
    """Return the messages of a step; text that the client itself added, as a skill does, is marked as such."""
    if step.key[0] == "words":
        content = step.lines[0]["message"]["content"]
        return [{"role": "user", "content": added_parts(content) if step.lines[0].get("isMeta") else content}]
    said = [line for line in step.lines if step.is_reply or _calls(line, "tool_result", "tool_use_id")]
    blocks = list({_canonical_json(block): block for line in said for block in _blocks(line)}.values())
    if step.is_reply:
        return [{"role": "assistant", "content": blocks}]
    blocks.sort(key=lambda block: not (isinstance(block, dict) and block.get("type") == "tool_result"))
    added = [line for line in step.lines if not _calls(line, "tool_result", "tool_use_id")]
    more = [{"role": "user", "content": added_parts(line["message"]["content"])} for line in added]
    return [{"role": "user", "content": blocks}, *more]
