"""Does the quality score fall when a summary is spoilt? ``--damage``.

25 sessions, each with a summary as a careful engineer would write it, and eight kinds of damage done to each summary's
text: 200 damaged summaries. The damage knows nothing of the checks: it moves, changes, adds and removes words. Demanded
of each: at least .15 below its original and under the mark from which a summary is mended, with the fault named in 95
of 100; and of each original .9. A heap of CSS under Constraints is measured beside them.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from everlong.context.frontier import place_frontier, read_frontier
from everlong.context.verify import Yardstick

from bench.measure import verdict
from everlong.context.checks import GOOD
from everlong.model import Message

SESSIONS = 25
LEAST_DROP = 0.15
LEAST_ORIGINAL = 0.9
LEAST_NAMED = 0.95

_WHAT = ("berth planner", "invoice importer", "seating chart", "tide calendar", "parcel tracker")
_PART = ("parser", "scheduler", "exporter", "login page", "search index")
_STORE = ("Postgres", "SQLite", "MySQL", "DuckDB", "Valkey")
_REFUSED = ("Redis", "MongoDB", "Celery", "GraphQL", "Docker")
_PEOPLE = ("Marta", "Jonas", "Ingrid", "Pavel", "Noor")
_STRANGERS = ("Priyanka Velasco", "the Halvorsen team", "Quentin Abara", "the Zephyrine library", "Tolstad Consulting")
_WRAPPER = (
    "<system-reminder>As you answer the user's questions, you can use the following context: # currentDate Today is "
    "a working day. IMPORTANT: this context may or may not be relevant to your tasks.</system-reminder>"
)
_CSS = "\n".join(
    f"- {line}"
    for line in (
        "max-width: 1200px;",
        "border-radius: 10px;",
        '<div class="col-md-4">',
        ".card-body {",
        "padding: 0 1rem;",
        "}",
        "display: flex;",
        "</div>",
        "box-shadow: 0 2px 4px rgba(0, 0, 0, 0.1);",
    )
)


@dataclass
class Session:
    """A conversation, what a careful engineer would write of it, and what holds in it."""

    messages: list[Message]
    summary: str
    rules: tuple[str, ...]
    older_request: str
    yardstick: Yardstick


class Outcome(NamedTuple):
    """The outcome of one damaged summary."""

    kind: str
    original: float
    score: float
    faults: tuple[str, ...]
    is_named: bool

    @property
    def is_held(self) -> bool:
        """Return whether the score fell far enough."""
        return self.score <= self.original - LEAST_DROP + 1e-9 and self.score < GOOD


def session(seed: int) -> Session:
    """Make up one conversation; every seed has other names, figures and words."""
    rng = random.Random(seed)
    what, part, store = rng.choice(_WHAT), rng.choice(_PART), rng.choice(_STORE)
    refused, who = rng.choice(_REFUSED), rng.choice(_PEOPLE)
    port, limit, rows = rng.randint(3_000, 9_999), rng.randint(120, 990), rng.randint(11_000, 98_000)
    version = f"{rng.randint(2, 9)}.{rng.randint(11, 49)}"
    path, test = f"src/{part.replace(' ', '_')}/load_{seed}.py", f"tests/test_load_{seed}.py"
    rules = (
        rng.choice((f"Never touch config/prod_{seed}.yaml.", f"Do not edit the files under vendor/lib_{seed}.")),
        rng.choice(
            (f"Always run {test} before you commit.", f"Answer in short sentences, at most {rng.randint(5, 9)} lines.")
        ),
    )
    opening = f"Please move the {what} from {refused} to {store}. {rules[0]} {who} needs it for the review."
    older = f"Add an index so that the {part} answers in under {limit} ms. {rules[1]}"
    newest = rng.choice(
        (
            f"The import of {rows} rows stops half-way, find out why and mend it.",
            f"Please make the {part} retry when {store} is not reachable on port {port}.",
            f"Write the migration notes for {who}, and mention version {version}.",
        )
    )
    first, second, third, fourth = (
        f"Replace the {refused} client in {path}",
        f"Create the index for the {part}",
        f"Retry when {store} is away",
        f"Write migration notes for {who}",
    )
    early = [("completed", first), ("in_progress", second), ("pending", third), ("pending", fourth)]
    late = [("completed", first), ("completed", second), ("in_progress", third), ("pending", fourth)]
    error = f"FAILED {test}::test_reconnect - ConnectionError: {store} refused on port {port}"
    decided = f"We will not keep {refused} as a cache, because {who} wants one store."
    messages: list[Message] = [
        {"role": "user", "content": f"{_WRAPPER}\n{opening}"},
        spoken(f"I will look at the {what} first."),
        *called(1, "Read", f"import {refused.lower()}\nclient = connect(port={port})", file_path=path),
        *planned(2, early),
        *called(3, "Edit", "The file has been updated.", file_path=path, new_string=f"connect_{store.lower()}()"),
        spoken(f"The client is replaced in {path}. {decided} {store} {version} has been set up on port {port}."),
        {"role": "user", "content": older},
        *called(4, "Bash", "CREATE INDEX", command=f"psql -c 'create index on rows_{seed}'"),
        *planned(5, late),
        spoken(f"The index is there; the {part} answers in {limit - 40} ms now, with {rows} rows."),
        {"role": "user", "content": newest},
        *called(6, "Bash", f"{error}\n1 failed, 8 passed", command=f"pytest {test}"),
    ]
    style = rng.choice(("- ", "* "))
    blocks = {
        "## Goal": [f"Move the {what} from {refused} to {store}."],
        "## Constraints & Preferences": [*rules, f"{who} needs it for the review."],
        "## Progress\n### Done": [
            f"The {refused} client was replaced in {path}; {store} {version} runs on port {port}.",
            f"The {part} has its index and answers in {limit - 40} ms with {rows} rows (asked for: under {limit} ms).",
        ],
        "## Key Decisions": [decided],
        "## Pending User Asks": [f"Newest request: {newest}"],
        "## Relevant Files": [f"{path} — edited", f"{test} — fails"],
    }
    written = "\n".join(
        line for heading, items in blocks.items() for line in (heading, *(f"{style}{item}" for item in items))
    )
    frontier = read_frontier(messages)
    yardstick = Yardstick(messages, (), messages, newest=newest, frontier=frontier, rules=rules)
    return Session(messages, place_frontier(written, frontier, 4_000, len), rules, older, yardstick)


def spoken(text: str) -> Message:
    """Return what an assistant said."""
    return {"role": "assistant", "content": text}


def called(number: int, name: str, result: str, **arguments: object) -> list[Message]:
    """Return a call and its result."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    made: Message = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }
    return [made, {"role": "tool", "tool_call_id": f"c{number}", "content": result}]


def planned(number: int, items: list[tuple[str, str]]) -> list[Message]:
    """Return a call that writes a plan."""
    return called(number, "TodoWrite", "ok", todos=[{"content": text, "status": state} for state, text in items])


# -- damage ------------------------------------------------------------------------------------------------------------


def _wrapper_as_goal(text: str, it: Session, rng: random.Random) -> str:
    del it, rng
    return re.sub(r"(## Goal\n[-*] ).*", lambda found: found[1] + _WRAPPER, text, count=1)


def _rule_dropped(text: str, it: Session, rng: random.Random) -> str:
    rule = rng.choice(it.rules)
    return "\n".join(line for line in text.splitlines() if rule not in line)


def _open_item_done(text: str, it: Session, rng: random.Random) -> str:
    del it
    lines = text.splitlines()
    places = [place for place, line in enumerate(lines) if re.match(r"\s+- \[[ >]\] ", line)]
    moved = lines.pop(rng.choice(places))
    lines.insert(lines.index("### Done") + 1, "- " + re.sub(r"^\s+- \[.\] ", "", moved))
    return "\n".join(lines)


def _number_changed(text: str, it: Session, rng: random.Random) -> str:
    del it
    found = rng.choice(list(re.finditer(r"(?<![\w.])\d{3,5}(?![\w.])", text)))
    digits = list(found[0])
    place = rng.randrange(len(digits))
    digits[place] = str((int(digits[place]) + rng.randint(1, 8)) % 9 + 1)
    changed = "".join(digits) if "".join(digits) != found[0] else found[0][::-1] + "7"
    return text[: found.start()] + changed + text[found.end() :]


def _name_invented(text: str, it: Session, rng: random.Random) -> str:
    del it
    who = rng.choice(_STRANGERS)
    line = rng.choice((f"- It was agreed with {who}.", f"- The change was asked for by {who} last week."))
    heading = rng.choice(("## Key Decisions", "### Done"))
    return text.replace(f"{heading}\n", f"{heading}\n{line}\n", 1)


def _negation_lost(text: str, it: Session, rng: random.Random) -> str:
    del it
    turned = {"will not keep": "will keep", "Never touch": "Touch", "Do not edit": "Edit"}
    there = [words for words in turned if words in text]
    words = rng.choice(there)
    return text.replace(words, turned[words], 1)


def _plan_stale(text: str, it: Session, rng: random.Random) -> str:
    del it, rng
    lines = text.splitlines()
    places = [place for place, line in enumerate(lines) if re.match(r"\s+- \[.\] ", line)]
    for place, mark in zip(places, "x> ", strict=False):
        lines[place] = re.sub(r"\[.\]", f"[{mark}]", lines[place])
    return "\n".join(lines)


def _request_older(text: str, it: Session, rng: random.Random) -> str:
    del rng
    return re.sub(r"Newest request: .*", lambda _: f"Newest request: {it.older_request}", text, count=1)


def _css_heap(text: str, it: Session, rng: random.Random) -> str:
    del it, rng
    return text.replace("## Constraints & Preferences\n", f"## Constraints & Preferences\n{_CSS}\n", 1)


Damage = Callable[[str, Session, random.Random], str]
DAMAGES: dict[str, tuple[Damage, tuple[str, ...]]] = {
    "goal replaced by wrapper text": (_wrapper_as_goal, ("goal",)),
    "rule dropped": (_rule_dropped, ("rules",)),
    "open item moved to Done": (_open_item_done, ("frontier",)),
    "number changed": (_number_changed, ("invented", "frontier", "newest request", "contradiction")),
    "name invented": (_name_invented, ("invented",)),
    "negation lost": (_negation_lost, ("contradiction", "rules")),
    "plan stale": (_plan_stale, ("frontier",)),
    "older request called newest": (_request_older, ("newest request",)),
    "heap of CSS": (_css_heap, ("code",)),
}
"""Each kind of damage, and the checks of which one must name it."""


def outcomes(sessions: int = SESSIONS, seed: int = 1) -> tuple[list[float], list[Outcome]]:
    """Return the scores of the originals, and what became of every damaged summary."""
    originals: list[float] = []
    found: list[Outcome] = []
    for number in range(sessions):
        made = session(seed * 1_000 + number)
        original = made.yardstick.grade(made.summary)
        originals.append(original)
        for kind, (damage, checks) in DAMAGES.items():
            spoilt = damage(made.summary, made, random.Random(f"{seed}:{number}:{kind}"))
            faults = made.yardstick.faults(spoilt)
            score = made.yardstick.grade(spoilt)
            named = any(fault.check in checks for fault in faults)
            found.append(Outcome(kind, original, score, tuple(map(str, faults)), named))
    return originals, found


def report(title: str, originals: list[float], found: list[Outcome], misses: int) -> bool:
    """Print what became of damaged summaries, and return whether every bar holds."""
    print(f"{title:<32} {'held':>8} {'named':>8} {'highest score':>14} {'least drop':>11}")
    for kind in dict.fromkeys(one.kind for one in found):
        mine = [one for one in found if one.kind == kind]
        held, named = sum(one.is_held for one in mine), sum(one.is_named for one in mine)
        print(
            f"{kind:<32} {held:>4}/{len(mine):<3} {named:>4}/{len(mine):<3} "
            f"{max(o.score for o in mine):>14.2f} {min(o.original - o.score for o in mine):>11.2f}"
        )
    held, share = sum(one.is_held for one in found), sum(one.is_named for one in found) / len(found)
    print(
        f"\n{held}/{len(found)} at least {LEAST_DROP} below their original and below {GOOD}: "
        f"{verdict(held, len(found), at_least=True)}; {share:.3f} named: {verdict(share, LEAST_NAMED, at_least=True)}; "
        f"{len(originals)} originals score {min(originals):.2f} to {max(originals):.2f}: "
        f"{verdict(min(originals), LEAST_ORIGINAL, at_least=True)}\n"
    )
    for one in [one for one in found if not (one.is_held and one.is_named)][:misses]:
        print(f"  {one.kind}: {one.original:.2f} → {one.score:.2f}, {one.faults}")
    return held == len(found) and share >= LEAST_NAMED and min(originals) >= LEAST_ORIGINAL
