"""The invariant that results directly follow their tool calls, and every result answers a call.

Results without a call are removed, calls without a result get a stub, misplaced results are moved to their call. One
exception: calls of the very last group may still be pending, because the host is about to run them.
"""

from __future__ import annotations

from collections.abc import Sequence

from everlong.context.invariants.base import Violation
from everlong.context.literals import MISSING_RESULT
from everlong.model import Group, Message, ToolCall, calls_of, find_groups


class ToolPairing:
    """The rule that calls and results stand together, one to one."""

    name = "tool_pairing"

    def allows_cut(self, messages: Sequence[Message], index: int) -> bool:
        """Forbid a cut before a result, which would lose its call."""
        return messages[index].get("role") not in ("tool", "function")

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
