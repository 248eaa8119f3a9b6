"""Long sessions in which a user lays down rules, takes some back and replaces others, through many compactions.

Six kinds of rules in eight phrasings each, English and Chinese, some of them in the middle of long messages. After
every compaction each rule in force must stand in the context word for word, and none that was taken back or replaced
may stand in the summary or in the block of rules. Generated from a seed; the summarizer is the built-in one or one that
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
from everlong.context.literals import is_summary
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
    """One kind of rules: how they are said, taken back and replaced."""

    name: str
    said: tuple[str, ...]
    lifted: tuple[str, ...]
    replaced: tuple[str, ...]
    things: tuple[str, ...]
    others: tuple[str, ...] = ()
    """Subjects of a rule, and those after a replacement."""


THEMES = (
    Theme(
        "prohibition",
        (
            "Never touch {x}.",
            "Don't edit anything under {x}.",
            "Please do not modify {x}.",
            "Files in {x} are off limits.",
            "You must not change files in {x}.",
            "Under no circumstances should you edit {x}.",
            "Leave {x} alone.",
            "不要修改 {x} 下的任何文件。",
        ),
        (
            "You can edit {x} again.",
            "Forget the rule about {x}.",
            "The rule about {x} no longer applies.",
            "You may change {x} now.",
            "现在可以修改 {x} 了。",
        ),
        (),
        ("legacy/", "vendor/", "migrations/", "deploy/", "infra/", "proto/", "fixtures/", "generated/"),
    ),
    Theme(
        "obligation",
        (
            "Always run {x} before you commit.",
            "Run {x} before every commit.",
            "Make sure that you always run {x} first.",
            "Whenever you change code, run {x}.",
            "Each time you edit a file, run {x} afterwards.",
            "Before you commit anything, run {x}.",
            "You must run {x} after every change.",
            "每次提交之前都要运行 {x}。",
        ),
        (
            "You don't have to run {x} anymore.",
            "No need to run {x} any more.",
            "Drop the rule about {x}.",
            "You can stop running {x}.",
            "不用再运行 {x} 了。",
        ),
        (),
        ("ruff", "mypy", "pytest", "shellcheck", "eslint", "cargo-deny", "hadolint", "actionlint"),
    ),
    Theme(
        "tool",
        (
            "Use {x}, not {y}.",
            "Use {x} instead of {y}.",
            "From now on, use {x}.",
            "We only use {x} here.",
            "Prefer {x} over {y} in this repo.",
            "Stick to {x}.",
            "I want you to use {x} for all new code.",
            "以后一律用 {x}。",
        ),
        ("Forget the rule about {x}.", "You don't have to use {x} anymore."),
        ("Actually, use {y} instead of {x}.", "Use {y}, not {x}.", "Use {y} rather than {x} from now on."),
        ("pnpm", "httpx", "polars", "Vitest", "Postgres", "Typer"),
        ("bun", "aiohttp", "DuckDB", "Jest", "SQLite", "Click"),
    ),
    Theme(
        "language",
        (
            "Answer in {x}.",
            "From now on, reply in {x}.",
            "Always write your answers in {x}.",
            "Please respond in {x} only.",
            "Write all answers in {x}.",
            "I want all answers in {x}.",
            "Every answer must be in {x}.",
            "以后请用 {x} 回答。",
        ),
        ("You don't have to answer in {x} anymore.",),
        ("From now on, answer in {y}.", "Always answer in {y}.", "Please reply in {y} from now on."),
        ("German", "French", "Spanish"),
        ("Italian", "Dutch", "Polish"),
    ),
    Theme(
        "limit",
        (
            "Keep {x} under 72 characters.",
            "{x} must not exceed 72 characters.",
            "No {x} longer than 72 characters.",
            "At most 72 characters for {x}.",
            "Limit {x} to 72 characters.",
            "{x} should stay below 72 characters.",
            "All {x} have to be under 72 characters.",
            "所有 {x} 都不能超过 72 个字符。",
        ),
        ("Forget the limit for {x}.", "The rule about {x} no longer applies."),
        (
            "Keep {x} under 90 characters.",
            "{x} may have at most 90 characters, never more.",
            "Limit {x} to 90 characters.",
        ),
        ("commit messages", "log lines", "branch names", "headings"),
        ("commit messages", "log lines", "branch names", "headings"),
    ),
    Theme(
        "habit",
        (
            "Stop adding {x} to your answers.",
            "You keep writing {x}; leave them out.",
            "I told you before: no {x}.",
            "No more {x} in your answers.",
            "I don't like {x}, so never use them.",
            "Please stop using {x}.",
            "Avoid {x} in all your texts.",
            "别再用 {x}。",
        ),
        ("You can use {x} again.", "{x} are fine again.", "Forget the rule about {x}."),
        (),
        ("emojis", "apologies", "tables", "footnotes", "abbreviations", "superlatives"),
    ),
)  # fmt: skip


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
    in_force: dict[str, tuple[Theme, str, str]] = field(default_factory=dict)
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
        free = [at for at, thing in enumerate(theme.things) if thing not in self.used]
        if theme.name == "language" and any(held[0].name == "language" for held in self.in_force.values()):
            return
        if not free or len(self.in_force) >= _RULES_AT_MOST:
            return
        at = self.chance.choice(free)
        thing, other = theme.things[at], theme.others[at] if theme.others else ""
        self.used.add(thing)
        text = _sentence(self.chance.choice(theme.said), thing, other)
        self.in_force[text] = (theme, thing, other)
        self.say(text)

    def take_back(self) -> None:
        """Take back one of the rules in force."""
        if not self.in_force:
            return
        text = self.chance.choice(list(self.in_force))
        theme, thing, other = self.in_force.pop(text)
        self.gone.add(text)
        self.say(_sentence(self.chance.choice(theme.lifted), thing, other))

    def replace(self) -> None:
        """Replace one of the rules in force by one that contradicts it."""
        able = [text for text, (theme, _, other) in self.in_force.items() if theme.replaced and other]
        if not able:
            return
        text = self.chance.choice(able)
        theme, thing, other = self.in_force.pop(text)
        self.gone.add(text)
        new = _sentence(self.chance.choice(theme.replaced), thing, other)
        self.in_force[new] = (theme, other, "")
        self.say(new)

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
        summary = next((text_of(message) for message in self.messages if is_summary(message)), "")
        told = " ".join(line for line in summary.split("\n") if not line.startswith("- no longer in force: "))
        lost = tuple(text for text in self.in_force if text not in context)
        revived = tuple(text for text in self.gone if text in told)
        return Faults(number, lost, revived) if lost or revived else None


def _sentence(template: str, thing: str, other: str) -> str:
    text = template.format(x=thing, y=other or "anything else")
    return text[:1].upper() + text[1:]


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
        if session.chance.random() < 0.35:
            session.replace()
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
