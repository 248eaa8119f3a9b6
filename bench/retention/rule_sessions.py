"""Long sessions in which a user lays down rules, takes some back and adds others, through many compactions.

Rules in eight languages, some of them in the middle of long messages. After every compaction each rule in force must
stand in the context word for word, and none that was taken back may stand among the rules. A rule that contradicts an
older one takes nothing away: both stand. Generated from a seed; the summarizer is the built-in one or one that
misbehaves in a scripted way.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bench.retention.scripts import SCRIPTS, Script
from everlong.context import ContextCompressor
from everlong.context.literals import summary_indices
from everlong.context.rules import standing_rules
from everlong.model import Message, text_of

WINDOW = 32_000
COMPACTIONS = 20
_RULES_AT_MOST = 14
_FILLER = (
    "The importer reads one record after the other and keeps a table of what it has seen.",
    "Records without a key are counted and written to a separate list at the end.",
    "Between two batches the connection is closed and opened again with a short pause.",
    "The report has one row per region, with the sum, the mean and the number of gaps.",
    "A gap is a day on which no station of the region sent anything at all.",
    "Old files stay where they are until the nightly job has moved them to the archive.",
    "The page shows the newest hundred entries and loads more when somebody scrolls down.",
)
_ASIDES = (
    "I had a look at the figures of last week and they seem plausible to me.",
    "The second table is the one that the people in the office look at most.",
    "Yesterday the job took nine minutes, which is a little more than usual.",
    "What I do not understand is the difference between the two totals in the report.",
    "My guess is that it has to do with the records that came in late.",
)


class Theme(NamedTuple):
    """One kind of rules: how they are said, each with how it is taken back, and what about."""

    said: tuple[tuple[str, str], ...]
    things: tuple[str, ...]


THEMES = (
    Theme(
        (
            ("Never touch {x}.", "You can edit {x} again."),
            ("Do not edit anything under {x}.", "The rule about {x} no longer applies."),
            ("You must never change files in {x}.", "Forget the rule about {x}."),
            ("Ändere nie etwas in {x}.", "Vergiss die Regel über {x}."),
            ("Ne modifie jamais {x}.", "Oublie la règle sur {x}."),
            ("No modifiques nunca {x}.", "Olvida la regla sobre {x}."),
            ("Nunca modifique {x}.", "Esqueça a regra sobre {x}."),
            ("Никогда не трогай {x}.", "Забудь правило про {x}."),
            ("不要修改 {x} 下的任何文件。", "现在可以修改 {x} 了。"),
            ("{x} を絶対に変更しないでください。", "{x} のルールは忘れてください。"),
        ),
        ("legacy/", "vendor/", "migrations/", "deploy/", "infra/", "proto/", "fixtures/", "generated/"),
    ),
    Theme(
        (
            ("Always run {x} before you commit.", "You don't have to run {x} anymore."),
            ("Run {x} before every commit.", "You no longer need to run {x}."),
            ("Whenever you change code, run {x}.", "You can stop running {x}."),
            ("Führe immer zuerst {x} aus.", "Du musst {x} nicht mehr ausführen."),
            ("Lance toujours {x} avant de committer.", "Tu n'as plus besoin de {x}."),
            ("Ejecuta siempre {x} antes de cada commit.", "Ya no hace falta {x}."),
            ("Sempre execute {x} antes do commit.", "Não precisa mais de {x}."),
            ("Всегда запускай {x} перед коммитом.", "Больше не нужно запускать {x}."),
            ("每次提交之前都要运行 {x}。", "不用再运行 {x} 了。"),
            ("コミットの前に必ず {x} を実行してください。", "もう {x} を実行しなくていいです。"),
        ),
        ("ruff", "mypy", "pytest", "shellcheck", "eslint", "hadolint", "actionlint", "yamllint"),
    ),
    Theme(
        (
            ("From now on, use {x}.", "Ignore what I said about {x}."),
            ("I prefer {x} over everything else.", "Forget the rule about {x}."),
            ("Ich bevorzuge {x}.", "Die Regel über {x} gilt nicht mehr."),
            ("Prefiero usar {x}.", "Olvida lo que dije sobre {x}."),
            ("以后一律用 {x}。", "取消关于 {x} 的要求。"),
        ),
        ("pnpm", "httpx", "polars", "Vitest", "Postgres", "Typer", "bun", "DuckDB"),
    ),
)


class Faults(NamedTuple):
    """Faults of a session after one of its compactions."""

    compaction: int
    lost: tuple[str, ...]
    revived: tuple[str, ...]


@dataclass
class _Session:
    """A user with rules in mind, and the conversation so far."""

    chance: random.Random
    messages: list[Message] = field(default_factory=list)
    in_force: dict[str, str] = field(default_factory=dict)
    """Each rule, and the sentence that would take it back."""
    gone: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def say(self, text: str) -> None:
        """Say something, now and then in the middle of a long message, and have it answered."""
        if self.chance.random() < 0.4:
            asides = self.chance.sample(_ASIDES, 4)
            text = " ".join([*asides[:2], text, *asides[2:], "Can you check the totals once more?"])
        self.messages += [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "Understood. " + self.chance.choice(_FILLER)},
        ]

    def lay_down(self) -> None:
        """Lay down one more rule about something that was not spoken of before."""
        theme = self.chance.choice(THEMES)
        free = [thing for thing in theme.things if thing not in self.used]
        if not free or len(self.in_force) >= _RULES_AT_MOST:
            return
        thing = self.chance.choice(free)
        self.used.add(thing)
        said, lifted = (text.format(x=thing) for text in self.chance.choice(theme.said))
        self.in_force[said] = lifted
        self.say(said)

    def take_back(self) -> None:
        """Take back one of the rules in force."""
        if not self.in_force:
            return
        text = self.chance.choice(list(self.in_force))
        self.gone.add(text)
        self.say(self.in_force.pop(text))

    def work(self) -> None:
        """Have something done that fills the window."""
        for number in range(4):
            call = f"call_{len(self.messages)}"
            lines = [f"{n:04d} {self.chance.choice(_FILLER)} [{self.chance.randrange(10**6)}]" for n in range(60)]
            self.messages += [
                {"role": "user", "content": f"Look at part {len(self.messages)} of the importer."},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": call,
                            "type": "function",
                            "function": {"name": "read", "arguments": f'{{"part": {number}}}'},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": call, "content": "\n".join(lines)},
                {"role": "assistant", "content": " ".join(self.chance.sample(_FILLER, 3))},
            ]

    def faults(self, number: int) -> Faults | None:
        """Look at the context after a compaction."""
        context = " ".join(" ".join(text_of(message) for message in self.messages).split())
        rules = {rule.text for rule in standing_rules(self.messages, summary_indices(self.messages)).lines}
        lost = tuple(text for text in self.in_force if text not in context or text not in rules)
        revived = tuple(text for text in self.gone if text in rules)
        return Faults(number, lost, revived) if lost or revived else None


def run_session(seed: int, fault: str = "", compactions: int = COMPACTIONS) -> list[Faults]:
    """Return what went wrong in one session; ``fault`` names the script of the summarizer, empty for the built-in."""
    session = _Session(random.Random(seed))
    script = Script()
    script.kind = fault
    engine = ContextCompressor(
        WINDOW, summarizer=script if fault else None, settings={"failure_cooldown_seconds": 0, "protect_last_n": 6}
    )
    session.messages = [{"role": "system", "content": "You help with the importer."}]
    session.say("Please help me with the importer for the stations.")
    found: list[Faults] = []
    for number in range(1, compactions + 1):
        for _ in range(session.chance.randrange(3)):
            session.lay_down()
        if session.chance.random() < 0.35:
            session.take_back()
        session.work()
        if session.chance.random() < 0.2:  # as after a restart: nothing is remembered but the conversation
            engine = ContextCompressor(
                WINDOW,
                summarizer=script if fault else None,
                settings={"failure_cooldown_seconds": 0, "protect_last_n": 6},
            )
        session.messages = engine.compress(session.messages, force=True)
        fault_found = session.faults(number)
        if fault_found is not None:
            found.append(fault_found)
    return found


def _session_faults(seed_and_fault: tuple[int, str]) -> list[Faults]:
    return run_session(*seed_and_fault)


def print_sessions(count: int, faults: Sequence[str] = ("", *SCRIPTS), jobs: int = 1) -> bool:
    """Run so many sessions with each summarizer and print what went wrong; whether nothing did."""
    if not count:
        return True
    wrong = 0
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for fault in faults:
            results = pool.map(_session_faults, [(seed, fault) for seed in range(count)], chunksize=1)
            found = [(seed, one) for seed, session in enumerate(results) for one in session]
            lost = sum(len(one.lost) for _, one in found)
            revived = sum(len(one.revived) for _, one in found)
            print(
                f"{count} sessions of {COMPACTIONS} compactions, {fault or 'built-in'}: {lost} rules lost,"
                f" {revived} revived",
                flush=True,
            )
            for seed, one in found[:3]:
                print(f"  seed {seed}, compaction {one.compaction}: lost {one.lost}, revived {one.revived}")
            wrong += len(found)
    return wrong == 0
