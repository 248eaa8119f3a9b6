"""The rules of the message protocol: what is wrong with a list, how it is mended, and where it may be cut.

The boundary planner asks where a cut is allowed; the compaction repairs its input with the rules and checks its output
against them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from everlong.context.literals import (
    ACKNOWLEDGEMENT,
    MISSING_RESULT,
    is_acknowledgement,
    is_summary,
    summary_indices,
)
from everlong.model import (
    Group,
    Message,
    ToolCall,
    calls_of,
    checked_messages,
    find_groups,
    has_reasoning,
    is_reasoning,
    newest_request,
    parts_of,
    text_of,
    with_content,
)


class Violation(NamedTuple):
    """A broken rule: its name, the index of the message, and the problem in plain words."""

    invariant: str
    at: int
    problem: str


class Invariant(Protocol):
    """One rule that every list of messages sent to a model must satisfy."""

    @property
    def name(self) -> str:
        """The rule's name in reports."""
        ...

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return all violations of the rule."""
        ...

    def repair(self, messages: list[Message]) -> list[Message]:
        """Return a list that satisfies the rule; the very same list if nothing had to change."""
        ...


_INSERTED = ("[CONTEXT ", ACKNOWLEDGEMENT)
"""The beginnings of summaries and acknowledgements; a test compares them with the texts themselves."""


def is_plain(messages: Sequence[Message]) -> bool:
    """Return whether a list certainly satisfies every structural rule and has no summary."""
    waiting: list[object] = []
    for message in messages:
        role = message["role"]
        content = message.get("content")
        if type(content) is list:
            return False
        if role == "tool":
            call_id = message.get("tool_call_id")
            if call_id not in waiting:
                return False
            waiting.remove(call_id)
            continue
        if waiting or (content and content.startswith(_INSERTED)):
            return False
        calls = message.get("tool_calls")
        if calls and role == "assistant":
            waiting = [call.get("id") if type(call) is dict else None for call in calls]
    return True


# -- results and their calls -------------------------------------------------------------------------------------------


class ToolPairing:
    """The rule that results directly follow their tool calls, and every result answers a call.

    Results without a call are removed, calls without a result get a stub, misplaced results are moved to their call.
    Calls of the very last group may still be pending, because the host is about to run them.
    """

    name = "tool_pairing"

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return orphaned results, unanswered calls, and results that do not follow their call."""
        violations: list[Violation] = []
        pending: list[str] = []
        owner = -1
        for index, message in enumerate(messages):
            if message["role"] == "tool":
                call_id = str(message.get("tool_call_id") or "")
                if call_id in pending:
                    pending.remove(call_id)
                else:
                    violations.append(Violation(self.name, index, f"result {call_id!r} answers no call before it"))
                continue
            if pending:
                violations.append(Violation(self.name, owner, f"calls {pending!r} have no result"))
                pending = []
            if message.get("tool_calls") and message["role"] == "assistant":
                owner = index
                pending = [call.id for call in calls_of(message)]
        return violations

    def repair(self, messages: list[Message]) -> list[Message]:
        """Move results to their calls, remove orphans and add stubs."""
        if not self.check(messages):
            return messages
        grouping = find_groups(messages)
        by_start = {group.start: group for group in grouping.groups}
        last_group = _pending_at_end(messages, grouping.groups)
        repaired: list[Message] = []
        for index, message in enumerate(messages):
            if message.get("role") == "tool":
                continue
            repaired.append(message)
            group = by_start.get(index)
            if group is not None:
                repaired.extend(_results(messages, group, stub_missing=group is not last_group))
        return repaired


def _pending_at_end(messages: Sequence[Message], groups: Sequence[Group]) -> Group | None:
    """Return the last group if only results follow its calls; None otherwise."""
    if groups and all(message.get("role") == "tool" for message in messages[groups[-1].start + 1 :]):
        return groups[-1]
    return None


def _results(messages: Sequence[Message], group: Group, *, stub_missing: bool) -> list[Message]:
    results = [_with_id(messages[answer.at], answer.call_id) for answer in group.answers]
    if stub_missing:
        results.extend(_stub(call) for call in group.missing)
    return results


def _with_id(result: Message, call_id: str) -> Message:
    """Return the result itself, or a copy with the call's id if the client left it out."""
    return result if result.get("tool_call_id") else {**result, "tool_call_id": call_id}


def _stub(call: ToolCall) -> Message:
    return {"role": "tool", "tool_call_id": call.id, "content": MISSING_RESULT}


# -- thinking ----------------------------------------------------------------------------------------------------------


class ReasoningBlocks:
    """The rule that only assistant messages carry thinking."""

    name = "reasoning_blocks"

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return the messages with thinking that no model wrote."""
        return [
            Violation(self.name, index, f"a {message['role']} message carries thinking")
            for index, message in enumerate(messages)
            if type(message.get("content")) is list and message["role"] != "assistant"
            if any(map(is_reasoning, parts_of(message)))
        ]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Remove thinking from messages that no model wrote."""
        misplaced = {violation.at for violation in self.check(messages)}
        if not misplaced:
            return messages
        return [_without_reasoning(m) if index in misplaced else m for index, m in enumerate(messages)]


def _without_reasoning(message: Message) -> Message:
    return with_content(message, [part for part in parts_of(message) if not is_reasoning(part)])


# -- roles -------------------------------------------------------------------------------------------------------------

_PASSES = 8
"""More than any list needs, because the summary is one of the first few messages."""


class RoleOrder:
    """The rule that no inserted message stands beside one of its own role.

    A client's own list may have two user messages in a row (people do send two), and these are passed on as they are.
    But a summary or acknowledgement next to its own role would be merged or refused.
    """

    name = "role_order"

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return the summaries and acknowledgements beside a message of their own role."""
        roles = [message["role"] for message in messages]
        own = summary_indices(messages)
        inserted = {index for index, message in enumerate(messages) if index in own or is_acknowledgement(message)}
        return [
            Violation(self.name, index, f"{role} follows {role} at a summary")
            for index, (before, role) in enumerate(pairwise(roles), 1)
            if role == before != "tool" and (index in inserted or index - 1 in inserted)
        ]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Insert acknowledgements between a summary and a user message, and remove those before an assistant's."""
        # With an acknowledgement gone, another message may be the one that counts as the summary.
        for _ in range(_PASSES):
            if not self.check(messages):
                break
            messages = _mend(messages)
        return messages


def _mend(messages: list[Message]) -> list[Message]:
    repaired: list[Message] = []
    summaries = {id(messages[index]) for index in summary_indices(messages)}
    for message in messages:
        previous = repaired[-1] if repaired else None
        if previous is not None and previous["role"] == message["role"]:
            if is_acknowledgement(message):
                continue
            if is_acknowledgement(previous):
                repaired.pop()
            elif message["role"] == "user" and not summaries.isdisjoint((id(message), id(previous))):
                repaired.append({"role": "assistant", "content": ACKNOWLEDGEMENT})
            elif id(previous) in summaries:
                repaired[-1:] = _as_user(previous, repaired[-2] if len(repaired) > 1 else None)
            elif id(message) in summaries:
                repaired.append({**message, "role": "user"})
                summaries.add(id(repaired[-1]))
                continue
        repaired.append(message)
    return repaired


def _as_user(summary: Message, before: Message | None) -> list[Message]:
    """Return a summary as a user message, with an acknowledgement between it and a user message before it."""
    parting: list[Message] = [{"role": "assistant", "content": ACKNOWLEDGEMENT}]
    return [*(parting if before is not None and before["role"] == "user" else []), {**summary, "role": "user"}]


# -- the newest request ------------------------------------------------------------------------------------------------


class LatestUserTurn:
    """The rule that a list keeps its source's latest request; ``summaries`` are the source's summary indices.

    A summary tells the model to answer only messages after it, so the request in force must stand there. In a long
    autonomous run it may be hundreds of messages back; then it is repeated after the summary.
    """

    name = "latest_user_turn"

    def __init__(self, source: Sequence[Message], summaries: Collection[int] | None = None) -> None:
        index = latest_user_index(source, summaries)
        self._latest = None if index is None else source[index]

    def check(self, messages: Sequence[Message]) -> list[Violation]:
        """Return a violation if the request is missing after the last summary."""
        if self._latest is None:
            return []
        start = _after_summary(messages)
        if any(message is self._latest or message == self._latest for message in reversed(messages[start:])):
            return []
        return [Violation(self.name, start, "the latest user message does not stand after the summary")]

    def repair(self, messages: list[Message]) -> list[Message]:
        """Put the request back after the summary."""
        if self._latest is None or not self.check(messages):
            return messages
        start = _after_summary(messages)
        return [*messages[:start], self._latest, *messages[start:]]


def latest_user_index(messages: Sequence[Message], summaries: Collection[int] | None = None) -> int | None:
    """Return the index of the newest request; None if there is none.

    That is the newest message in which a person asked for something, or else the newest user message that says
    something and does not read like a summary: what a harness says in the user's name does not take the place of a
    request.
    """
    own = summary_indices(messages) if summaries is None else summaries
    asked = newest_request(messages, own)
    if asked is not None:
        return asked
    newest_first = ((index, messages[index]) for index in range(len(messages) - 1, -1, -1) if index not in own)
    said = (index for index, message in newest_first if message["role"] == "user" and message.get("content"))
    return next((index for index in said if not is_summary(messages[index])), None)


def _after_summary(messages: Sequence[Message]) -> int:
    summaries = summary_indices(messages)
    if not summaries:
        return 0
    after = summaries[-1] + 1
    return after + 1 if after < len(messages) and is_acknowledgement(messages[after]) else after


# -- all rules ---------------------------------------------------------------------------------------------------------

STRUCTURAL: tuple[Invariant, ...] = (ToolPairing(), ReasoningBlocks(), RoleOrder())
"""The rules for a list by itself; `LatestUserTurn` is a rule for a list and its source."""


def allows_cut(messages: Sequence[Message], index: int) -> bool:
    """Return whether a list may be cut before ``index``; at its ends it always may.

    A result would lose its call, and a step its thinking, which some clients log as an assistant message of its own.
    """
    if index <= 0 or index >= len(messages):
        return True
    role, before = messages[index].get("role"), messages[index - 1]
    if role != "assistant" or before.get("role") != "assistant":
        return role not in ("tool", "function")
    return bool(calls_of(before) or text_of(before).strip()) or not has_reasoning(before)


def check_all(
    messages: Sequence[Message], source: Sequence[Message] | None = None, summaries: Collection[int] | None = None
) -> list[Violation]:
    """Return all violations in a list; with its source, also that the request in force is missing."""
    rules = STRUCTURAL if source is None else (*STRUCTURAL, LatestUserTurn(source, summaries))
    return [violation for invariant in rules for violation in invariant.check(messages)]


def repair_all(messages: list[Message]) -> list[Message]:
    """Return the list mended by every structural rule; the very same list if nothing was wrong."""
    if is_plain(messages):
        return messages
    for invariant in STRUCTURAL:
        messages = invariant.repair(messages)
    return messages


def repair_messages(messages: list[Message]) -> list[Message]:
    """Return a list that any provider takes: results follow their calls, orphans are gone, missing results are stubs.

    Calls at the very end stay open. The input and its messages are not changed.

    Raises:
        MessageError: ``messages`` is not a list of messages.

    >>> orphan = {"role": "tool", "tool_call_id": "gone", "content": "42"}
    >>> repair_messages([{"role": "user", "content": "hi"}, orphan])
    [{'role': 'user', 'content': 'hi'}]
    """
    return repair_all(checked_messages(messages))
