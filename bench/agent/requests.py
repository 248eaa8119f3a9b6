"""A user's requests in a long session: made up, the same for the same seed.

Small talk, files that are written, edited and read, commands with short and long output, a todo list. The talk is
of the same things as the facts of `bench.agent.facts`: ports, invoices, branches, migrations, backups, people and their
plans. Every request carries a ticket of its own, by which the scripted model knows it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bench.agent.facts import FACTS, Fact

__all__ = ["Job", "Step", "jobs", "ticket_of_fact"]

Step = tuple[str, Mapping[str, Any]]
"""A tool and its arguments."""

Made = tuple[str, list[tuple[Step, ...]], str]
"""The user's words, the calls step by step, and the answer."""

_COMPANIES = ("Nordkai", "Petersen Rigging", "Halvorsen", "Silva Boats", "Marlin Freight", "Quayside Ltd", "Ito Nets")
_PEOPLE = ("Tomas", "Greta", "Yusuf", "Marika", "Old Finn", "Priya", "Johan", "Leonie", "Sven", "Abigail")
_PLACES = ("Bergen", "Hull", "Cuxhaven", "Gdynia", "Vigo", "Esbjerg", "Leith", "Riga")
_FISH = ("herring", "cod", "plaice", "turbot", "sprat", "mackerel", "ling", "hake")
_STORES = ("database", "queue", "cache", "mirror", "search index", "ledger")
_ENVIRONMENTS = ("production", "test", "training", "demo", "local", "old")
_DEVICES = ("weather station", "label printer", "camera", "router", "scale", "radio", "tablet")
_SERVICES = ("Postmark", "the old mail server", "the fax gateway", "the text message service", "Sendwave")
_FORMATS = ("CSV", "Parquet", "protobuf", "YAML", "SQLite", "plain text")
_THINGS = ("tide table", "berth plan", "crew list", "fuel report", "gate list", "night log", "price list", "digest")
_EVENTS = ("a dentist appointment", "a concert", "her exam", "a football match", "a flight", "the choir")
_TESTS = ("test_gate_opens", "test_price_of_berth", "test_crew_is_listed", "test_tide_at_noon", "test_fuel_sum")
_ACTIONS = ("starts the crane", "opens the gate", "runs the pump", "prints labels", "charges the forklift")


@dataclass(frozen=True)
class Job:
    """A request, the calls with which it is answered, and the answer."""

    ticket: int
    prompt: str
    steps: tuple[tuple[Step, ...], ...]
    answer: str


def jobs(turns: int, seed: int = 1) -> Iterator[Job]:
    """Yield the requests of a session, with the facts among the early ones."""
    maker = _Maker(random.Random(f"requests {seed}"))
    told = {ticket_of_fact(place, turns): fact for place, fact in enumerate(FACTS)}
    for ticket in range(turns):
        yield maker.fact(ticket, told[ticket]) if ticket in told else maker.job(ticket)


def ticket_of_fact(place: int, turns: int) -> int:
    """Return the turn that tells a fact: one of the first 200 of a long session, in the first third of a short one."""
    return 3 + place * max(1, (min(200, turns // 3) - 4) // len(FACTS))


class _Maker:
    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self._revisions: dict[str, int] = {}
        self._kinds: tuple[Callable[[int], Made], ...] = (
            self._edit,
            self._edit,
            self._read,
            self._run,
            self._long_output,
            self._talk,
            self._talk,
            self._plan,
        )

    def job(self, ticket: int) -> Job:
        prompt, steps, answer = self._dice.choice(self._kinds)(ticket)
        return Job(ticket, f"{prompt} (HB-{ticket})", tuple(steps), f"{answer} That was HB-{ticket}.")

    def fact(self, ticket: int, fact: Fact) -> Job:
        steps: list[tuple[Step, ...]] = []
        if fact.reads is not None:
            steps.append((("read_file", {"path": fact.reads}),))
        if fact.command is not None:
            steps.append((("run_command", {"command": fact.command}),))
        return Job(ticket, f"{fact.request} (HB-{ticket})", tuple(steps), fact.answer)

    # -- kinds of requests ---------------------------------------------------------------------------------------------

    def _remark(self) -> str:
        """Return a thing that somebody may say, of the kind that is asked about at the end."""
        pick, number = self._dice.choice, self._dice.randrange
        return pick(
            (
                f"The {pick(_ENVIRONMENTS)} {pick(_STORES)} listens on port {7000 + number(900)} these days.",
                f"Invoices for {pick(_COMPANIES)} are rounded to {pick(('ten cents', 'euros', 'half crowns'))}.",
                f"The contact at the {pick(('pilot', 'tax', 'post', 'lock'))} office is {pick(_PEOPLE)} now.",
                f"The branch for the {pick(('summer', 'autumn', 'winter'))} season is release/{pick(_FISH)}.",
                f"{pick(_PEOPLE)} has {pick(_EVENTS)} on the {15 + number(13)}th, so no deployment that evening.",
                f"We pay {pick(_COMPANIES)} within {10 + number(30)} days.",
                f"The {pick(_DEVICES)} in the boathouse hangs whenever somebody {pick(_ACTIONS)}.",
                f"Never send the {pick(_THINGS)} through {pick(_SERVICES)}, {pick(_COMPANIES)} never got it.",
                f"I think {pick(_FORMATS)} is good enough for the {pick(_THINGS)} format.",
                f"{pick(_TESTS)} fails when the machine is busy.",
                f"The backup to {pick(_PLACES)} took {2 + number(6)} h {number(60)} min.",
            )
        )

    def _path(self) -> str:
        thing = self._dice.choice(_THINGS).replace(" ", "_")
        return f"src/{self._dice.choice(('office', 'quay', 'ferry'))}/{thing}.py"

    def _edit(self, ticket: int) -> Made:
        path = self._path()
        old = self._revisions.get(path)
        self._revisions[path] = ticket
        remark = self._remark()
        if old is None:
            body = "".join(
                f"def part_{n}() -> int:\n    return {n * ticket}\n\n" for n in range(self._dice.randrange(30))
            )
            text = f"REVISION = {ticket}  # see HB-{ticket}\n\n{body}"
            return (
                f"{remark} Begin {path} with that in mind.",
                [(("write_file", {"path": path, "content": text}),)],
                f"I began {path}. {self._remark()}",
            )
        change = {
            "path": path,
            "old": f"REVISION = {old}  # see HB-{old}",
            "new": f"REVISION = {ticket}  # see HB-{ticket}",
        }
        check = {"command": f"grep -n REVISION {path}"}
        return (
            f"{remark} Change {path} accordingly and check it.",
            [(("edit_file", change),), (("run_command", check),)],
            f"Changed and checked: {path} is at revision {ticket}.",
        )

    def _read(self, _: int) -> Made:
        known = sorted(self._revisions) or ["README.md"]
        paths = [self._dice.choice(known) for _ in range(self._dice.choice((1, 1, 2)))]
        reads = tuple(("read_file", {"path": path}) for path in paths)
        return (
            f"What is in {paths[0]} at the moment? {self._remark()}",
            [reads],
            f"{paths[0]} has a revision and some parts; nothing in it is odd.",
        )

    def _run(self, ticket: int) -> Made:
        pick, number = self._dice.choice, self._dice.randrange
        prompt, line = pick(
            (
                (
                    "Run the migrations again and tell me what failed.",
                    f"migration {500 + number(400):04}_{pick(_FISH)} failed: column {pick(_FISH)}_cm is missing",
                ),
                (
                    f"Start the backup to {pick(_PLACES)}.",
                    f"backup finished after {number(9)} h {number(60)} min, 1 file skipped: {pick(_FISH)}.img",
                ),
                (
                    "Who holds the lock this time?",
                    f"WARN lock on {pick(_FISH)}.db held by process {pick(('pump', 'gate', 'crane'))}-{number(90)}",
                ),
                ("Check the disks.", f"/dev/sd{pick('bcdef')}: ok, serial LM-{10_000 + number(9_000)}"),
            )
        )
        rows = self._dice.randrange(3, 25)
        command = f"for i in $(seq {rows}); do echo step $i of {rows} for HB-{ticket} done; done; echo '{line}'"
        return prompt, [(("run_command", {"command": command}),)], f"It ran; the last line says: {line}."

    def _long_output(self, ticket: int) -> Made:
        thing, rows = self._dice.choice(_THINGS), self._dice.choice((60, 120, 250, 600))
        command = f"seq -f '%06g {thing} entry of HB-{ticket}, checked by {self._dice.choice(_PEOPLE)}' {rows}"
        return (
            f"Print the whole {thing}. {self._remark()}",
            [(("run_command", {"command": command}),)],
            f"The {thing} has {rows} entries.",
        )

    def _talk(self, _: int) -> Made:
        said = " ".join(self._remark() for _ in range(self._dice.choice((1, 1, 2, 4))))
        return f"{said} What do you think?", [], f"Good to know. {self._remark()}"

    def _plan(self, ticket: int) -> Made:
        states = ("done", "in_progress", "pending")
        items = [
            {"text": f"{self._dice.choice(_THINGS)} of HB-{ticket}, part {n}", "status": states[min(n, 2)]}
            for n in range(self._dice.randrange(2, 6))
        ]
        return (
            f"Plan the work on the {self._dice.choice(_THINGS)}.",
            [(("update_todo", {"items": items}),)],
            f"Planned in {len(items)} parts.",
        )
