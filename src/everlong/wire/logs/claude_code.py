"""Session logs of Claude Code, with the facts and figures that stand in their lines.

`everlong.wire.claude_code` explains the format and finds the conversations in the tree of lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from everlong.wire.anthropic import to_openai
from everlong.wire.claude_code import LoggedConversation, read_log
from everlong.wire.logs.log import LogFacts, LogRun, LogUsage, dollars_of, text_at, usage_at, value_at

__all__ = ["REQUEST_LINES", "is_claude_code_line", "read_claude_code"]

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
    lines = list(entries)
    log = read_log(lines, most_abandoned=_MOST_ABANDONED)
    abandoned = [_run_of(one, lines) for one in log.abandoned]
    for run in abandoned:  # what it used counts in the one that was gone on with
        run.facts, run.usage, run.is_abandoned = replace(run.facts, title=None), LogUsage(), True
    return [*abandoned, *(_run_of(one, lines) for one in log.conversations)]


def _run_of(one: LoggedConversation, lines: Sequence[dict[str, Any]]) -> LogRun:
    is_agent = one.agent is not None
    started = next((time for time in one.times if time is not None), None)
    facts = LogFacts("claude-code", one.session, one.agent, one.session if is_agent else None, started=started)
    run = LogRun(replace(facts, model=one.model, folder=one.folder))
    for message, time in zip(one.messages, one.times, strict=True):
        run.say(time, *to_openai([message], before=run.messages[-1] if run.messages else None))
    own = [line for line in lines if _is_of(line, one.agent)]
    for line in own:
        run.learn(**{name: text_at(line, path) for name, path in _FACTS.items()})
    replies = [line for line in own if isinstance(value_at(line, "message.usage"), dict)]  # several lines are one reply
    used = {text_at(line, "message.id", "uuid"): usage_at(line, **_USAGE) for line in replies}
    run.usage = LogUsage().plus(*used.values())
    if not is_agent:
        for kind, path in _TITLES.items():
            titles = (text_at(line, path) for line in reversed(lines) if line.get("type") == kind)
            run.learn(title=next(filter(None, titles), None))
        totals = [dollars_of(line.get("totalCostUSD")) for line in lines if line.get("type") == "cost-state"]
        run.usage = run.usage._replace(cost=_sum_of_growth(totals) or run.usage.cost)
    return run


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
