"""``everlong demo``: plays a long agent session in a small window, without a key and without a network."""

from __future__ import annotations

import json
import shutil
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click
import zstandard
from rich.cells import cell_len
from rich.padding import Padding
from rich.text import Text
from sqlalchemy import Connection, func, select

import everlong.context
from everlong.cli.inspect_web import check_installed, serve_inspector
from everlong.cli.output import counted, json_option, print_values, working
from everlong.cli.picture import console, curve
from everlong.context.literals import is_summary
from everlong.model import Message, calls_of, is_system, text_of
from everlong.store import Occasion, open_store
from everlong.store.schema import compaction, turn as turns

if TYPE_CHECKING:
    from rich.console import Console

    from everlong.store import Branch, Store
    from everlong.tokens import MessageCounter

PRICES = {"input_price": 3.0, "output_price": 0.0, "cache_read_price": 0.3, "cache_write_price": 3.75}
"""US dollars for a million tokens that the demo reckons with; only input is compared."""
_HITS = 10

Source = Literal["context", "recall", "lost"]


def play(session: Sequence[Message], window: int, store: Store) -> tuple[Contender, Contender, Everlong]:
    """Play a session to every contender; Everlong is the last."""
    ours = Everlong(window, store, len(session))
    counter = ours.engine.counter
    contenders = Cutting(window, counter), HeadAndTail(window, counter), ours
    for message in session:
        if message["role"] == "assistant":  # an agent calls the model here, so the context must fit now
            for one in contenders:
                one.fit()
                one.send()
        for one in contenders:
            one.add(message)
    ours.keep()
    ours.set_times()
    return contenders


def sources_of(contender: Contender, facts: Sequence[Fact], store: Store | None = None) -> list[Source]:
    """Return where a contender has the answer to each question from at the end; only one with a store can recall."""
    said = [text for one in contender.messages if not is_system(one) for text in _texts(one)]
    return ["context" if _is_in(said, fact) else _recall(fact, store) for fact in facts]


def _texts(message: Message) -> list[str]:
    return [text_of(message), *(call.arguments for call in calls_of(message))]


def _is_in(texts: Sequence[str], fact: Fact) -> bool:
    return any(needle in text for needle in fact.needle for text in texts)


def _recall(fact: Fact, store: Store | None) -> Source:
    if store is None:
        return "lost"
    found = (hit.node for hit in store.search(fact.question, limit=_HITS).hits if hit.node is not None)
    return "recall" if _is_in([store.read(node, chars=1_000_000).text for node in found], fact) else "lost"


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact of the session: the question it answers, the words that state it, and the message that said it first."""

    id: str
    question: str
    needle: tuple[str, ...]
    message: int
    kind: str


def load_session() -> tuple[list[Message], list[Fact]]:
    """Return the shipped session and the facts that it states."""
    folder = files("everlong.cli") / "demo_session"
    # Compressed by more than a wheel compresses: it is by far the largest file of the program.
    packed = (folder / "session.jsonl.zst").read_bytes()
    lines = zstandard.decompress(packed).decode().splitlines()
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    made = [Fact(one["id"], one["question"], tuple(one["needle"]), one["message"], one["kind"]) for one in facts]
    return [json.loads(line) for line in lines], made


_ANSWER_TOKENS = 4_096
"""Room for the answer that the sliding window leaves, at most a quarter of the window."""
_HEAD, _TAIL = 4, 20
"""The messages that the plain summary keeps at both ends."""
_LISTED_LENGTH = 160
_TITLE, MODEL = "The booking system of a harbour", "demo-model"
"""The names under which the store has the session."""
_SECONDS = 20.0
"""Seconds between two messages."""


class Contender:
    """A way to deal with a full window: the messages that it holds, with the tokens of each, and its requests."""

    name = ""
    about = ""
    """A few words about its way to go on."""

    def __init__(self, window: int, counter: MessageCounter) -> None:
        self.window = window
        self.counter = counter
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.requests: list[int] = []
        """The size of each request."""
        self.dollars = 0.0
        """The cost of the input of all requests."""
        self._last: list[Message] = []

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        self.messages.append(message)
        self.sizes.append(self.counter.count(message))

    def fit(self) -> None:
        """Make what is held fit the window, before it is sent."""
        raise NotImplementedError

    def send(self) -> tuple[int, int, float]:
        """Count a request, and return its cached and its fresh tokens, and what they cost.

        What it has in common with the one before, from the start on, is cached.
        """
        pairs = zip(self.messages, self._last, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if not _is_same(one, other)), None)
        cached = sum(self.sizes[: min(len(self.messages), len(self._last)) if same is None else same])
        fresh = self.tokens - cached
        paid = (cached * PRICES["cache_read_price"] + fresh * PRICES["cache_write_price"]) / 1_000_000
        self.dollars += paid
        self.requests.append(self.tokens)
        self._last = list(self.messages)
        return cached, fresh, paid

    def hold(self, messages: list[Message]) -> None:
        """Hold other messages from now on."""
        self.messages, self.sizes = list(messages), [self.counter.count(message) for message in messages]

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        return sum(self.sizes)


def _is_same(one: Message, other: Message) -> bool:
    """Return whether a provider reads two messages alike; the store writes a text as a part."""
    if one is other:
        return True
    return (one["role"], text_of(one), calls_of(one)) == (other["role"], text_of(other), calls_of(other))


class Cutting(Contender):
    """Keeps the system prompt and the newest messages that fit: a sliding window."""

    name = "cut off the oldest"
    about = "drops old messages for good"

    def fit(self) -> None:
        """Drop the oldest messages until the rest fits; no result stays without its call."""
        messages, sizes = self.messages, self.sizes
        room = self.window - min(_ANSWER_TOKENS, self.window // 4)
        start = cut = next((at for at, one in enumerate(messages) if not is_system(one)), len(messages))
        tokens = self.tokens
        while cut < len(messages) and (tokens > room or (cut > start and messages[cut]["role"] == "tool")):
            tokens -= sizes[cut]
            cut += 1
        del messages[start:cut], sizes[start:cut]


class HeadAndTail(Contender):
    """Keeps the first and the newest messages, and lists the user's requests between them."""

    name = "summarize the middle"
    about = "keeps both ends, and a list of requests between"

    def __init__(self, window: int, counter: MessageCounter) -> None:
        super().__init__(window, counter)
        self._threshold = window // 2
        self._listed: list[str] = []

    def fit(self) -> None:
        """Replace everything between head and tail by one message, once half of the window is full."""
        if self.tokens <= self._threshold:
            return
        messages = self.messages
        start = _HEAD
        while start < len(messages) and messages[start]["role"] == "tool":
            start += 1
        end = max(start, len(messages) - _TAIL)
        while end < len(messages) and (messages[end]["role"] == "tool" or sum(self.sizes[end:]) > self._threshold):
            end += 1
        middle = messages[start:end]
        said = [" ".join(text_of(m).split())[:_LISTED_LENGTH] for m in middle if m["role"] == "user"]
        self._listed = [*self._listed, *(one for one in said if not one.startswith("Summary"))][-40:]
        told = "Summary of the conversation so far. The user asked:\n" + "\n".join(f"- {one}" for one in self._listed)
        self.hold([*messages[:start], {"role": "user", "content": told}, *messages[end:]])


class Everlong(Contender):
    """The engine and the store, as an agent uses them: a conversation with its requests and its compactions."""

    name = "Everlong"
    about = "a structured summary, and every word on disk"

    def __init__(self, window: int, store: Store, length: int = 0) -> None:
        self.engine = everlong.context.ContextCompressor(window)
        super().__init__(window, self.engine.counter)
        self.branch: Branch | None = None
        self._store = store
        self._clock = time.time() - length * _SECONDS
        self.conversation = store.sessions.start(title=_TITLE, client="demo", model=MODEL, started=self._clock).id
        self._part = self.conversation
        self._waiting: list[Message] = []
        self._times: list[float] = []
        self._asked: tuple[int, int, float] | None = None
        """The tokens from the cache, the fresh ones, and the cost of the request that has no answer yet."""

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        super().add(message)
        self._clock += _SECONDS
        if self._asked is None:
            self._wait(message)
            return
        read, fresh, dollars = self._asked
        self._asked = None
        turn = self._store.turns.begin(self.keep(), model=MODEL, session=self._part, began=self._clock)
        self._wait(message)
        usage = {"input_tokens": 0, "cache_read_tokens": read, "cache_write_tokens": fresh}
        usage["output_tokens"] = self.sizes[-1]
        self._store.turns.finish(turn.id, message, usage=usage, cost=dollars, echo_node=self.keep().head)

    def _wait(self, message: Message) -> None:
        self._waiting.append(message)
        self._times.append(self._clock)

    def fit(self) -> None:
        """Store what is new, and compact if that is due."""
        branch = self.keep()
        if self.engine.should_compress_preflight(self.messages):
            occasion = Occasion("threshold", self._part, MODEL)
            done = self._store.compact(branch, self.engine, occasion, roll_over=self._part, current_tokens=self.tokens)
            self._part = done.child or self._part
            if done.outcome == "compacted":
                self.hold(done.messages)

    def send(self) -> tuple[int, int, float]:
        """Count a request, whose answer is the next message."""
        self._asked = super().send()
        return self._asked

    def keep(self) -> Branch:
        """Store the messages that are not stored yet; return the place of the newest."""
        if self.branch is None:
            self.branch = self._store.record(self._waiting, times=self._times, conversation=self.conversation)
            self._store.sessions.attach(self.conversation, self.branch)
        elif self._waiting:
            self.branch = self._store.append(self.branch, self._waiting, times=self._times)
        self._waiting, self._times = [], []
        return self.branch

    def set_times(self) -> None:
        """Put compactions at the session's times, and take out when requests ended: nobody was asked."""
        newest = select(func.max(turns.c.ts)).where(turns.c.session == compaction.c.session).scalar_subquery()
        for change in (
            turns.update().values(ended=None),
            compaction.update().values(ts=func.coalesce(newest, compaction.c.ts)),
        ):
            self._store.database.write(partial(Connection.execute, statement=change))


_WINDOW = 32_768
"""The window in tokens: small, so that the session fills it several times."""


@click.command("demo")
@click.option("--web", is_flag=True, help="Then open the inspector on the played session in the browser.")
@json_option
def demo_command(web: bool, as_json: bool) -> None:
    """Play a long agent session in a small window, and show what three ways to deal with that make of it."""
    if web:
        check_installed()
    session, facts = load_session()
    with (
        tempfile.TemporaryDirectory(prefix="everlong-demo-") as folder,
        open_store(Path(folder) / "demo.db", waits_for_disk=False) as store,
    ):
        messages = sum(message["role"] != "system" for message in session)  # as everything else counts them
        out = console()
        out.width = min(out.width, _WIDEST)
        if not as_json:
            _print_question(out, messages)
        with working("playing the session"):
            played = play(session, _WINDOW, store)
        store.searcher.index_pending()
        answers = [sources_of(one, facts, store if one is played[-1] else None) for one in played]
        if as_json:
            ways = zip(played, answers, strict=True)
            print_values([{"name": one.name, "dollars": one.dollars, "facts": Counter(known)} for one, known in ways])
        else:
            _print_sizes(out, played, session)
            _print_table(out, played, answers)
            _print_summary(out, played[-1])
            _print_next(out, web=web)
        if web:
            models = {MODEL: {"context_length": _WINDOW, **PRICES}}
            serve_inspector(store, "everlong demo", port=0, opens_browser=True, models=models)


_SUMMARY_SECTIONS = 4
_ITEM_CHARS = 76
"""Characters shown of a line of the summary: one line of the screen."""
_NAME_CELLS = 22
_WIDEST = 80
_STYLES = ("red", "magenta", "green")
_SOURCES = ("context", "recall", "lost")
_NEXT = (
    ("source .venv/bin/activate", "so that your shell finds the program"),
    ("everlong", "a chat that goes on past its window"),
    ("everlong wrap -- claude", "the same for Claude Code, Codex and others"),
    ("everlong compress FILE --diff", "try it on a transcript of your own"),
    ("everlong demo --web", "this session in the browser"),
)


def _print_heading(out: Console, text: str) -> None:
    out.print(Text(f"\n{text}", style="bold"))


def _print_next(out: Console, *, web: bool) -> None:
    _print_heading(out, "What to run next")
    is_apart = shutil.which("everlong") is None and Path(".venv/bin/activate").is_file()
    for command, about in _NEXT[not is_apart : len(_NEXT) - web]:
        out.print(Text.assemble("  ", (f"{command:<31}", "bold"), about))


def _print_question(out: Console, messages: int) -> None:
    out.print(Text(f"A session of {messages:,} messages, and a model that reads {_WINDOW:,} tokens", "bold"))
    out.print("An agent builds a booking system. Three ways to go on when the window is full:")
    ways: tuple[type[Contender], ...] = (Cutting, HeadAndTail, Everlong)
    for way, style in zip(ways, _STYLES, strict=True):
        out.print(Text.assemble((f"  {way.name:<{_NAME_CELLS}}", style), way.about))
    out.print(Text("No model is asked and nothing leaves this machine.", "dim"))


def _print_sizes(out: Console, played: Sequence[Contender], session: Sequence[Message]) -> None:
    requests, counter = len(played[0].requests), played[0].counter
    whole = sum(map(counter.count, session))
    _print_heading(out, f"The size of {requests} requests; all of it would be {whole:,} tokens")
    for one, style in zip(played, _STYLES, strict=True):
        row = Text(f"{one.name:<{_NAME_CELLS}}")
        row.append(curve(one.requests, one.window, out.width - _NAME_CELLS - 1), style=style)
        out.print(row)


def _print_table(out: Console, played: Sequence[Contender], answers: Sequence[Sequence[Source]]) -> None:
    facts = counted(len(answers[0]), "fact")
    _print_heading(out, f"What each way knows at the end, of {facts}, and what its input costs")
    out.print(Text(f"{'':<{_NAME_CELLS}}{'in context':>12}{'by search':>12}{'not found':>12}{'cost':>12}", "dim"))
    for one, known, style in zip(played, answers, _STYLES, strict=True):
        kept, found, lost = (known.count(source) for source in _SOURCES)
        searched = str(found) if one is played[-1] else "-"
        row = Text(f"{one.name:<{_NAME_CELLS}}", style=style)
        row.append(f"{kept:>12}{searched:>12}{lost:>12}{f'${one.dollars:,.2f}':>12}", style="default")
        out.print(row)
    told = (
        "By search: the question as it stands finds it in the store, which has it all.\n"
        "Cost: $3 per million tokens; 1.25 times that to cache them, 0.1 from the cache."
    )
    out.print(Text(told, "dim"))


def _print_summary(out: Console, held: Contender) -> None:
    """Print the beginning of the newest summary's sections."""
    summary = next((one for one in held.messages if is_summary(one)), None)
    if summary is None:
        return
    _print_heading(out, f"Everlong's summary, {held.counter.count(summary):,} tokens (one line of each part)")
    # A line of letters of one cell each comes first, because it fits.
    sections = [(title, items) for title, items in _sections(text_of(summary)) if items]
    shown = [(title, min(items, key=lambda item: cell_len(item) > len(item))) for title, items in sections]
    for title, item in shown[:_SUMMARY_SECTIONS]:
        out.print(Text(f"  {title}", "cyan"))
        out.print(Padding(Text(textwrap.shorten(item, _ITEM_CHARS, placeholder=" …")), (0, 0, 0, 2), expand=False))


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the headings of a summary with the lines under each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(("## ", "Standing rules")):
            found.append((line, []))
        elif line.strip() and not line.startswith(("#", "(")) and found:
            found[-1][1].append(line)
    return found
