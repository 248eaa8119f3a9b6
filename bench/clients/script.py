"""What a client is asked to do, and the scripted model that does it with the client's own tools.

A plan is a list of tasks, one prompt each; a task is a list of steps (read a file, run a command, write a file, hand
something to a sub-agent) and an answer. The model finds its place in a plan by the id of the call whose result came
last, or by the name of the task in the newest prompt, so it goes on after a compaction, a resumption or a repeat. It
knows only what stands in its request: asked about facts it looks there, then calls the gateway's recall if it is on
offer, and else says that it does not know.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from bench.agent.clerk import is_for_summary, summary_of
from bench.agent.facts import FACTS, FILES
from everlong.testing import Answer, Ask, Call
from everlong.testing.server.tokens import count_text

__all__ = ["Plan", "Step", "Task", "Tools", "Worker", "long_plan", "short_plan"]

KNOWN = FACTS[:10]
"""The facts that are told early and asked about at the end."""
UNKNOWN = "I do not know"
_OWN_SUMMARY = re.compile(
    r"detailed summary of (?:the|our|this) conversation|context summarization assistant|CHECKPOINT COMPACTION"
    r"|summarize this partial conversation|anchored summar|Provide a detailed prompt for continuing"
    r"|summary of the conversation|structured context checkpoint",
    re.IGNORECASE,
)
_FISH = ("herring", "cod", "plaice", "turbot", "sprat", "mackerel", "ling", "hake", "berth", "crane", "tide", "quay")


@dataclass(frozen=True)
class Step:
    """One use of a tool; paths are relative to the client's folder."""

    kind: Literal["read", "run", "write", "agent"]
    path: str = ""
    text: str = ""
    """The command, the contents of the file, or the sub-agent's prompt."""


@dataclass(frozen=True)
class Task:
    """A prompt and what becomes of it."""

    words: str
    steps: tuple[Step, ...] = ()
    answer: str = "Done."
    is_question: bool = False
    """The model has to know the facts."""


@dataclass(frozen=True)
class Plan:
    """A session: its tasks, and the files that are there from the beginning."""

    name: str
    """Letters and digits; also in the ids of calls."""
    tasks: tuple[Task, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def prompt(self, number: int) -> str:
        """What the person says."""
        return f"{self.tasks[number].words} (task {self.name}-{number})"


Tools: TypeAlias = Callable[[Step, Ask], tuple[str, Mapping[str, object]]]
"""How a client's tools do a step of a request: the tool and its arguments."""


class Worker:
    """The scripted model of one client; several sessions may run at once."""

    def __init__(self, plans: Sequence[Plan], tools: Tools | None) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._tools = tools
        self._places = dict.fromkeys(self._plans, (0, 0))
        self._lock = threading.Lock()
        self.known: dict[str, set[str]] = {name: set() for name in self._plans}
        """The questions of each plan that were answered."""
        self.recalled: Counter[str] = Counter()
        """Calls of the gateway's recall by plan."""
        self.asked: Counter[str] = Counter()
        """Requests by what they were for: work, title, summary (the gateway's), own summary (the client's)."""
        self.strays: list[str] = []
        """Requests whose place in a plan is not known."""

    def __call__(self, ask: Ask) -> Answer:
        """The answer to a request."""
        with self._lock:
            return self._answer(ask)

    def _answer(self, ask: Ask) -> Answer:
        if is_for_summary(ask):
            self.asked["summary"] += 1
            return Answer(summary_of(ask))
        newest = ask.turns[-1].text if ask.turns else ""
        if _OWN_SUMMARY.search(newest) or (not ask.tools and _OWN_SUMMARY.search(ask.system)):
            self.asked["own summary"] += 1
            return Answer(_own_summary(ask))
        if self._tools is not None and not ask.tools:
            self.asked["title"] += 1
            wants_json = "json" in str(ask.body.get("output_config"))
            return Answer('{"title": "Harbour notes"}' if wants_json else "Harbour notes")
        self.asked["work"] += 1
        plan, task, step = self._place(ask)
        self._places[plan.name] = (task, step)
        answer = self._do(plan, task, step, ask)
        thinks = (ask.body.get("thinking") or {}).get("type") in {"enabled", "adaptive"}
        return replace(answer, thinking=f"This is step {step} of task {task}.") if thinks else answer

    # -- the place -----------------------------------------------------------------------------------------------------

    def _place(self, ask: Ask) -> tuple[Plan, int, int]:
        for ident, _ in reversed(ask.results):
            if match := re.search(r"at_([A-Za-z0-9]+)_(\d+)_(\d+)_\d", ident):
                return self._plans[match[1]], int(match[2]), int(match[3]) + 1
        if tagged := re.findall(r"\(task ([A-Za-z0-9]+)-(\d+)\)", ask.last_user):
            return self._plans[tagged[-1][0]], int(tagged[-1][1]), 0
        # The client has just made room for itself: on with the plan that this request is of, or the only one.
        names = [name for name in re.findall(r"\(task ([A-Za-z0-9]+)-", ask.text) if name in self._plans]
        name = names[-1] if names else next(iter(self._plans))
        if not names and len(self._plans) > 1:
            self.strays.append(ask.last_user[:300])
        return self._plans[name], *self._places[name]

    def _do(self, plan: Plan, number: int, step: int, ask: Ask) -> Answer:
        task = plan.tasks[number]
        if task.is_question:
            return self._about_facts(plan, number, step, ask)
        if step >= len(task.steps):
            return Answer(task.answer)
        assert self._tools is not None  # noqa: S101 - plans for clients without tools have no steps
        name, arguments = self._tools(task.steps[step], ask)
        return Answer(f"Step {step}.", [Call(name, arguments, f"call_at_{plan.name}_{number}_{step}_0")])

    def _about_facts(self, plan: Plan, number: int, step: int, ask: Ask) -> Answer:
        sight = " ".join(ask.text.split())
        missing = [fact for fact in KNOWN if fact.words not in sight]
        if missing and step == 0 and "everlong_recall" in ask.tools:
            self.recalled[plan.name] += len(missing)
            return Answer(
                "Let me look back.",
                [
                    Call("everlong_recall", {"query": fact.question}, f"call_at_{plan.name}_{number}_0_{place}")
                    for place, fact in enumerate(missing)
                ],
            )
        self.known[plan.name] |= {fact.question for fact in KNOWN if fact not in missing}
        lines = [f"{UNKNOWN}: {fact.question}" if fact in missing else f"- {fact.words}" for fact in KNOWN]
        return Answer("\n".join(lines))


def _own_summary(ask: Ask) -> str:
    """A summary of the length that models write when a client asks for one."""
    lines = [f"- Note {number:03} was read, and its numbers were compared with the quay's." for number in range(100)]
    return "\n".join(["<summary>", summary_of(ask), "## Notes", *lines, "</summary>"])


# -- plans ------------------------------------------------------------------------------------------------------------


def note(number: int, tokens: int) -> str:
    """A made-up log of so many tokens, as the model server counts them."""
    dice = random.Random(f"note {number}")
    lines: list[str] = []
    count = 0
    while count < tokens:
        words = " ".join(dice.choice(_FISH) for _ in range(9))
        lines.append(f"{dice.randrange(24):02}:00 N{number}-{len(lines)} {words} {dice.randrange(10_000)}")
        count += count_text(lines[-1])
    return "\n".join(lines) + "\n"


def long_plan(steps: int, tokens: int, name: str = "a") -> Plan:
    """Facts, then so many results of so many tokens, then questions about the facts."""
    told = [fact for fact in KNOWN if fact.teller == "user"]
    shown = tuple(
        Step("read", fact.reads) if fact.reads else Step("run", text=fact.command or "")
        for fact in KNOWN
        if fact.teller == "tool"
    )
    said = " ".join(fact.answer for fact in KNOWN if fact.teller == "assistant")
    work: list[Step] = []
    for number in range(steps):
        path = f"notes/{number:03}.txt"
        work.append(Step("read", path) if number % 2 else Step("run", text=f"cat {path}"))
        if number % 10 == 9:
            work.append(Step("write", f"out/{number:03}.txt", f"Notes up to {number} are read.\n"))
    questions = "\n".join(fact.question for fact in KNOWN)
    return Plan(
        name,
        (
            Task(
                "We tidy up the harbour office. " + " ".join(fact.request for fact in told) + " First look around.",
                shown,
                said,
            ),
            Task("Read all notes, and write down how far you are every ten notes.", tuple(work), "All notes are read."),
            Task(f"Answer each of these in a line:\n{questions}\n", is_question=True),
        ),
        {**FILES, **{f"notes/{number:03}.txt": note(number, tokens) for number in range(steps)}},
    )


def short_plan(name: str = "a") -> Plan:
    """A file is read, a command run and a file written; then one more prompt."""
    return Plan(
        name,
        (
            Task(
                "Look at the notes and count them.",
                (
                    Step("read", "notes/000.txt"),
                    Step("run", text="ls notes"),
                    Step("write", "out/count.txt", "There are 2 notes.\n"),
                ),
                "There are 2 notes, which out/count.txt says, too.",
            ),
            Task("And who asked?", (Step("run", text="cat out/count.txt"),), "Nobody did, as far as I can see."),
        ),
        {f"notes/{number:03}.txt": note(number, 300) for number in range(2)},
    )
