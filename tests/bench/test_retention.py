"""Each measure of ``bench.retention``, pinned by conversations small enough to count by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.retention.data import Conversation
from bench.retention.entities import entities, stands
from bench.retention.facts import Fact, Transcript
from bench.retention.measures import Share, held_facts, held_turns
from bench.retention.methods import METHODS, body_tokens
from bench.retention.retrieval import found_facts, masked
from bench.retention.rules import BARS, load_chats, measure
from bench.retention.texts import Text
from bench.retention.trials import Trial, Work, try_all
from bench.retention.validity import problems

from everlong.model import Message


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str, *calls: tuple[str, dict[str, Any]]) -> Message:
    made = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def tool(text: str, place: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"c{place}", "content": text}


def names(facts: list[Fact]) -> list[str]:
    return [fact.text for fact in facts]


def kinds(text: str) -> dict[str, str]:
    return {entity.text: entity.kind for entity in entities(text)}


# -- what counts as a fact ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fact", "kind"),
    [
        ("see src/app/main.py.", "src/app/main.py", "path"),
        ("in /etc/hosts now", "/etc/hosts", "path"),
        ("in ~/.app/my-theme.json now", "~/.app/my-theme.json", "path"),
        ("open user-menu.ts first", "user-menu.ts", "file"),
        ("call load_config here", "load_config", "identifier"),
        ("call loadConfig here", "loadConfig", "identifier"),
        ("a PyVariable is made", "PyVariable", "identifier"),
        ("uses mpl.rcParams['x']", "mpl.rcParams", "identifier"),
        ("flight HAT136 leaves", "HAT136", "id"),
        ("certificate_9380982", "certificate_9380982", "id"),
        ("at commit 3fa9c1d2", "3fa9c1d2", "hash"),
        ("it took 274 tries", "274", "number"),
        ("ratio 0.5, say", "0.5", "number"),
        ("wait 250ms", "250ms", "number"),
        ("keep it in .gitignore.", ".gitignore", "file"),
        ("at https://a.example/x?y=1.", "https://a.example/x?y=1", "url"),
        ("on 2024-05-20", "2024-05-20", "date"),
        ("on May 20th, or so", "May 20th", "date"),
    ],
)
def test_a_fact_is_found_with_its_kind(text: str, fact: str, kind: str) -> None:
    assert kinds(text)[fact] == kind


@pytest.mark.parametrize(
    "text", ["and/or", "well-known", "e.g. this", "It works.The end", "7 times", "Hello World", "1750p"]
)
def test_plain_language_has_no_facts(text: str) -> None:
    assert kinds(text) == {}


def test_a_fact_stands_as_a_whole_token_only() -> None:
    assert stands("run load_all now", "load_all")
    assert stands("self.load_all()", "load_all")
    assert not stands("run preload_all", "load_all")
    assert stands("sed -n '27,30p'", "27")
    assert not stands("version 3.27", "27")
    assert not stands("it is 127", "27")
    assert stands("that was 27.", "27")


# -- which facts are needed --------------------------------------------------------------------------------------------

PAST = [
    {"role": "system", "content": "You know rule_zero."},
    user("Fix the failing login in src/auth.py, error 4711."),
    assistant("", ("read", {"path": "src/auth.py"})),
    tool("def check_token(user): raise the login error 4711"),
]


def needed(*later: Message) -> list[Fact]:
    return Transcript([*PAST, *later]).facts_after(len(PAST))


# -- what a context holds ----------------------------------------------------------------------------------------------


def fact(text: str, *company: str, far: bool = False) -> Fact:
    return Fact(text, "id", 0, 0, far, frozenset(company))


def test_recall_counts_facts_that_stand_in_the_context_and_not_in_its_system_prompt() -> None:
    context = Text([{"role": "system", "content": "b_two"}, user("a_one")])
    held = held_facts([fact("a_one"), fact("b_two", far=True)], context)
    assert (held.recall, held.far) == (Share(1, 2), Share(0, 1))
    assert names(held.lost) == ["b_two"]
    assert held.by_kind == {"id": Share(1, 2)}


def test_a_fact_is_bound_by_two_words_of_its_company_in_the_same_message() -> None:
    wanted = [fact("a_one", "login", "error")]
    assert held_facts(wanted, Text([user("the login error of a_one")])).bound == Share(1, 1)
    assert held_facts(wanted, Text([user("the login of a_one")])).bound == Share(0, 1)
    assert held_facts(wanted, Text([user("login error"), user("a_one")])).bound == Share(0, 1)
    assert held_facts(wanted, Text([user("login error" + " x" * 200 + " a_one")])).bound == Share(0, 1)


def test_a_user_turn_survives_if_half_of_its_words_stand_together() -> None:
    turn = user("Rename the harbour planner and delete old berths")  # rename harbour planner delete old berths
    assert held_turns([turn], Text([user("harbour planner: delete")])) == Share(1, 1)
    assert held_turns([turn], Text([user("harbour planner")])) == Share(0, 1)
    assert held_turns([turn], Text([user("harbour"), user("planner"), user("delete")])) == Share(0, 1)
    assert held_turns([turn], Text([user("harbour" + " x" * 300 + "planner" + " x" * 300 + " delete")])) == Share(0, 1)


# -- validity ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        ([*PAST[:2], PAST[3]], "answers no call"),
        ([*PAST[:3], user("and?"), PAST[3]], "before the results"),
        (PAST[1:], "system prompt"),
        ([PAST[0], user("something else")], "latest request is gone"),
    ],
)
def test_a_broken_context_is_told(context: list[Message], problem: str) -> None:
    assert any(problem in found for found in problems(context, PAST))


# -- methods, cuts, trials ---------------------------------------------------------------------------------------------


def long_conversation() -> list[Message]:
    made: list[Message] = [{"role": "system", "content": "Be brief."}, user("Find the broken berth in port_list.")]
    for step in range(20):
        made.append(assistant(f"step {step}", ("bash", {"command": f"show berth_{100 + step}"})))
        made.append(tool(f"berth_{100 + step} holds cargo number {7000 + step} " + "and more plain words " * 20))
    made.append(assistant("The broken ones are berth_101 with cargo number 7001, and berth_117."))
    return made


@pytest.mark.parametrize("method", METHODS)
def test_every_method_stays_within_its_room(method: str) -> None:
    messages = long_conversation()[:-1]
    room = body_tokens(messages) // 3
    context = METHODS[method](messages, room)
    assert context is not None
    assert 0 < body_tokens(context) <= room
    assert context[0]["role"] == "system"


@pytest.mark.parametrize("chain", ["", "history", "context"])
def test_a_conversation_goes_through_every_cut_share_and_method(chain: str) -> None:
    conversation = Conversation("made", "coding", long_conversation())
    trials = try_all(Work(conversation, frozenset(), (0.4,), ("extractive", "keep-last"), chain, with_misses=True))
    assert len(trials) == 2 * (1 if chain else 4)
    for trial in trials:
        assert trial.reached
        assert trial.tokens <= 0.4 * trial.tokens_before
        assert trial.recall.of == trial.facts
        assert len([miss for miss in trial.misses if not miss.unbound]) == trial.recall.of - trial.recall.kept


# -- search, means, plots ----------------------------------------------------------------------------------------------


def test_a_search_finds_a_fact_by_the_other_words_of_the_message_that_uses_it() -> None:
    noise = [user(f"plain talk of number {n}") for n in range(20)]
    messages = [user("the harbour code is a_one"), *noise, assistant("harbour code: a_one")]
    transcript = Transcript(messages)
    facts = transcript.facts_after(len(messages) - 1)
    assert masked("harbour code: a_one", "a_one").split() == ["harbour", "code:"]
    assert found_facts(transcript, len(messages) - 1, facts) == Share(1, 1)


def trial(name: str, kept: int, of: int, *, reached: bool = True) -> Trial:
    return Trial(name, "coding", "extractive", 0.25, 1, reached=reached, recall=Share(kept, of), tokens_before=1)


def test_a_chat_that_was_written_without_a_look_at_the_program_keeps_what_its_user_said() -> None:
    found = measure(load_chats()[-1:])
    kept = {
        kind: [point.is_kept for point in found.points if (point.kind, point.method) == (kind, "everlong")]
        for kind in BARS
    }
    assert {kind: sum(points) / len(points) >= BARS[kind] - 0.05 for kind, points in kept.items()} == dict.fromkeys(
        BARS, True
    )
    assert found.over_budget == 0
