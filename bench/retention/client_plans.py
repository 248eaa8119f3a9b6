"""Plans of sessions recorded with real clients: ``--clients``.

Each installed client that offers a tool for plans is asked for one thing; the scripted model makes a plan with that
tool, item by item, and changes states. What the client then sends is the recording: it is compacted, and the plan in
the summary is compared with the one that the model wrote last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from bench.clients.install import is_installed
from bench.clients.programs import PROGRAMS, Place, Program
from bench.clients.script import Plan, Step, Task
from bench.clients.session import open_desk
from everlong.context import ContextCompressor
from everlong.context.chronicle import Chronicle
from everlong.context.literals import is_summary, summary_body
from everlong.model import Message
from everlong.testing import Ask
from everlong.testing.server.exchange import Record
from everlong.wire.anthropic import to_openai
from everlong.wire.responses import from_items

ITEMS = ("Read the berth tables", "Write the parser for src/berths.py", "Run the tests, and tell Marta")
_CHANGES = ("create 0", "create 1", "create 2", "completed 0", "in_progress 1")
WANTED = [("completed", ITEMS[0]), ("in_progress", ITEMS[1]), ("pending", ITEMS[2])]
_MARK = "#plan "
_SWITCHES = {"codex": ("-c", "tools.update_plan.enabled=true")}
"""The switches of the tool, for clients that offer it only on request."""


class Recorded(NamedTuple):
    """The outcome of one client."""

    client: str
    tool: str
    """The tool with which it keeps plans; empty where it offers none."""
    read: list[tuple[str, str]]
    """The plan as read from what the client sent."""
    stated: list[tuple[str, str]]
    """The plan as the summary states it after a compaction."""

    @property
    def is_complete(self) -> bool:
        """Return whether both are the plan as it was last written."""
        return self.read == WANTED == self.stated


def record(program: Program) -> Recorded:
    """Have a client keep a plan, and look what a compaction of its session says of it."""
    used: list[str] = []

    def call(step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:
        if not step.text.startswith(_MARK):
            return program.call(step, ask, folder)
        made = plan_call(_CHANGES.index(step.text.removeprefix(_MARK)), ask.tools)
        if made is None:
            return program.call(Step("run", text="true"), ask, folder)
        used.append(made[0])
        return made

    def command(place: Place, prompt: str, *, resumes: bool) -> list[str]:
        made = program.command(place, prompt, resumes=resumes)
        return [*made[:-1], *_SWITCHES.get(program.name, ()), made[-1]]

    planning = copy(program)
    vars(planning).update(call=call, command=command)
    steps = [Step("run", text=f"{_MARK}{change}") for change in _CHANGES]
    steps += [Step("run", text=f"echo looked at berth {number}") for number in range(6)]
    plan = Plan("a", (Task("Import the berth tables of the harbour planner.", tuple(steps), "Done so far."),))
    with open_desk(planning, [plan], through_gateway=False, window=200_000) as desk:
        place = desk.place(plan)
        desk.program.talk(place, [plan.prompt(0)], 240)
        longest = max(desk.server.requests, key=lambda one: len(messages_of(one)))
    messages = messages_of(longest)
    engine = ContextCompressor(200_000)
    with engine.keeping(2):
        context = engine.compress(messages, force=True)
    summary = "\n".join(summary_body(message) for message in context if is_summary(message))
    read, stated = Chronicle().extended(messages), Chronicle.carried_on(summary)
    return Recorded(program.name, " ".join(dict.fromkeys(used)), _states(read), _states(stated))


def plan_call(number: int, tools: Sequence[str]) -> tuple[str, dict[str, Any]] | None:
    """Return the call with which a client's own tool makes the so-many-th change; None where it has no such tool."""
    states = ["pending" if place <= number else "" for place in range(len(ITEMS))]
    for change in _CHANGES[len(ITEMS) : number + 1]:
        state, place = change.split()
        states[int(place)] = state
    listed = [(text, state) for text, state in zip(ITEMS, states, strict=True) if state]
    if "TodoWrite" in tools:
        return "TodoWrite", {"todos": [{"content": t, "status": s, "activeForm": t} for t, s in listed]}
    if "todowrite" in tools:
        return "todowrite", {"todos": [{"content": t, "status": s, "priority": "high"} for t, s in listed]}
    if "update_plan" in tools:
        return "update_plan", {"plan": [{"step": t, "status": s} for t, s in listed]}
    if "TaskCreate" in tools or {"ToolSearch", "Agent"} <= set(tools):  # Claude Code finds its task tools by name
        if number < len(ITEMS):
            return "TaskCreate", {"subject": ITEMS[number], "description": ITEMS[number]}
        state, place = _CHANGES[number].split()
        return "TaskUpdate", {"taskId": str(int(place) + 1), "status": state}
    return None


def messages_of(record: Record) -> list[Message]:
    """Return the messages of a recorded request, in the OpenAI format."""
    body = record.body
    if record.api == "anthropic":
        return to_openai(body.get("messages") or [], body.get("system"))
    if record.api == "responses":
        given = body.get("input")
        return [m for turn in from_items(given) for m in turn] if isinstance(given, list) else []
    return list(body.get("messages") or [])


def _states(chronicle: Chronicle) -> list[tuple[str, str]]:
    return [(item.state, item.text) for item in chronicle.plan]


def run_clients() -> int:
    """Record every installed client, print, and return 0 where every plan is complete."""
    missed = 0
    for program in PROGRAMS.values():
        if not is_installed(program.name):
            print(f"{program.name:<14} not installed")
            continue
        found = record(program)
        if not found.tool:
            print(f"{program.name:<14} ({program.api}) offers no tool for plans")
            continue
        print(f"{program.name:<14} ({program.api}) {found.tool}: {'complete' if found.is_complete else found}")
        missed += not found.is_complete
    return int(missed > 0)
