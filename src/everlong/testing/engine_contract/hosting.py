"""Checks of what a host reads and calls, and of an engine's life: start, roll-over, end, reset, a switch."""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from everlong.testing.engine_contract.compacting import compacted
from everlong.testing.engine_contract.samples import ODD, long_conversation, said
from everlong.testing.engine_contract.subject import Subject, Workbench, as_json, require, tokens

__all__ = ["LIVING", "SHAPE"]

_REQUIRED = ("update_from_response", "should_compress", "compress")
_COUNTERS = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens", "compression_count")
_WHOLE = (*_COUNTERS, "threshold_tokens", "context_length")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNKNOWN_TOOL = "no_such_tool"


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is a whole number and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def has_a_name(bench: Workbench) -> None:
    """Check the name by which a user chooses the engine."""
    name = bench.bare().get("name")
    require(not callable(name), "name is a method; make it a property, or a plain attribute")
    require(
        isinstance(name, str), f"name is {name!r}; make it a short text, the one that users write in context.engine"
    )
    require(re.fullmatch(r"\S+", name), f"name is {name!r}; make it one word, as users write it in context.engine")
    require(bench.bare().get("name") == name, "name differs from one engine to the next; it must always be the same")


def has_the_required_methods(bench: Workbench) -> None:
    """Check that no required method is missing."""
    subject = bench.bare()
    missing = [method for method in _REQUIRED if not subject.has(method)]
    require(not missing, f"the engine has no {', '.join(f'{method}()' for method in missing)}, which every host calls")


def learns_its_window(bench: Workbench) -> None:
    """Check that the window is known, by the constructor or by `update_model`."""
    window, subject = bench.context_length, bench.fresh()
    found = subject.get("context_length")
    advice = "set it in the constructor's context_length, or in update_model(model, context_length, …)"
    require(found == window, f"made for a window of {window}, the engine has context_length {found!r}; {advice}")


def has_whole_numbers(bench: Workbench) -> None:
    """Check the figures that hosts show."""
    for subject, moment in ((bench.bare(), "in a new engine"), (bench.fresh(), "once the window is known")):
        for name in _WHOLE:
            value = subject.get(name, None)
            good = is_whole(value) and value >= 0
            require(good, f"{name} is {value!r} {moment}; it must be an int at all times, 0 or more")
        for name in _COUNTERS:
            require(subject.get(name) == 0, f"{name} is {subject.get(name)} {moment}; it must be 0 at first")


def has_the_other_attributes(bench: Workbench) -> None:
    """Check the attributes for what is protected, and the threshold's share."""
    subject = bench.fresh()
    for name in ("protect_first_n", "protect_last_n"):
        value = subject.get(name, None)
        require(is_whole(value) and value >= 0, f"{name} is {value!r}; it must be an int of 0 or more")
    share = subject.get("threshold_percent", None)
    good = isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share <= 1
    require(good, f"threshold_percent is {share!r}; it must be a share of the window between 0.0 and 1.0")


def has_a_threshold(bench: Workbench) -> None:
    """Check that the threshold lies inside the window, once that is known."""
    threshold, window = bench.fresh().get("threshold_tokens"), bench.context_length
    good = is_whole(threshold) and 0 < threshold <= window
    require(good, f"threshold_tokens is {threshold!r} in a window of {window}; it must be an int from 1 to {window}")


def takes_usage_over(bench: Workbench) -> None:
    """Check that the usage of every response is taken over."""
    cached = {"input_tokens": 100, "cache_read_tokens": 700, "cache_write_tokens": 100, "reasoning_tokens": 20}
    for extra in ({}, cached | {"output_tokens": 50}):
        usage = {"prompt_tokens": 900, "completion_tokens": 50, "total_tokens": 950, **extra}
        subject = bench.fresh()
        subject.call("update_from_response", dict(usage))
        for name, key in zip(_COUNTERS, ("prompt_tokens", "completion_tokens", "total_tokens"), strict=False):
            found = subject.get(name)
            advice = f'take over usage["{key}"]; "prompt_tokens" has cache reads and writes in it'
            require(found == usage[key], f"after update_from_response({usage}) {name} is {found!r}; {advice}")


def takes_scant_usage(bench: Workbench) -> None:
    """Check that usage with missing figures is taken: providers leave things out."""
    scant: tuple[dict[str, Any], ...] = (
        {"prompt_tokens": 900, "completion_tokens": 50},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
        {"prompt_tokens": 900, "x_provider": {"queue": 3}},
        {},
    )
    subject = bench.fresh()
    for usage in scant:
        given = dict(usage)
        subject.call("update_from_response", given, advice="providers leave fields out: use usage.get(…) or 0")
        require(given == usage, f"update_from_response({usage}) changed the dict that it was given; only read it")
        for name in _COUNTERS:
            value = subject.get(name)
            advice = "it must stay an int: use usage.get(…) or 0"
            require(is_whole(value), f"after update_from_response({usage}) {name} is {value!r}; {advice}")


def decides_by_the_tokens(bench: Workbench) -> None:
    """Check that an empty window needs no compaction, and a full one does."""
    subject, window = bench.fresh(), bench.context_length
    for size, wanted, why in (
        (0, False, "nothing has been said yet"),
        (window, True, "the window is full, and the next request would be refused"),
    ):
        answer = subject.call("should_compress", size)
        advice = f"it must be the bool {wanted}, because {why}"
        require(answer is wanted, f"should_compress({size}) returned {answer!r} in a window of {window}; {advice}")


def decides_by_the_last_usage(bench: Workbench) -> None:
    """Check the decision by the last usage, if no number is given."""
    subject, window = bench.fresh(), bench.context_length
    answer = subject.call("should_compress")
    require(answer is False, f"should_compress() of a new engine returned {answer!r}; it must be False")
    subject.call("update_from_response", {"prompt_tokens": window, "completion_tokens": 1, "total_tokens": window + 1})
    answer = subject.call("should_compress")
    advice = "without an argument it must go by last_prompt_tokens"
    require(answer is True, f"should_compress() returned {answer!r} after a response of {window} tokens; {advice}")


def answers_before_a_request(bench: Workbench) -> None:
    """Check the two optional questions before a request."""
    conversations = {**ODD, "a long conversation": long_conversation(bench.context_length)}
    for method in ("should_compress_preflight", "has_content_to_compress"):
        subject = bench.fresh()
        for about, messages in conversations.items() if subject.has(method) else ():
            answer = subject.call(method, messages)
            require(isinstance(answer, bool), f"{method}() returned {answer!r} for {about}; it must be a bool")


def tells_its_status(bench: Workbench) -> None:
    """Check the status for display, at any time."""
    subject = bench.bare()
    if not subject.has("get_status"):
        return
    for moment in ("before a session", "after a response"):
        status = subject.call("get_status", advice="it may be asked at any time")
        require(isinstance(status, dict), f"get_status() returned {status!r} {moment}; it must be a dict")
        as_json(status, f"get_status() {moment}")
        wanted = ("last_prompt_tokens", "threshold_tokens", "context_length", "compression_count", "usage_percent")
        missing = [key for key in wanted if key not in status]
        advice = "start from super().get_status() and add your own figures"
        require(not missing, f"get_status() {moment} lacks {', '.join(missing)}; {advice}")
        share = status["usage_percent"]
        good = isinstance(share, int | float) and not isinstance(share, bool) and share >= 0
        require(good, f"get_status() {moment} has usage_percent {share!r}; it must be a number, 0 or more")
        subject.call("update_from_response", {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 905})


def describes_its_tools(bench: Workbench) -> None:
    """Check that tools are functions in the OpenAI format, so that every provider takes them."""
    schemas = tool_schemas(bench.fresh())
    names = [tool_function(schema).get("name") for schema in schemas]
    for name in names:
        require(
            isinstance(name, str) and _TOOL_NAME.fullmatch(name),
            f"a tool is called {name!r}; providers take 1 to 64 letters, digits, _ and -",
        )
        require(names.count(name) == 1, f"two tools are called {name!r}; every tool needs a name of its own")
    for schema in schemas:
        function = tool_function(schema)
        name, parameters = function["name"], function.get("parameters")
        told = f"the tool {name!r}"
        require(isinstance(function.get("description"), str), f"{told} has no description; models choose tools by it")
        good = isinstance(parameters, dict) and parameters.get("type") == "object"
        require(good, f"{told} has parameters {parameters!r}; they must be a JSON schema of type object")
        assert isinstance(parameters, dict)  # noqa: S101 - for the type checker
        unknown = [key for key in parameters.get("required", []) if key not in parameters.get("properties", {})]
        require(not unknown, f"{told} requires {', '.join(map(repr, unknown))}, which its properties do not have")
        as_json(schema, f"the schema of {told}")


def refuses_unknown_tools(bench: Workbench) -> None:
    """Check that an unknown tool is refused in the words that hosts know."""
    subject = bench.fresh()
    if not subject.has("handle_tool_call"):
        return
    answer = subject.call("handle_tool_call", _UNKNOWN_TOOL, {}, advice="a model may call what is not there")
    wanted = f'{{"error": "Unknown tool: {_UNKNOWN_TOOL}"}}'
    advice = f"return the JSON text {wanted}, or super().handle_tool_call(name, args)"
    require(answer == wanted, f"handle_tool_call({_UNKNOWN_TOOL!r}, {{}}) returned {answer!r}; {advice}")


def answers_every_call(bench: Workbench) -> None:
    """Check that every call is answered, whatever a model passes."""
    subject = bench.fresh()
    subject.call("on_session_start", "20260102_030405_abcdef") if subject.has("on_session_start") else None
    for schema in tool_schemas(subject):
        function = tool_function(schema)
        name, parameters = function.get("name"), function.get("parameters")
        for args in tool_arguments(parameters) if isinstance(parameters, dict) else ():
            advice = "models do send wrong arguments: answer with a JSON error, which the model can read"
            more = {"messages": long_conversation(bench.context_length, 0.2)}
            answer = subject.call("handle_tool_call", name, args, advice=advice, **more)
            told = f"handle_tool_call({name!r}, {args!r}, messages=…) returned {answer!r}"
            require(isinstance(answer, str), f"{told}; every call must be answered with a text")


def tool_schemas(subject: Subject) -> list[Any]:
    """Return the schemas of the tools that an engine offers."""
    if not subject.has("get_tool_schemas"):
        return []
    schemas = subject.call("get_tool_schemas")
    require(isinstance(schemas, list), f"get_tool_schemas() returned {schemas!r}; it must be a list, [] for no tools")
    for schema in schemas:
        is_dict = isinstance(tool_function(schema), dict)
        require(is_dict, f"a tool's schema is {schema!r}; it must be a dict with name, …")
    return list(schemas)


def tool_function(schema: Any) -> Any:
    """Return the function of a tool, given bare or inside ``{"type": "function"}``; both are in use."""
    inner = isinstance(schema, dict) and schema.get("type") == "function" and "function" in schema
    return schema["function"] if inner else schema


def tool_arguments(parameters: dict[str, Any]) -> list[dict[str, Any]]:
    """Return arguments that fit, none at all, and wrong ones."""
    values = {"string": "port", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
    properties = parameters.get("properties", {})
    fitting = {}
    for name, schema in properties.items():
        allowed = schema.get("enum") if isinstance(schema, dict) else None
        kind = schema.get("type") if isinstance(schema, dict) else None
        fitting[name] = allowed[0] if allowed else values.get(str(kind), "port")
    wrong = dict.fromkeys(properties, None) | {"no_such_argument": [1]}
    return [fitting, {name: fitting[name] for name in parameters.get("required", [])}, {}, wrong]


# -- a life ------------------------------------------------------------------------------------------------------------


_SESSION, _CHILD = "20260102_030405_abcdef", "20260102_040506_fedcba"


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


LIVING = {
    "Life cycle": (goes_through_a_session,),
    "Reset": (zeroes_its_counters,),
    "Another model": (follows_the_model,),
}
"""The checks of this module, by their clause of the contract."""

SHAPE = {
    "Making one": (has_a_name, has_the_required_methods, learns_its_window),
    "Attributes": (has_whole_numbers, has_the_other_attributes, has_a_threshold),
    "Usage": (takes_usage_over, takes_scant_usage),
    "Deciding when": (decides_by_the_tokens, decides_by_the_last_usage, answers_before_a_request),
    "Status": (tells_its_status,),
    "Tools": (describes_its_tools, refuses_unknown_tools, answers_every_call),
}
"""The checks of this module, by their clause of the contract."""
