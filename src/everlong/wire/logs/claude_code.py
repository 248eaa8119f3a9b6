"""Session logs of Claude Code: the conversations in them, with the facts and figures that stand in their lines.

A log has an object on each line, linked by ``uuid`` and ``parentUuid`` to a tree. One reply is several lines, one for
each block, with the same message id; the results of parallel calls hang on different ones of them, so that following
the links alone would lose some. Rewinding leaves branches behind, resuming writes lines again, sub-agents write between
the lines of the main conversation, and compaction begins a new tree. If the file has the turns that a summary of Claude
Code stands for, the turns are returned and not the summary.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from everlong.errors import TranscriptError
from everlong.model import added_parts, seconds_of
from everlong.wire.anthropic import to_openai
from everlong.wire.logs import LogFacts, LogRun, LogUsage, dollars_of, text_at, usage_at, value_at

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
    threads: dict[_Thread, list[_LogLine]] = {}
    for line in _link_lines(entries):
        if line.content is not None:
            threads.setdefault(_thread(line), []).append(line)
    if not threads:
        raise TranscriptError("the session log has no messages; choose another one")
    trees = [_ThreadTree(one, threads[one]) for one in sorted(threads, key=lambda thread: thread.agent is not None)]
    runs = [tree.last_branch() for tree in trees]
    abandoned = [branch for tree in trees for branch in tree.abandoned(_MOST_ABANDONED)]
    runs = [*abandoned[-_MOST_ABANDONED:], *runs]
    for run in runs:
        _learn_facts(run, entries)
    return runs


def _learn_facts(run: LogRun, lines: Sequence[dict[str, Any]]) -> None:
    """Note what the lines tell of a conversation; tokens and title of a branch that was left count in the last one."""
    own = [line for line in lines if _is_of(line, run.facts.agent)]
    for line in own:
        run.learn(**{name: text_at(line, path) for name, path in _FACTS.items()})
    if run.is_abandoned:
        return
    replies = [line for line in own if isinstance(value_at(line, "message.usage"), dict)]  # several lines are one reply
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


def _is_of(line: Mapping[str, Any], agent: str | None) -> bool:
    """Return whether a line belongs to the conversation of a sub-agent, or to the main one."""
    is_side = bool(line.get("isSidechain") or line.get("parent_tool_use_id"))
    if agent is None:
        return not is_side
    return is_side and text_at(line, "agentId", "parent_tool_use_id", "uuid") == agent


class _Thread(NamedTuple):
    """The identity of a conversation: its sub-agent, or the session of its first line."""

    agent: str | None
    session: str | None


@dataclass(slots=True, eq=False)
class _LogLine:
    """A line of the tree; ``content`` is None if it only links others."""

    at: int
    entry: dict[str, Any]
    uuid: str
    content: str | list[Any] | None
    parent: _LogLine | None = None
    original: _LogLine | None = None
    thread: _Thread | None = None
    blocks: list[Any] = field(default_factory=list)

    @property
    def is_assistant(self) -> bool:
        return self.entry.get("type") == "assistant"

    @property
    def reply_id(self) -> str:
        """The id that all lines of one reply share."""
        return str(self.entry["message"].get("id") or self.uuid)

    @property
    def calls(self) -> list[str]:
        """The ids of the calls that an assistant's line makes, or that a user's line answers."""
        kind, name = ("tool_use", "id") if self.is_assistant else ("tool_result", "tool_use_id")
        blocks = (block for block in self.blocks if isinstance(block, dict) and block.get("type") == kind)
        return [block[name] for block in blocks if isinstance(block.get(name), str)]


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


def _link_lines(entries: Sequence[dict[str, Any]]) -> list[_LogLine]:
    """Return the lines without replays, each with its parent."""
    lines: list[_LogLine] = []
    by_uuid: dict[str, _LogLine] = {}
    for at, entry in enumerate(entries):
        uuid = text_at(entry, "uuid")
        content = _content(entry)
        if uuid not in by_uuid and (uuid is not None or content is not None):
            line = _LogLine(at, entry, uuid or f"line {at}", content)
            line.blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
            by_uuid[line.uuid] = line
            lines.append(line)
    latest: dict[str | bool, _LogLine] = {}
    for line in lines:
        side = _agent_name(line) or _is_side(line)
        line.parent = _parent(line, by_uuid, latest.get(side))
        if line.content is not None:
            latest[side] = line
    seen: dict[Any, _LogLine] = {}
    first: list[_LogLine] = []
    for line in lines:
        keys = [] if line.content is None else _replay_keys(line)
        line.original = next((seen[key] for key in keys if key in seen), None)
        if line.original is None:
            seen.update(dict.fromkeys(keys, line))
            first.append(line)
    return first


def _is_side(line: _LogLine) -> bool:
    return bool(line.entry.get("isSidechain") or line.entry.get("parent_tool_use_id"))


def _parent(line: _LogLine, by_uuid: dict[str, _LogLine], before: _LogLine | None) -> _LogLine | None:
    entry = line.entry
    named = text_at(entry, "parentUuid")
    if named is not None:
        # Some parents are never written; then the order of the lines is the only link.
        return by_uuid.get(named, before)
    if entry.get("subtype") == "compact_boundary" or entry.get("isCompactSummary"):
        logical = text_at(entry, "logicalParentUuid")
        return before if logical is None else by_uuid.get(logical)
    return None if "parentUuid" in entry else before


def _replay_keys(line: _LogLine) -> list[Any]:
    """Return keys that a line shares with a copy of it written under another uuid."""
    said = _canonical_json(line.content)
    side = _is_side(line)
    if line.is_assistant:
        return [(side, line.reply_id, said)]
    if line.calls:
        return [(side, "results", *line.calls)]
    keys: list[Any] = [(side, _message_above(line), said)]
    written = text_at(line.entry, "timestamp")
    return keys if written is None else [*keys, (side, "written", written, said)]


def _canonical_json(value: Any) -> str:
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except RecursionError:
        raise TranscriptError("a message is nested too deeply to be compared; check how the log was made") from None


def _message_above(line: _LogLine) -> int:
    """Return the place of the nearest message above a line, -1 if there is none."""
    between: dict[int, _LogLine] = {}
    above = line.parent
    while above is not None and above.content is None and above.at not in between:
        between[above.at] = above
        above = above.parent
    if above is not None:
        above = None if above.content is None else above.original or above
    for link in between.values():
        link.parent = above  # so that no chain or circle is walked twice
    return -1 if above is None else above.at


def _agent_name(line: _LogLine) -> str | None:
    return text_at(line.entry, "agentId", "parent_tool_use_id") if _is_side(line) else None


def _thread(line: _LogLine) -> _Thread:
    """Return the conversation of a line: its sub-agent's, or that of the first line of its tree."""
    below: list[_LogLine] = []
    walked: set[int] = set()
    while line.thread is None:
        below.append(line)
        walked.add(line.at)
        named = _agent_name(line)
        above = line.parent and (line.parent.original or line.parent)
        if named is not None:
            line.thread = _Thread(named, None)
        elif above is None or above.at in walked or _is_side(above) != _is_side(line):
            session = text_at(line.entry, "sessionId", "session_id")
            line.thread = _Thread(line.uuid, None) if _is_side(line) else _Thread(None, session)
        else:
            line = above
    for each in below:
        each.thread = line.thread
    return line.thread


# -- one conversation -------------------------------------------------------------------------------------------------


class _ThreadTree:
    """The lines of one conversation with all its branches."""

    def __init__(self, thread: _Thread, lines: Sequence[_LogLine]) -> None:
        self._thread, self._lines = thread, lines
        self._replies: dict[str, list[_LogLine]] = {}
        self._results: dict[str, _LogLine] = {}
        self._added: dict[int, list[_LogLine]] = {}
        """Text that the client itself added, by the message above it."""
        self._untold: list[_LogLine] = []
        models = (text_at(line.entry["message"], "model") for line in reversed(lines) if line.is_assistant)
        self._model = next((model for model in models if model and not model.startswith("<")), None)
        self._folder = next((cwd for line in lines if (cwd := text_at(line.entry, "cwd"))), None)
        for line in lines:
            if line.is_assistant:
                self._replies.setdefault(line.reply_id, []).append(line)
            elif line.entry.get("isMeta") and not line.calls:
                self._added.setdefault(_message_above(line), []).append(line)
            else:
                self._results.update({call: line for call in line.calls if call not in self._results})

    def last_branch(self) -> LogRun:
        """Return the branch on which the session ended."""
        told: set[int] = set()
        found = self._branch(self._lines[-1], told)
        self._untold = [line for line in self._lines if line.at not in told]
        return found

    def abandoned(self, most: int) -> list[LogRun]:
        """Return the newest of the other branches, in order; `last_branch` comes before."""
        above = {_message_above(line) for line in self._untold}
        ends = [line for line in self._untold if line.at not in above and not line.entry.get("isMeta")]
        found: list[LogRun] = []
        told: set[int] = set()
        for end in reversed(ends):  # results of parallel calls end in several places; the last one has them all
            if len(found) == most:
                break
            if end.at not in told:
                on_branch: set[int] = set()
                found.append(self._branch(end, on_branch))
                found[-1].is_abandoned = True
                told |= on_branch
        return found[::-1]

    def _branch(self, leaf: _LogLine, told: set[int]) -> LogRun:
        """Return the conversation that ends with a line; ``told`` gets the places of its lines."""
        session, agent = text_at(leaf.entry, "sessionId", "session_id"), self._thread.agent
        facts = LogFacts("claude-code", session, agent, session if agent is not None else None)
        run = LogRun(replace(facts, model=self._model, folder=self._folder))
        path = _path(leaf)
        on_path = {line.at for line in path}
        for line in path:
            if line.at in told or _thread(line) != self._thread:
                continue
            messages: list[dict[str, Any]] = []
            if line.entry.get("isCompactSummary") and run.messages:
                told.add(line.at)
            elif line.is_assistant:
                reply = self._replies[line.reply_id]
                told.update(part.at for part in reply)
                messages.append(_reply(reply))
                calls = [call for part in reply for call in part.calls if call in self._results]
                answers = {self._results[call].at: self._results[call] for call in calls}
                messages += _answers([answers[at] for at in sorted(answers) if at not in told])
                told.update(answers)
                # Text that Claude Code added to a result (a skill's) may hang on a branch that ends there.
                beside = [one for at in answers if at not in on_path for one in self._added.get(at, ())]
                more = [one for one in beside if one.at not in told]
                messages += map(_from_user, more)
                told.update(one.at for one in more)
            else:
                told.add(line.at)
                messages.append(_from_user(line))
            time = seconds_of(text_at(line.entry, "timestamp"))
            run.learn(started=time if run.facts.started is None else None)
            for message in messages:
                run.say(time, *to_openai([message], before=run.messages[-1] if run.messages else None))
        return run


def _path(leaf: _LogLine) -> list[_LogLine]:
    """Return the messages from the first to this one, along the links."""
    path: list[_LogLine] = []
    walked: set[int] = set()
    line: _LogLine | None = leaf
    while line is not None and line.at not in walked:
        walked.add(line.at)
        if line.original is not None:
            line = line.original
            continue
        if line.content is not None:
            path.append(line)
        line = line.parent
    return path[::-1]


def _reply(lines: Sequence[_LogLine]) -> dict[str, Any]:
    if len(lines) == 1:
        return {"role": "assistant", "content": lines[0].content}
    # Some versions write all blocks so far on each line.
    blocks = {_canonical_json(block): block for line in lines for block in line.blocks}
    return {"role": "assistant", "content": list(blocks.values())}


def _from_user(line: _LogLine) -> dict[str, Any]:
    """Return a message in a user's name; the prompt of a command and other text of the client is marked as such."""
    content = line.content
    return {"role": "user", "content": added_parts(content) if line.entry.get("isMeta") else content}


def _answers(lines: Sequence[_LogLine]) -> list[dict[str, Any]]:
    """Return the results of one reply as one message, before anything else that came with them."""
    blocks = [block for line in lines for block in line.blocks]
    results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
    others = [block for block in blocks if not (isinstance(block, dict) and block.get("type") == "tool_result")]
    return [{"role": "user", "content": [*results, *others]}] if blocks else []
