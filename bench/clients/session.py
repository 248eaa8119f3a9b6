"""A session of a real client on the model server, direct or through the gateway, and what the server billed for it."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import genai_prices
from tests.api_rules import install_cache
from tests.api_rules.prompt_cache import blocks_of

from bench.clients.programs import Place, Program
from bench.clients.script import Plan, Step, Worker
from bench.gateway.serving import gateway
from bench.gateway.shapes import seconds_until_stored
from everlong.agent.accounting import account
from everlong.config import Settings
from everlong.context.summarizers import ExtractiveSummarizer
from everlong.gateway.formats import path_of_folder
from everlong.store import Store
from everlong.testing import Ask, ModelServer
from everlong.testing.server.exchange import Record

__all__ = ["CENT", "Bill", "Desk", "Played", "bill_of", "open_desk", "play"]

install_cache()

CENT = Decimal("0.01")


@dataclass
class Bill:
    """The server's bill, by its own account."""

    requests: int = 0
    refused: list[str] = field(default_factory=list)
    prompt: int = 0
    read: int = 0
    repeated: int = 0
    """Tokens of prompts that had been sent before, block for block from the beginning."""
    repeated_read: int = 0
    """Those of them that were read from the cache."""
    written: int = 0
    output: int = 0
    largest: int = 0
    dollars: Decimal = Decimal(0)

    @property
    def read_share(self) -> float:
        """The share of all prompt tokens that was read from the cache."""
        return self.read / max(1, self.prompt)

    @property
    def repeated_share(self) -> float:
        """The share of the tokens that had been sent before that was read from the cache."""
        return self.repeated_read / max(1, self.repeated)


def bill_of(records: Sequence[Record]) -> Bill:
    """Add up what the server recorded."""
    bill = Bill()
    seen: set[str] = set()
    for record in records:
        if record.rejected:
            bill.refused.append(f"request {record.number}: {record.error}")
        if record.status != 200:
            continue
        tokens, total, repeated = tokens_of(record), 0, 0
        blocks = blocks_of(record.api, record.body)
        for block in blocks:
            total += block.tokens
            if block.prefix in seen:
                repeated = total
        seen.update(block.prefix for block in blocks)
        bill.requests += 1
        bill.prompt += tokens.prompt
        bill.read += tokens.read
        bill.repeated += repeated
        bill.repeated_read += min(tokens.read, repeated)
        bill.written += tokens.written
        bill.output += tokens.output
        bill.largest = max(bill.largest, tokens.prompt)
        bill.dollars += tokens.price(str(record.body["model"]))
    return bill


class Tokens(NamedTuple):
    """The tokens of a request, as the server billed them."""

    prompt: int = 0
    """All of the prompt, whatever it cost."""
    read: int = 0
    written: int = 0
    written_1h: int = 0
    output: int = 0

    def price(self, model: str) -> Decimal:
        """Return the price in dollars."""
        usage = genai_prices.Usage(
            input_tokens=self.prompt,
            output_tokens=self.output,
            cache_read_tokens=self.read,
            cache_write_tokens=self.written,
            cache_write_1h_tokens=self.written_1h,
        )
        return genai_prices.calc_price(usage, model).total_price


def tokens_of(record: Record) -> Tokens:
    """Read the usage that the server reported."""
    told = record.usage
    if not told:
        return Tokens()
    if record.api == "anthropic":
        read, written = told.get("cache_read_input_tokens") or 0, told.get("cache_creation_input_tokens") or 0
        longer = (told.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
        return Tokens(told["input_tokens"] + read + written, read, written, longer, told["output_tokens"])
    details: Mapping[str, Any] = told.get("prompt_tokens_details") or told.get("input_tokens_details") or {}
    prompt = told.get("prompt_tokens") or told.get("input_tokens") or 0
    output = told.get("completion_tokens") or told.get("output_tokens") or 0
    return Tokens(prompt, details.get("cached_tokens") or 0, details.get("cache_write_tokens") or 0, 0, output)


@dataclass
class Played:
    """The outcome of a session."""

    bill: Bill = field(default_factory=Bill)
    compactions: Counter[str] = field(default_factory=Counter)
    """Those of the gateway, by reason."""
    fallbacks: int = 0
    """Those whose summary no model wrote."""
    held: list[float] = field(default_factory=list)
    """Seconds for which the gateway held each request."""
    own_compactions: int = 0
    """Those that the client made itself."""
    answers: list[str] = field(default_factory=list)
    """The client's output, prompt by prompt."""
    files: dict[str, str] = field(default_factory=dict)
    """The files that the client wrote."""
    asked: Counter[str] = field(default_factory=Counter)
    """Requests by what they were for."""
    rows: int = 0
    """Conversations that `everlong sessions list` shows."""
    booked: Decimal = Decimal(0)
    """The bill by the gateway's books, which every screen shows."""
    problems: list[str] = field(default_factory=list)
    """Problems that the store's own check found."""
    known: int = 0
    """Facts that were still known at the end, of ten."""
    recalled: int = 0
    requests: list[tuple[int, int, int]] = field(default_factory=list)
    """Prompt tokens, read tokens and status of each request."""
    seconds: float = 0.0


@dataclass
class Desk:
    """A client with its scratch folders, a scripted model, and perhaps a gateway between them."""

    program: Program
    worker: Worker
    server: ModelServer
    root: Path
    url: str
    window: int
    """The window that the client is told."""
    answer: int | None = None
    names_folder: bool = False
    """Whether the address names the client's folder, as `everlong wrap` has it."""

    def place(self, plan: Plan, name: str = "") -> Place:
        """Prepare a home and a folder with the plan's files."""
        key = name or plan.name
        home, folder = self.root / f"home-{key}", self.root / f"work-{key}"
        url = self.url + path_of_folder(folder, self.program.name) if self.names_folder else self.url
        made = Place(home, folder, url, self.program.model, self.window, self.answer)
        made.home.mkdir()
        made.folder.mkdir()
        for path, text in plan.files.items():
            file = made.folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        self.program.prepare(made)
        return made

    def store(self) -> Store:
        """Return the gateway's store, as soon as everything is in it."""
        seconds_until_stored(self.url)
        return Store.open(self.root / "gateway.db")


def written(place: Place) -> dict[str, str]:
    """Return the files that a client has written."""
    found = sorted((place.folder / "out").glob("**/*"))
    return {str(path.relative_to(place.folder)): path.read_text() for path in found if path.is_file()}


def _folder_in(ask: Ask, root: Path) -> Path:
    """Return the folder that the client works in, which it tells the model."""
    told = re.search(re.escape(str(root)) + r"/work-\w+", ask.text)
    return Path(told[0]) if told else root / "work-a"


@contextmanager
def open_desk(
    program: Program,
    plans: Sequence[Plan],
    *,
    through_gateway: bool,
    window: int,
    told_window: int | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Iterator[Desk]:
    """Start the model server, and a gateway in front of it if wanted.

    Args:
        program: the client.
        plans: what will be asked.
        through_gateway: whether the client talks to a gateway or to the model server.
        window: what the model server enforces and the gateway knows.
        told_window: what the client is told, if that is another; it then asks for short answers.
        settings: of the gateway.
    """
    names = [name.rpartition("/")[2] for name in (program.model, program.small_model) if name]
    with tempfile.TemporaryDirectory(prefix="everlong-client-", ignore_cleanup_errors=True) as root:
        folder = Path(root)

        def call(step: Step, ask: Ask) -> tuple[str, Mapping[str, object]]:
            return program.call(step, ask, _folder_in(ask, folder))

        worker = Worker(plans, call if program.has_tools else None)
        with ModelServer(worker, window=window, models=tuple(names), counts_max_tokens=False) as server:
            desk = Desk(program, worker, server, folder, server.url, told_window or window)
            desk.answer = min(window, told_window) // 8 if told_window else None
            if not through_gateway:
                yield desk
                return
            given = {"models": {name: {"context_length": window} for name in names}, **(settings or {})}
            with gateway(server.url, folder / "gateway.db", given, folder / "spool") as (url, _):
                desk.url, desk.names_folder = url, True
                yield desk


def play(  # noqa: PLR0913 - each says one thing about the run
    program: Program,
    plan: Plan,
    *,
    through_gateway: bool,
    window: int,
    told_window: int | None = None,
    settings: Mapping[str, Any] | None = None,
    seconds: tuple[float, float] = (0.0, 0.0),
    timeout: float = 900,
) -> Played:
    """Play a plan from beginning to end, each task as a prompt of its own in the same session."""
    played = Played()
    started = time.perf_counter()
    opened = open_desk(
        program, [plan], through_gateway=through_gateway, window=window, told_window=told_window, settings=settings
    )
    with opened as desk:
        place = desk.place(plan)
        desk.worker.seconds = seconds
        played.answers = program.talk(place, [plan.prompt(number) for number in range(len(plan.tasks))], timeout)
        played.files = written(place)
        played.asked = desk.worker.asked
        played.own_compactions = desk.worker.asked["own summary"]
        played.known = len(desk.worker.known[plan.name])
        played.recalled = len(desk.worker.recalled[plan.name])
        if through_gateway:
            with desk.store() as store:
                done = store.compactions()
                played.compactions = Counter(one.reason for one in done)
                played.fallbacks = sum(one.summarizer == ExtractiveSummarizer.name for one in done)
                began = sorted(turn.began for turn in store.turns.since())
                played.held = [came - sent for sent, came in zip(began, sorted(desk.worker.arrivals), strict=False)]
                played.problems = store.verify().problems
                found = store.conversations.newest()
                played.rows = len(found)
                told = [one.id for one in found if not one.title or one.folder != str(place.folder)]
                played.problems += [f"conversation {one} has no title or no folder" for one in told]
                end = time.monotonic() + seconds[1] + 60.0  # a summary may be under way
                while abs(played.booked - bill_of(desk.server.requests).dollars) > CENT and time.monotonic() < end:
                    played.booked = account(store, Settings()).total.cost
                    time.sleep(0.2)
        played.bill = bill_of(desk.server.requests)
        played.requests = [(one.prompt_tokens, tokens_of(one).read, one.status) for one in desk.server.requests]
    played.seconds = time.perf_counter() - started
    return played
