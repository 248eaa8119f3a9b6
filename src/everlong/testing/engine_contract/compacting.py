"""Whether what `compress` returns may be sent, and has in it what must not be lost: on samples and on generated lists.

The rules are the invariants that the package itself keeps; generated conversations come from
`everlong.testing.strategies`, the same ones every time.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable

from everlong.context.invariants import LatestUserTurn, check_all
from everlong.errors import TargetUnreachable
from everlong.model import Message, calls_of, leading_system_count, text_of
from everlong.testing.engine_contract.samples import BROKEN, ODD, long_conversation, long_errand
from everlong.testing.engine_contract.subject import (
    ContractBroken,
    Subject,
    Workbench,
    as_json,
    case,
    require,
    shown,
    tokens,
)

__all__ = ["COMPACTING", "compacted"]

_SHRINKING = 60
"""So many times a smaller conversation is looked for that shows the same."""

Property = Callable[[Workbench, list[Message]], None]


# -- what must hold for one conversation ---------------------------------------------------------------------------


def is_valid(bench: Workbench, messages: list[Message]) -> None:
    """The result may be sent to any provider."""
    result = bench.fresh().compress(messages)
    require_valid(messages, result)
    as_json(result, "what compress() returned")


def require_valid(messages: list[Message], result: list[Message]) -> None:
    """Report where providers would refuse the result."""
    places = "; ".join(f"at {violation.at}: {violation.problem}" for violation in check_all(result)[:3])
    advice = "cut only between whole groups of a call and its results, or mend the list with repair_messages()"
    told = f"compress() returned a list that providers refuse ({places})"
    require(not places, f"{told}; {advice}{case(messages, result)}")


def is_left_alone(bench: Workbench, messages: list[Message]) -> None:
    """The input is the host's."""
    given = copy.deepcopy(messages)
    held = list(given)
    bench.fresh().compress(given)
    advice = "work on copies: the host stores the messages that it handed in"
    same_list = len(given) == len(held) and all(a is b for a, b in zip(given, held, strict=True))
    require(same_list, f"compress() changed the list that it was given; {advice}{case(messages)}")
    told = "compress() changed a message of the list that it was given"
    require(given == messages, f"{told}; {advice}{case(messages)}")


def keeps_the_request(bench: Workbench, messages: list[Message]) -> None:
    """The model answers the newest message of the user."""
    result = bench.fresh().compress(messages)
    require_request(messages, result)


def require_request(messages: list[Message], result: list[Message]) -> None:
    """Report where the newest user message is not in the result."""
    told = "in what compress() returned, the latest user message is missing or not after the summary"
    advice = "keep that message word for word, after any summary, or the model does not know what it was asked"
    require(not LatestUserTurn(messages).check(result), f"{told}; {advice}{case(messages, result)}")


def keeps_the_system_prompt(bench: Workbench, messages: list[Message]) -> None:
    """At the beginning, with all its words."""
    require_system_prompt(messages, bench.fresh().compress(messages))


def require_system_prompt(messages: list[Message], result: list[Message]) -> None:
    """Report where the system prompt is not at the beginning of the result."""
    prompt = "\n".join(text_of(result[n]) for n in range(leading_system_count(result)))
    for n in range(leading_system_count(messages)):
        told = "in what compress() returned, the system prompt is lost"
        advice = "keep the leading system messages at the beginning; text may be added behind them"
        require(text_of(messages[n]) in prompt, f"{told}; {advice}{case(messages, result)}")


def keeps_open_calls(bench: Workbench, messages: list[Message]) -> None:
    """The host is about to run them."""
    result, open_calls = bench.fresh().compress(messages), _open_calls(messages)
    told = f"in what compress() returned, the calls that wait for a result are no longer {open_calls}"
    advice = "leave the last assistant message and its results as they are: the host is about to run the rest"
    require(_open_calls(result) == open_calls, f"{told}; {advice}{case(messages, result)}")


def _open_calls(messages: list[Message]) -> list[str]:
    """The ids of calls at the end of a list that have no result yet."""
    answered: list[str] = []
    for message in reversed(messages):
        if message["role"] != "tool":
            return [c.id for c in calls_of(message) if c.id not in answered] if message["role"] == "assistant" else []
        answered.append(str(message.get("tool_call_id")))
    return []


def does_not_grow(bench: Workbench, messages: list[Message]) -> None:
    """A compaction that adds is none."""
    result = bench.fresh().compress(messages)
    before, after = tokens(messages, repaired=True), tokens(result)
    told = f"compress() made about {after} tokens of {before}"
    advice = "return the list as it was (mended, if need be) where nothing is gained; MessageCounter counts like this"
    require(after <= before, f"{told}; {advice}{case(messages, result)}")


def is_the_same_again(bench: Workbench, messages: list[Message]) -> None:
    """The same words in, the same words out."""
    first, second = bench.fresh().compress(messages), bench.fresh().compress(copy.deepcopy(messages))
    advice = "leave out times, random ids, the order of sets, and what other conversations left behind"
    told = "two new engines made different lists of the same conversation"
    require(first == second, f"{told}; {advice}{case(messages, first)}\n  and: {shown(second)}")


# -- on which conversations ----------------------------------------------------------------------------------------


def on_samples(held: Property, samples: Iterable[list[Message]]) -> Callable[[Workbench], None]:
    """A check of a property on fixed conversations."""

    def check(bench: Workbench) -> None:
        for messages in samples:
            held(bench, messages)

    check.__doc__ = f"{held.__doc__} (fixed conversations)"
    return check


def on_long(held: Property) -> Callable[[Workbench], None]:
    """A check of a property on a conversation of four windows, and on a run whose request is far back."""

    def check(bench: Workbench) -> None:
        held(bench, long_conversation(bench.context_length))
        held(bench, long_errand(bench.context_length))

    check.__doc__ = f"{held.__doc__} (long conversations)"
    return check


def on_generated(held: Property, *, damaged: bool = False) -> Callable[[Workbench], None]:
    """A check of a property on generated conversations; what is reported is the smallest that breaks it."""

    def check(bench: Workbench) -> None:
        try:
            from hypothesis import (  # noqa: PLC0415 - an extra
                HealthCheck,
                Phase,
                Verbosity,
                given,
                settings,
                strategies as st,
            )
            from hypothesis.errors import Flaky  # noqa: PLC0415 - as above
        except ImportError as error:
            raise ImportError("the engine contract needs Hypothesis: pip install 'everlong[testing]'") from error
        from everlong.testing.strategies import conversations  # noqa: PLC0415 - as above

        found: list[tuple[int, ContractBroken]] = []
        tried = 0
        gone = st.frozensets(st.integers(0, 12), max_size=3) if damaged else st.just(frozenset[int]())

        @settings(
            max_examples=bench.examples,
            derandomize=True,
            database=None,
            deadline=None,
            verbosity=Verbosity.quiet,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(conversations(6), gone)
        def holds(messages: list[Message], missing: frozenset[int]) -> None:
            nonlocal tried
            tried += bool(found)
            if tried > _SHRINKING:
                return
            given = [message for place, message in enumerate(messages) if place not in missing]
            try:
                held(bench, given)
            except ContractBroken as broken:
                found.append((len(repr(given)), broken))
                raise

        try:
            holds()
        except (
            ContractBroken,
            Flaky,
        ):  # flaky: it broke by chance, or enough smaller ones were tried; a finding all the same
            raise min(found, key=lambda one: one[0])[1] from None

    check.__doc__ = f"{held.__doc__} (generated conversations)"
    return check


# -- size and arguments --------------------------------------------------------------------------------------------


def brings_it_inside(bench: Workbench) -> None:
    """What was over the window is inside it afterwards."""
    window, subject = bench.context_length, bench.fresh()
    for messages in (long_conversation(window), long_errand(window), ODD["an old tool result of a million characters"]):
        result = messages
        for _ in range(3):  # an engine may do a part at a time
            result = subject.compress(result)
        size = tokens(result)
        told = f"three calls of compress() left about {size} tokens of {tokens(messages)} in a window of {window}"
        advice = "cut more, or the next request is refused"
        require(size < window, f"{told}; {advice}{case(messages, result)}")


def counts_afterwards(bench: Workbench) -> None:
    """The figures are those of the new list."""
    subject, messages = bench.fresh(), long_conversation(bench.context_length)
    before = tokens(messages)
    subject.call("update_from_response", {"prompt_tokens": before, "completion_tokens": 9, "total_tokens": before + 9})
    result = subject.compress(messages, current_tokens=before)
    size, found = tokens(result), subject.get("last_prompt_tokens")
    told = f"after compress() last_prompt_tokens is {found!r}, and the new list has about {size} tokens"
    good = isinstance(found, int) and size / 3 <= found <= size * 3
    require(good, f"{told}; set it to an estimate of the new list, or the next turn compacts again")
    count = subject.get("compression_count")
    require(count == 1, f"after one compress() that changed something compression_count is {count!r}; add 1 to it")


def takes_a_topic(bench: Workbench) -> None:
    """What `/compress TOPIC` hands in, in every way a host may do it."""
    messages = long_conversation(bench.context_length, 1.5)
    _require_good(messages, bench.fresh().compress(messages, focus_topic="the port"))
    _require_good(messages, bench.fresh().compress(messages, current_tokens=9_000, focus_topic="登录"))
    _require_good(messages, bench.fresh().compress(messages, None, None))


def takes_what_it_declares(bench: Workbench) -> None:
    """Hosts pass more only to engines whose signature takes it."""
    messages, subject = long_conversation(bench.context_length, 1.5), bench.fresh()
    offered = {"force": True, "memory_context": "The user likes tea.", "target_tokens": tokens(messages) // 2}
    declared = inspect.signature(subject.engine.compress).parameters
    for name, value in offered.items():
        if name not in declared:
            continue
        try:
            _require_good(messages, bench.fresh().compress(messages, **{name: value}))
        except ContractBroken as error:
            if not isinstance(error.__cause__, TargetUnreachable):
                raise


def _require_good(messages: list[Message], result: list[Message]) -> None:
    require_valid(messages, result)
    require_request(messages, result)


def compacted(subject: Subject, messages: list[Message]) -> list[Message]:
    """A result that is valid and has the prompt and the request in it."""
    result = subject.compress(messages)
    require_valid(messages, result)
    require_request(messages, result)
    require_system_prompt(messages, result)
    return result


def _everywhere(held: Property) -> tuple[Callable[[Workbench], None], ...]:
    return (on_samples(held, ODD.values()), on_long(held), on_generated(held))


_PENDING = [messages for about, messages in ODD.items() if "call" in about]

COMPACTING = {
    "What comes back": (*_everywhere(is_valid), on_samples(keeps_open_calls, _PENDING)),
    "What must survive": (*_everywhere(keeps_the_request), *_everywhere(keeps_the_system_prompt)),
    "Hands off": _everywhere(is_left_alone),
    "Size": (*_everywhere(does_not_grow), brings_it_inside, counts_afterwards),
    "Broken lists": (
        on_samples(is_valid, BROKEN.values()),
        on_samples(keeps_the_request, BROKEN.values()),
        on_generated(is_valid, damaged=True),
        on_generated(does_not_grow, damaged=True),
    ),
    "The same again": (on_long(is_the_same_again), on_generated(is_the_same_again)),
    "Arguments": (takes_a_topic, takes_what_it_declares),
}
"""The checks of this module by the clause of the contract that they belong to."""
