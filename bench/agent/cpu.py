"""Our own CPU per turn: what an agent costs besides the model, its client and the network, however long it has gone on.

The model is a list of events in this process, so that neither a client nor HTTP is measured; store, engine, cache,
tools and the loop are real. Every turn is a request, one call of a tool, its result and an answer. Measured is the
median of many turns, at 100 messages and at 50,000 of one conversation, in turn.

    python -m bench.agent.cpu --messages 50000
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Unpack

from bench.agent.session import own_folder, settings_for
from bench.measure import verdict
from everlong.agent import Agent, AgentOptions, approve_everything, open_agent
from everlong.model import Message
from everlong.providers import Connection
from everlong.providers.base import CallOptions, Done, Event, Reply, TextDelta, ToolCallMade, Usage, UsageReported
from everlong.providers.catalogue import Catalogue
from everlong.providers.endpoints import Endpoint, ModelName
from everlong.store import Store

__all__ = ["Answers", "connection_to", "measured"]

WINDOW = 200_000
SHORT = 100
MOST_MS = 5.0
MOST_GROWTH = 2.0
FLOOR_STEPS = 10_000
FLOOR_MS = 0.7
"""The time of the floor on the machine that the bar is for; slower and busy machines get more time in proportion."""
_PER_TURN = 4
"""Messages of a turn."""
_AT_ONCE = 10
"""Turns of a short conversation that are measured, around its 100th message."""
_WORDS = "the ferry to the island leaves from the outer quay when the tide allows and the ramp is free again today "


class Answers:
    """A provider that answers from memory: first a call, then words."""

    name = "custom"
    model = "in-process"
    takes_markers = False

    def __init__(self) -> None:
        self._number = 0

    def stream(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Iterator[Event]:
        """Yield the events of one answer, as a client would give them."""
        del call
        self._number += 1
        usage = Usage(input_tokens=1_000 + len(messages) * 120, output_tokens=60)
        if messages[-1]["role"] == "user":
            arguments = json.dumps({"path": "README.md"})
            function = {"name": "read_file", "arguments": arguments}
            made: Message = {"role": "assistant", "content": "I look it up.", "tool_calls": []}
            made["tool_calls"] = [{"id": f"call_{self._number}", "type": "function", "function": function}]
            reply = Reply(made, usage, "tool_calls", self.model, self.name)
            yield TextDelta("I look it up.")
            yield ToolCallMade(reply.calls[0])
        else:
            text = f"Ferry {self._number}: " + _WORDS * 3
            reply = Reply({"role": "assistant", "content": text}, usage, "end", self.model, self.name)
            for start in range(0, len(text), 40):
                yield TextDelta(text[start : start + 40])
        yield UsageReported(usage)
        yield Done(reply)

    def complete(self, messages: Sequence[Message], **call: Unpack[CallOptions]) -> Reply:
        """Return "nothing" for summaries and notes."""
        del messages, call
        return Reply({"role": "assistant", "content": "nothing"}, Usage(1_000, 1), "end", self.model, self.name)

    def served_context_length(self) -> int | None:
        """Return None: there is no server."""
        return None

    def close(self) -> None:
        """Do nothing: there are no connections."""


def connection_to(provider: Any, window: int = WINDOW) -> Connection:
    """Return a connection to a provider of this process."""
    name = ModelName("custom", str(provider.model))
    catalogue = Catalogue(settings_for(window, str(provider.model)).models)
    endpoint = Endpoint("custom")
    return Connection(provider, name, endpoint, catalogue)


class Measured:
    """A conversation whose turns are measured."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._turns = 0

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return self._turns * _PER_TURN

    def turns(self, count: int) -> list[float]:
        """Return the CPU milliseconds of each of the next turns."""
        spent: list[float] = []
        for _ in range(count):
            # No two conversations begin alike, or they would be one in the store.
            asked = f"When does ferry {self._turns} of line {id(self)} leave? " + _WORDS * 2
            started = time.process_time()
            self._agent.run(asked)
            spent.append(1e3 * (time.process_time() - started))
            self._turns += 1
        return spent

    @property
    def described(self) -> str:
        """A description of the messages in sight."""
        return f"{len(self._agent.conversation.messages)} in sight, {self._agent.compactor.count} compactions"


def floor() -> float:
    """Return the CPU milliseconds of a fixed piece of bare Python: the present speed of this machine."""
    started = time.process_time()
    total = 0
    for number in range(FLOOR_STEPS):
        total += number * number % 7
    return 1e3 * (time.process_time() - started)


def opened(store: Store, root: Any) -> Measured:
    """Open a conversation with a model of this process."""
    provider = Answers()
    settings = settings_for(WINDOW, provider.model)
    options = AgentOptions(root=root, approver=approve_everything)
    agent = open_agent(settings, connection_to(provider), options, store=store)
    agent.engine.summarizer = None  # type: ignore[attr-defined]  # the compressor; its summaries are our own work
    return Measured(agent)


class Figures(NamedTuple):
    """CPU milliseconds of turns of a short and of a long conversation, taken in turn, and of the floor between them."""

    short: list[float]
    long: list[float]
    floor: list[float]

    @property
    def growth(self) -> float:
        """The cost of a turn of the long conversation, as a multiple of the short one's."""
        return statistics.median(self.long) / statistics.median(self.short)


def measured(messages: int = 50_000, turns: int = 240) -> Iterator[tuple[int, Figures, str]]:
    """Measure one conversation at some lengths; yield each length, the figures and what is in sight."""
    with own_folder() as folder, Store.open(folder / "store.db") as store:
        root = folder / "project"
        long = opened(store, root)
        for point in sorted({min(messages, at) for at in (1_000, 5_000, 20_000, messages)}):
            long.turns(max(0, (point - long.messages) // _PER_TURN - turns // 2))
            figures = Figures([], [], [])
            while len(figures.long) < turns:
                short = opened(store, root)
                short.turns((SHORT - _AT_ONCE * _PER_TURN // 2) // _PER_TURN)
                for _ in range(_AT_ONCE):
                    # In turn, so that a machine that is busy with other things is so for both.
                    figures.short.extend(short.turns(1))
                    figures.long.extend(long.turns(1))
                    figures.floor.append(floor())
            yield long.messages, figures, long.described


def _told(spent: Sequence[float]) -> str:
    ordered = sorted(spent)
    low, high = ordered[len(ordered) // 10], ordered[-len(ordered) // 10]
    return f"{statistics.median(spent):.2f} ({low:.2f} to {high:.2f}, {sum(spent) / len(spent):.2f} on average)"


def main() -> int:
    """Measure and tell; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.agent.cpu", description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000)
    asked = parser.parse_args()
    every: list[Figures] = []
    for messages, figures, sight in measured(asked.messages):
        every.append(figures)
        print(
            f"{messages:>8,} messages: {_told(figures.long)} ms a turn; at {SHORT}: {_told(figures.short)} ms; "
            f"{figures.growth:.2f} times; floor {statistics.median(figures.floor):.2f} ms; {sight}"
        )
    first = statistics.median([ms for figures in every for ms in figures.short])
    slower = statistics.median([ms for figures in every for ms in figures.floor]) / FLOOR_MS
    growth = every[-1].growth
    allowed = MOST_MS * max(1.0, slower)
    print(
        f"own CPU of a turn at {SHORT} messages: {first:.2f} ms <= {allowed:.2f} {verdict(first, allowed)} "
        f"({MOST_MS:g} where the floor takes {FLOOR_MS:g} ms; here it takes {slower * FLOOR_MS:.2f})"
    )
    print(f"at {asked.messages:,}: {growth:.2f} times that <= {MOST_GROWTH:g} {verdict(growth, MOST_GROWTH)}")
    return 0 if first <= allowed and growth <= MOST_GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
