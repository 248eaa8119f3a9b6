"""Checks of an engine's life in a session: start, roll-over, end, reset, another model, a restart."""

from __future__ import annotations

import json

from everlong.testing.engine_contract.compacting import compacted
from everlong.testing.engine_contract.samples import long_conversation, said
from everlong.testing.engine_contract.shape import is_whole, tool_arguments, tool_function, tool_schemas
from everlong.testing.engine_contract.subject import Subject, Workbench, quote, require, tokens

__all__ = ["LIVING"]

_SESSION, _CHILD = "20260102_030405_abcdef", "20260102_040506_fedcba"
_SECRET = "The word of the day is quetzalcoatlus. "  # noqa: S105 - a word by which a conversation is known again


def _start(subject: Subject, session: str, **more: object) -> None:
    if subject.has("on_session_start"):
        advice = "it must take the session's id and any further keyword argument (**kwargs)"
        subject.call("on_session_start", session, platform="cli", model="some-model", advice=advice, **more)


def goes_through_a_session(bench: Workbench) -> None:
    """Check a session: start, turns, compactions with a roll-over, the end."""
    window, subject = bench.context_length, bench.fresh()
    _start(subject, _SESSION, context_length=window, conversation_id=_SESSION)
    messages = long_conversation(window, 1.2)
    for turn in range(3):
        used = tokens(messages)
        usage = {"prompt_tokens": used, "completion_tokens": 9, "total_tokens": used + 9}
        subject.call("update_from_response", usage)
        subject.call("should_compress")
        messages = compacted(subject, messages)
        _start(subject, _CHILD, parent_session_id=_SESSION, reason="compression")
        messages = [*messages, said("assistant", f"Done, {turn}."), *long_conversation(window, 0.6)[1:]]
    if subject.has("on_session_end"):
        subject.call("on_session_end", _CHILD, messages)


def bears_misuse(bench: Workbench) -> None:
    """Check calls in the wrong order: hosts crash, and people are quick."""
    subject, messages = bench.fresh(), long_conversation(bench.context_length, 1.2)
    compacted(subject, messages)  # before any session was started
    for _ in range(2):
        if subject.has("on_session_end"):
            subject.call("on_session_end", _SESSION, [], advice="a session may end twice, or before it began")
    if subject.has("on_session_reset"):
        subject.call("on_session_reset")
    _start(subject, _SESSION)
    _start(subject, _SESSION)
    compacted(subject, messages)


def zeroes_its_counters(bench: Workbench) -> None:
    """Check that the counters are zero after /new and /reset."""
    subject = bench.fresh()
    if not subject.has("on_session_reset"):
        return
    window, threshold = bench.context_length, subject.get("threshold_tokens")
    subject.call("update_from_response", {"prompt_tokens": 900, "completion_tokens": 9, "total_tokens": 909})
    subject.compress(long_conversation(window))
    subject.call("on_session_reset")
    for name in ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count"):
        value = subject.get(name)
        advice = "set it to 0, or call super().on_session_reset()"
        require(is_whole(value) and value == 0, f"after on_session_reset() {name} is {value!r}; {advice}")
    kept = (subject.get("context_length"), subject.get("threshold_tokens"))
    advice = "the model is still the same"
    require(kept == (window, threshold), f"on_session_reset() changed context_length or threshold_tokens: {advice}")


def forgets_the_conversation(bench: Workbench) -> None:
    """Check that nothing of a conversation turns up in the next one."""
    subject = bench.fresh()
    if not subject.has("on_session_reset"):
        return
    _start(subject, _SESSION)
    before = long_conversation(bench.context_length, mark=_SECRET)
    subject.compress(before)
    if subject.has("on_session_end"):
        subject.call("on_session_end", _SESSION, before)
    subject.call("on_session_reset")
    _start(subject, _CHILD)
    result = subject.compress(long_conversation(bench.context_length))
    leaked = "quetzalcoatlus" in json.dumps(result)
    told = "words of a conversation from before on_session_reset() stand in what compress() returned after it"
    advice = "on_session_reset() must forget what the engine keeps of a conversation"
    require(not leaked, f"{told}; {advice}\n  returned: {quote(result)}")


def keeps_its_tools(bench: Workbench) -> None:
    """Check that tools offered before a reset work after it: a host asks for them once and goes on offering them."""
    subject, messages = bench.fresh(), long_conversation(bench.context_length, 1.2)
    if not subject.has("on_session_reset"):
        return
    _start(subject, _SESSION)
    subject.compress(messages)
    offered = [tool_function(schema) for schema in tool_schemas(subject)]
    subject.call("on_session_reset")
    _start(subject, _CHILD)
    advice = (
        "the host goes on offering the tools that it was given before the reset; set them up anew, and find nothing"
    )
    for tool in offered:
        name, parameters = tool.get("name"), tool.get("parameters")
        args = tool_arguments(parameters)[0] if isinstance(parameters, dict) else {}
        answer = subject.call("handle_tool_call", name, args, advice=advice, messages=messages[:2])
        told = f"after on_session_reset() handle_tool_call({name!r}, {args!r}, messages=…) returned {answer!r}"
        good = isinstance(answer, str) and f"Unknown tool: {name}" not in answer
        require(good, f"{told}; {advice}")


def follows_the_model(bench: Workbench) -> None:
    """Check the switch to a model with a smaller window, and with a larger one."""
    subject = bench.fresh()
    if not subject.has("update_model"):
        return
    window, threshold = bench.context_length, subject.get("threshold_tokens")
    for length, grows in ((window // 2, False), (window * 4, True)):
        where = {"base_url": "http://127.0.0.1:1/v1", "api_key": "none", "provider": "openai"}
        subject.call("update_model", "other-model", length, **where)
        found, now = subject.get("context_length"), subject.get("threshold_tokens")
        told = f"update_model('other-model', {length}, …)"
        require(found == length, f"after {told} context_length is {found!r}; set it to {length}")
        good = is_whole(now) and 0 < now <= length and (now > threshold if grows else now < threshold)
        advice = f"compute it anew: it was {threshold} in a window of {window}"
        require(good, f"after {told} threshold_tokens is {now!r}; {advice}")


def fits_a_smaller_model(bench: Workbench) -> None:
    """Check that a compaction after a switch fits the new window."""
    window = bench.context_length // 2
    subject, messages = bench.fresh(), long_conversation(bench.context_length, 0.9)
    if not subject.has("update_model"):
        return
    subject.call("update_model", "smaller-model", window)
    for _ in range(3):
        messages = compacted(subject, messages)
    size = tokens(messages)
    told = f"after a switch to a window of {window} three calls of compress() left about {size} tokens"
    require(size < window, f"{told}; plan by the context_length that update_model() was given")


def goes_on_after_a_restart(bench: Workbench) -> None:
    """Check that a new engine takes over a list that another one compacted and a store kept."""
    window = bench.context_length
    messages = long_conversation(window)
    for number in range(4):
        result = compacted(bench.fresh(), messages)
        before, after = tokens(messages, repaired=True), tokens(result)
        told = f"a new engine was handed the list that one before it had compacted, and made {after} tokens of {before}"
        require(after <= before, f"{told}; know your own summary again in the conversation, and update it")
        more = long_conversation(window, 0.5)[1:]
        messages = [*json.loads(json.dumps(result)), said("assistant", f"Part {number} is done."), *more]


LIVING = {
    "Life cycle": (goes_through_a_session, bears_misuse),
    "Reset": (zeroes_its_counters, forgets_the_conversation, keeps_its_tools),
    "Another model": (follows_the_model, fits_a_smaller_model),
    "Restart": (goes_on_after_a_restart,),
}
"""The checks of this module, by their clause of the contract."""
