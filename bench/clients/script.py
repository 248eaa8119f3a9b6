"""The tasks of a client, and the scripted model that does them with the client's own tools.

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
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from bench.agent.clerk import is_for_summary, summary_of
from bench.agent.facts import FACTS, FILES
from everlong.testing import Answer, Ask, Call
from everlong.testing.server.exchange import count_text

__all__ = [
    "KNOWN",
    "Plan",
    "Step",
    "Task",
    "Tools",
    "Worker",
    "expected_files",
    "long_plan",
    "plan_of_one_prompt",
    "plan_of_pastes",
    "short_plan",
]

KNOWN = FACTS
"""The facts that are told early and asked about at the end."""
UNKNOWN = "I do not know"
_AT_ONCE = 3
"""Calls of recall in one answer."""
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

    kind: Literal["read", "run", "write", "agent", "wait"]
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
    """The answer is what the model knows of the facts."""


@dataclass(frozen=True)
class Plan:
    """A session: its tasks, and the files that are there from the beginning."""

    name: str
    """Letters and digits; also in the ids of calls."""
    tasks: tuple[Task, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    def prompt(self, number: int) -> str:
        """Return the person's words."""
        return f"{self.tasks[number].words} (task {self.name}-{number})"


Tools: TypeAlias = Callable[[Step, Ask], tuple[str, Mapping[str, object]]]
"""The tool and the arguments with which a client does a step of a request."""


class Worker:
    """The scripted model of one client; several sessions may run at once."""

    def __init__(self, plans: Sequence[Plan], tools: Tools | None) -> None:
        self._plans = {plan.name: plan for plan in plans}
        self._tools = tools
        self._places = dict.fromkeys(self._plans, (0, 0))
        self._calls = 0
        self._lock = threading.Lock()
        self.known: dict[str, set[str]] = {name: set() for name in self._plans}
        """The questions of each plan that were answered."""
        self.recalled: dict[str, set[str]] = {name: set() for name in self._plans}
        """The questions of each plan for which the gateway's recall was called."""
        self.asked: Counter[str] = Counter()
        """Requests by what they were for: work, title, summary (the gateway's), own summary (the client's)."""
        self.strays: list[str] = []
        """Requests whose place in a plan is not known."""
        self.listen: Callable[[Ask], None] = lambda _ask: None
        """Hears of every request before it is answered."""
        self.seconds = (0.0, 0.0)
        """How long the model takes for an answer, and for a summary."""
        self.arrivals: list[float] = []
        """When the client's requests came, in seconds since 1970."""

    def __call__(self, ask: Ask) -> Answer:
        """Return the answer to a request."""
        is_summary = is_for_summary(ask)
        if not is_summary:
            self.arrivals.append(time.time())
        self.listen(ask)
        time.sleep(self.seconds[is_summary])
        with self._lock:
            return self._answer(ask)

    def _answer(self, ask: Ask) -> Answer:
        if is_for_summary(ask):
            self.asked["summary"] += 1
            return Answer(summary_of(ask))
        newest = ask.turns[-1].text if ask.turns else ""
        own_tools = [name for name in ask.tools if not name.startswith("everlong_")]
        if _OWN_SUMMARY.search(newest) or (not own_tools and _OWN_SUMMARY.search(ask.system)):
            self.asked["own summary"] += 1
            return Answer(_own_summary(ask))
        if self._tools is not None and not own_tools:
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
        if self._tools is not None and step < len(task.steps):
            name, arguments = self._tools(task.steps[step], ask)
            return Answer(f"Step {step}.", [Call(name, arguments, self._ident(plan, number, step))])
        if task.is_question:
            return self._about_facts(plan, number, step, ask)
        if self._tools is None:
            return Answer("\n\n".join([task.answer, *map(_edit, task.steps)]))
        return Answer(task.answer)

    def _ident(self, plan: Plan, number: int, step: int) -> str:
        """Return an id that names the place and is unique, even if a task is begun again."""
        self._calls += 1
        return f"call_at_{plan.name}_{number}_{step}_{self._calls}"

    def _about_facts(self, plan: Plan, number: int, step: int, ask: Ask) -> Answer:
        sight = _sight(ask)
        missing = [fact for fact in KNOWN if fact.words not in sight]
        unsought = [fact for fact in missing if fact.question not in self.recalled[plan.name]][:_AT_ONCE]
        if unsought and "everlong_recall" in ask.tools:
            self.recalled[plan.name] |= {fact.question for fact in unsought}
            calls = [
                Call("everlong_recall", {"query": fact.question}, self._ident(plan, number, step)) for fact in unsought
            ]
            return Answer("Let me look back.", calls)
        self.known[plan.name] |= {fact.question for fact in KNOWN if fact not in missing}
        lines = [f"{UNKNOWN}: {fact.question}" if fact in missing else f"- {fact.words}" for fact in KNOWN]
        return Answer("\n".join(lines))


def _sight(ask: Ask) -> str:
    """Return all words of a request; some clients send results as JSON in JSON."""
    return " ".join(ask.text.replace('\\"', '"').split())


def _edit(step: Step) -> str:
    """Return a file as a model without tools writes it; other steps need tools."""
    if step.kind != "write":
        return ""
    return f"{step.path}\n```\n<<<<<<< SEARCH\n=======\n{step.text}>>>>>>> REPLACE\n```"


def _own_summary(ask: Ask) -> str:
    """Return a summary of the length that models write when a client asks for one, with the facts that are in sight."""
    sight = _sight(ask)
    facts = [f"- {fact.words}" for fact in KNOWN if fact.words in sight]
    lines = [f"- Note {number:03} was read, and its numbers were compared with the quay's." for number in range(100)]
    return "\n".join(["<summary>", summary_of(ask), "## Facts", *facts, "## Notes", *lines, "</summary>"])


# -- plans ------------------------------------------------------------------------------------------------------------


def note(number: int, tokens: int) -> str:
    """Return a made-up log of so many tokens, as the model server counts them."""
    dice = random.Random(f"note {number}")
    lines: list[str] = []
    count = 0
    while count < tokens:
        words = " ".join(dice.choice(_FISH) for _ in range(9))
        lines.append(f"{dice.randrange(24):02}:00 N{number}-{len(lines)} {words} {dice.randrange(10_000)}")
        count += count_text(lines[-1])
    return "\n".join(lines) + "\n"


_TOLD = " ".join(fact.request for fact in KNOWN if fact.teller == "user")
_SHOWN = tuple(
    Step("read", fact.reads) if fact.reads else Step("run", text=fact.command or "")
    for fact in KNOWN
    if fact.teller == "tool"
)
_SAID = " ".join(fact.answer for fact in KNOWN if fact.teller == "assistant")
_QUESTIONS = "Answer each of these in a line:\n" + "\n".join(fact.question for fact in KNOWN) + "\n"


def long_plan(steps: int, tokens: int, name: str = "a") -> Plan:
    """Return a plan: facts, then so many results of so many tokens, then questions about the facts."""
    return Plan(
        name,
        (
            Task(f"We tidy up the harbour office. {_TOLD} First look around.", _SHOWN, _SAID),
            Task("Read all notes, and write down how far you are every ten notes.", _reading(steps), "All are read."),
            Task(_QUESTIONS, is_question=True),
        ),
        _files(steps, tokens),
    )


def plan_of_one_prompt(steps: int, tokens: int, name: str = "a") -> Plan:
    """Return the plan for a client that takes one prompt only; the assistant's lines are in a file."""
    words = f"We tidy up the harbour office. {_TOLD} Look around, read all notes, write down how far you are every ten."
    task = Task(f"{words} At the end:\n{_QUESTIONS}", (*_SHOWN, Step("read", "said.txt"), *_reading(steps)), "", True)
    return Plan(name, (task,), {**_files(steps, tokens), "said.txt": f"{_SAID}\n"})


def plan_of_pastes(prompts: int, tokens: int, name: str = "a") -> Plan:
    """Return the plan for a client without tools: the person pastes every note into a prompt of one line."""
    shown = " ".join(fact.words for fact in KNOWN if fact.teller == "tool")
    pastes = [
        Task(
            f"Note {number}: {' '.join(note(number, tokens).split())}",
            (Step("write", f"out/{number:03}.txt", f"Notes up to {number} are read.\n"),),
            f"Note {number} is read.",
        )
        for number in range(prompts)
    ]
    first = Task(f"We tidy up the harbour office. {_TOLD} The logs say: {shown}.", answer=_SAID)
    return Plan(name, (first, *pastes, Task(" ".join(_QUESTIONS.split()), is_question=True)))


def _reading(steps: int) -> tuple[Step, ...]:
    work: list[Step] = []
    for number in range(steps):
        path = f"notes/{number:03}.txt"
        work.append(Step("read", path) if number % 2 else Step("run", text=f"cat {path}"))
        if number % 10 == 9:
            work.append(Step("write", f"out/{number:03}.txt", f"Notes up to {number} are read.\n"))
    return tuple(work)


def _files(steps: int, tokens: int) -> dict[str, str]:
    return {**FILES, **{f"notes/{number:03}.txt": note(number, tokens) for number in range(steps)}}


def short_plan(name: str = "a", *, with_agent: bool = False, waits: bool = False) -> Plan:
    """Return a plan that reads a file, runs a command and writes a file; then one more prompt.

    Or a sub-agent works, for which the client ``waits`` with another call.
    """
    looked = (Step("read", "notes/000.txt"), Step("run", text="ls notes"))
    counted = Step("write", "out/count.txt", "There are 2 notes.\n")
    asked = Step("run", text="cat out/count.txt")
    first = Task("Look at the notes and count them.", (*looked, counted), "There are 2 notes, as out/count.txt says.")
    second = Task("And who asked?", (asked,), "Nobody did, as far as I can see.")
    files = {f"notes/{number:03}.txt": note(number, 300) for number in range(2)}
    if not with_agent:
        return Plan(name, (first, second), files)
    own = Task("Count the fish in note 1.", (Step("run", text="wc -w notes/001.txt"),), "Four hundred fish.")
    agent = Step("agent", text=f"{own.words} (task {name}-1)")
    steps = (agent, Step("wait")) if waits else (agent,)
    handed = Task("Let somebody count the fish.", steps, "Somebody counted four hundred.")
    return Plan(name, (handed, own), files)


def expected_files(plan: Plan) -> dict[str, str]:
    """Return the files that a client has written at the end of a plan."""
    return {step.path: step.text for task in plan.tasks for step in task.steps if step.kind == "write"}
