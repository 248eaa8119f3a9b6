"""``everlong demo``: plays a long agent session in a small window, without a key and without a network."""

from __future__ import annotations

import json
import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
import zstandard
from rich.padding import Padding
from rich.text import Text

import everlong.context
from everlong.cli.inspect_web import check_installed, serve_inspector
from everlong.cli.output import counted, print_values, working
from everlong.cli.picture import console, curve
from everlong.context.literals import is_summary
from everlong.model import Message, calls_of, is_system, text_of
from everlong.store import Occasion, open_store
from everlong.store.schema import turn as turns

if TYPE_CHECKING:
    from everlong.context import CompactionReport
    from everlong.store import Branch, Store
    from everlong.tokens import MessageCounter

PRICES = {"input_price": 3.0, "output_price": 0.0, "cache_read_price": 0.3, "cache_write_price": 3.75}
"""US dollars for a million tokens that the demo reckons with; only input is compared."""
_HITS = 10

Source = Literal["context", "recall", "lost"]


@dataclass(slots=True)
class Track:
    """The requests of one contender: the size of each, and the cost of all."""

    contender: Contender
    sizes: list[int] = field(default_factory=list)
    read: int = 0
    """Tokens that the provider's cache held."""
    written: int = 0
    """Tokens that it did not hold."""
    _last: list[Message] = field(default_factory=list)

    def send(self) -> tuple[int, int]:
        """Count a request, and return its cached and its fresh tokens.

        What it has in common with the one before, from the start on, is cached.
        """
        held = self.contender
        pairs = zip(held.messages, self._last, strict=False)
        same = next((at for at, (one, other) in enumerate(pairs) if not _is_same(one, other)), None)
        shared = min(len(held.messages), len(self._last)) if same is None else same
        cached = sum(held.sizes[:shared])
        self.read += cached
        self.written += held.tokens - cached
        self.sizes.append(held.tokens)
        self._last = list(held.messages)
        return cached, held.tokens - cached

    @property
    def dollars(self) -> float:
        """The cost of the input of all requests."""
        return _dollars(self.read, self.written)


def _dollars(read: int, written: int) -> float:
    return (read * PRICES["cache_read_price"] + written * PRICES["cache_write_price"]) / 1_000_000


def _is_same(one: Message, other: Message) -> bool:
    """Return whether a provider reads two messages alike; the store writes a text as a part."""
    if one is other:
        return True
    return (one["role"], text_of(one), calls_of(one)) == (other["role"], text_of(other), calls_of(other))


@dataclass(slots=True)
class Played:
    """The record of a played session."""

    window: int
    everlong: Everlong
    tracks: list[Track]
    raw_sizes: list[int] = field(default_factory=list)
    """Tokens of each request if nothing were done."""


def play(session: Sequence[Message], window: int, store: Store) -> Played:
    """Play a session to every contender."""
    ours = Everlong(window, store, len(session))
    counter = ours.engine.counter
    contenders = [Cutting(window, counter), HeadAndTail(window, counter), ours]
    played = Played(window, ours, [Track(one) for one in contenders])
    raw = 0
    for message in session:
        if message["role"] == "assistant":  # an agent calls the model here, so the context must fit now
            for track in played.tracks:
                track.contender.fit()
                read, fresh = track.send()
                if track.contender is ours:
                    ours.ask(read, fresh, _dollars(read, fresh))
            played.raw_sizes.append(raw)
        for track in played.tracks:
            track.contender.add(message)
        raw += counter.count(message)
    ours.keep()
    ours.forget_durations()
    return played


@dataclass(frozen=True, slots=True)
class Answer:
    """Where the answer to a question comes from at the end: the context, a recall from the store, or nowhere."""

    fact: Fact
    source: Source


def answers_of(track: Track, facts: Sequence[Fact], store: Store | None = None) -> list[Answer]:
    """Return where a contender has each answer from; only one with a store can recall."""
    return [_answer(fact, track.contender.messages, store) for fact in facts]


def _answer(fact: Fact, context: Sequence[Message], store: Store | None) -> Answer:
    if states_fact(fact, context):
        return Answer(fact, "context")
    hits = [] if store is None else store.search(fact.question, limit=_HITS).hits
    texts = [store.read(hit.node, chars=1_000_000).text for hit in hits if store is not None and hit.node is not None]
    return Answer(fact, "recall" if any(needle in text for needle in fact.needle for text in texts) else "lost")


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


def states_fact(fact: Fact, context: Sequence[Message]) -> bool:
    """Return whether a context still states a fact."""
    texts = [
        text for m in context if not is_system(m) for text in (text_of(m), *(call.arguments for call in calls_of(m)))
    ]
    return any(needle in text for needle in fact.needle for text in texts)


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
    """A way to deal with a full window: the messages that it holds, with the tokens of each."""

    name = ""
    about = ""
    """A few words about its way to go on."""

    def __init__(self, window: int, counter: MessageCounter) -> None:
        self.window = window
        self.counter = counter
        self.messages: list[Message] = []
        self.sizes: list[int] = []

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        self.messages.append(message)
        self.sizes.append(self.counter.count(message))

    def fit(self) -> None:
        """Make what is held fit the window, before it is sent."""
        raise NotImplementedError

    def hold(self, messages: list[Message]) -> None:
        """Hold other messages from now on."""
        self.messages, self.sizes = list(messages), [self.counter.count(message) for message in messages]

    @property
    def tokens(self) -> int:
        """The tokens of all messages."""
        return sum(self.sizes)


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
        self.reports: list[tuple[int, CompactionReport]] = []
        """The message at which each compaction happened, and its report."""
        self.branch: Branch | None = None
        self._store = store
        self._clock = time.time() - length * _SECONDS
        self.conversation = store.sessions.start(title=_TITLE, client="demo", model=MODEL, started=self._clock).id
        self._part = self.conversation
        self._waiting: list[Message] = []
        self._times: list[float] = []
        self._asked: tuple[int, int, float] | None = None
        """The tokens from the cache, the fresh ones, and the cost of the request that has no answer yet."""
        self._seen = 0

    def add(self, message: Message) -> None:
        """Take a message of the session."""
        super().add(message)
        self._clock += _SECONDS
        self._seen += 1
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
            report = self.engine.last_report
            if done.outcome == "compacted" and report is not None:
                self.hold(done.messages)
                self.reports.append((self._seen, report))

    def ask(self, read: int, fresh: int, dollars: float) -> None:
        """Take note of a request, whose answer is the next message."""
        self._asked = (read, fresh, dollars)

    def keep(self) -> Branch:
        """Store the messages that are not stored yet; return the place of the newest."""
        if self.branch is None:
            self.branch = self._store.record(self._waiting, times=self._times, conversation=self.conversation)
            self._store.sessions.attach(self.conversation, self.branch)
        elif self._waiting:
            self.branch = self._store.append(self.branch, self._waiting, times=self._times)
        self._waiting, self._times = [], []
        return self.branch

    def forget_durations(self) -> None:
        """Remove the times at which requests ended: nobody was asked, so none took any time."""
        self._store.database.write(lambda connection: connection.execute(turns.update().values(ended=None)))


_WINDOW = 32_768
"""The window in tokens: small, so that the session fills it several times."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--web", is_flag=True, help="Then open the inspector on the played session in the browser.")
def demo_command(as_json: bool, web: bool) -> None:
    """Play a long agent session in a small window, and show what three ways to deal with that make of it."""
    if web:
        check_installed()
    session, facts = load_session()
    with (
        tempfile.TemporaryDirectory(prefix="everlong-demo-") as folder,
        open_store(Path(folder) / "demo.db", waits_for_disk=False) as store,
    ):
        messages = sum(message["role"] != "system" for message in session)  # as everything else counts them
        screens = None if as_json else DemoScreens(messages, _WINDOW)
        if screens is not None:
            screens.question([(one.name, one.about) for one in (Cutting, HeadAndTail, Everlong)])
        with working("playing the session"):
            played = play(session, _WINDOW, store)
        store.searcher.index_pending()
        answers = [
            answers_of(track, facts, store if track.contender is played.everlong else None) for track in played.tracks
        ]
        if screens is None:
            print_values(_figures(played, answers))
        else:
            screens.results(played, answers)
        if web:
            models = {MODEL: {"context_length": _WINDOW, **PRICES}}
            serve_inspector(store, "everlong demo", port=0, opens_browser=True, models=models)


def _figures(played: Played, answers: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    return {
        "window": played.window,
        "threshold": played.everlong.engine.threshold_tokens,
        "requests": len(played.raw_sizes),
        "largest_without": max(played.raw_sizes),
        "ways": [
            {
                "name": track.contender.name,
                "largest_request": max(track.sizes),
                "tokens_from_cache": track.read,
                "tokens_fresh": track.written,
                "dollars": round(track.dollars, 4),
                "facts": {one.fact.id: one.source for one in known},
            }
            for track, known in zip(played.tracks, answers, strict=True)
        ],
        "compactions": [{"message": index, **report.to_dict()} for index, report in played.everlong.reports],
    }


_SUMMARY_LINES = 9
_ITEM_CHARS = 76
"""Characters shown of a line of the summary: one line of the screen."""
_NAME_CELLS = 22
_WIDEST = 80
_STYLES = ("red", "magenta", "green")
_SOURCES = ("context", "recall", "lost")
_NEXT = (
    ("everlong", "a chat that goes on past its window"),
    ("everlong wrap -- claude", "the same for Claude Code, Codex and others"),
    ("everlong compress FILE --diff", "try it on a transcript of your own"),
    ("everlong demo --web", "this session in the browser"),
)


class DemoScreens:
    """The output of one run, in order.

    Args:
        messages: The messages of the session.
        window: The window in tokens.
    """

    def __init__(self, messages: int, window: int) -> None:
        self._out = console()
        self._out.width = min(self._out.width, _WIDEST)
        self._messages = messages
        self._window = window

    def question(self, ways: Sequence[tuple[str, str]]) -> None:
        """Show the question and the ways.

        Args:
            ways: The name of each way, and what it does.
        """
        self._line(f"A session of {self._messages:,} messages, and a model that reads {self._window:,} tokens", "bold")
        self._line("An agent builds a booking system. Three ways to go on when the window is full:")
        for (name, about), style in zip(ways, _STYLES, strict=True):
            self._out.print(Text.assemble((f"  {name:<{_NAME_CELLS}}", style), about))
        self._line("No model is asked and nothing leaves this machine.", "dim")

    def results(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        """Show what came of it."""
        self._heading(
            f"The size of {len(played.raw_sizes)} requests; all of it would be {max(played.raw_sizes):,} tokens"
        )
        for track, style in zip(played.tracks, _STYLES, strict=True):
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}")
            row.append(curve(track.sizes, played.window, self._out.width - _NAME_CELLS - 1), style=style)
            self._out.print(row)
        self._table(played, answers)
        self._summary(played)
        self._heading("What to run next")
        for command, about in _NEXT:
            self._out.print(Text.assemble("  ", (f"{command:<31}", "bold"), about))

    def _heading(self, text: str) -> None:
        self._out.print(Text(f"\n{text}", style="bold"))

    def _line(self, text: str, style: str = "") -> None:
        self._out.print(Text(text, style=style))

    def _wrapped(self, text: str, style: str = "") -> None:
        self._out.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))

    def _table(self, played: Played, answers: Sequence[Sequence[Answer]]) -> None:
        self._heading(
            f"What each way knows at the end, of {counted(len(answers[0]), 'fact')}, and what its input costs"
        )
        self._line(f"{'':<{_NAME_CELLS}}{'in context':>12}{'by search':>12}{'not found':>12}{'cost':>12}", "dim")
        for track, known, style in zip(played.tracks, answers, _STYLES, strict=True):
            kept, found, lost = (sum(one.source == source for one in known) for source in _SOURCES)
            searched = str(found) if track is played.tracks[-1] else "-"
            row = Text(f"{track.contender.name:<{_NAME_CELLS}}", style=style)
            row.append(f"{kept:>12}{searched:>12}{lost:>12}{f'${track.dollars:,.2f}':>12}", style="default")
            self._out.print(row)
        self._line(
            "By search: the question as it stands finds it in the store, which has it all.\n"
            "Cost: $3 per million tokens; to write the cache a quarter more, to read it a tenth.",
            "dim",
        )

    def _summary(self, played: Played) -> None:
        """Show the beginning of the newest summary's sections."""
        held = played.everlong
        summary = next((one for one in held.messages if is_summary(one)), None)
        if summary is None:
            return
        hidden, tokens = self._messages - len(held.messages) + 2, held.counter.count(summary)
        self._heading(f"Everlong's summary: {tokens:,} tokens for {counted(hidden, 'message')} (one line of each part)")
        shown = [(title, items[0]) for title, items in _sections(text_of(summary)) if items]
        for title, item in shown[: _SUMMARY_LINES // 2]:
            self._line(f"  {title}", "cyan")
            self._wrapped(textwrap.shorten(item, _ITEM_CHARS, placeholder=" …"))


def _sections(text: str) -> list[tuple[str, list[str]]]:
    """Return the headings of a summary with the lines under each."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(("## ", "Standing rules")):
            found.append((line, []))
        elif line.strip() and not line.startswith(("#", "(")) and found:
            found[-1][1].append(line)
    return found
