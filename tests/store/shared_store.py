"""A world in which agents and stateless clients share one store, and each of them is alone in another one as well.

Whatever an actor does, it does twice: in the store that all share, and in a tenant that nobody else uses. What the two
say about its conversations must be the same. Agents know their conversation, so this holds for them at every moment.
Stateless clients that said and heard the same, with the same system prompt and under the same name, are one
conversation until something tells them apart; until then only their sums can be compared.

What is done is data (`Step`), so a run can be repeated.
"""

from __future__ import annotations

import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import select

from everlong.agent.conversation import AgentConversation, Said
from everlong.model import Message, Trace, calls_of, text_of
from everlong.providers.base import Reply, Usage
from everlong.store import Store
from everlong.store.compaction import Occasion
from everlong.store.content import Blob, blob, encoded
from everlong.store.conversations import CompactionMark
from everlong.store.identity import PlacedRequest, Sender, StatelessRequest
from everlong.store.schema import branch as branches, session as sessions
from everlong.store.tree import Branch
from everlong.store.turns import FinishedTurn, NewMessages
from tests.store.engines import ScriptedEngine, summarizing

PROMPTS = ("You help in project A.", "You help in project B.")
WORDS = ("hi", "go on", "and then?", "why?")
REPLIES = ("Hello.", "Hello. What can I do for you today?\n", "Yes.", "Let me think about that for a while.")
CALL: dict[str, Any] = {"type": "function", "function": {"name": "look", "arguments": '{"at": "the harbour"}'}}
RESULTS = ("Two ferries, one of them late; the quay is empty otherwise.", "Nothing to see.")
CLEARED = "[cleared]"
REMINDER = "\n\nREMINDER: answer in full sentences."
LISTING = "These are the files that I know: a.py, b.py"
LONGEST = 24
"""Messages of a history after which an actor leaves and another one comes."""


class Step(NamedTuple):
    """One thing that an actor does; in an empty place it does nothing."""

    actor: str
    verb: str
    values: tuple[Any, ...] = ()


class Told(NamedTuple):
    """A message as both stores must show it: without additions, however it was written."""

    role: str
    words: str
    calls: tuple[str, ...] = ()
    status: str | None = None


def told(message: Message, status: str | None = None) -> Told:
    """Return what a message says."""
    words = text_of(message).replace(REMINDER.strip(), "")
    return Told(str(message["role"]), "".join(words.split()), tuple(call.id for call in calls_of(message)), status)


def all_told(messages: Iterable[Message]) -> list[Told]:
    """Return what messages say, without those that only move along."""
    return [one for one in map(told, messages) if one.words != told(user(LISTING)).words]


def exported(store: Store, ident: str) -> list[Told | str]:
    """Return a whole conversation as people read it."""
    found: list[Told | str] = []
    for one in store.conversations.entries(ident):
        found += ["---"] if isinstance(one, CompactionMark) else [told(one.entry.message, one.status)]
    return [one for one in found if isinstance(one, str) or one.words != told(user(LISTING)).words]


def user(words: str) -> Message:
    """Return what a person says."""
    return {"role": "user", "content": words}


def price_of(said: Sequence[Told], reply: Told | None) -> int:
    """Return what a turn costs in millionths: the same words cost the same, whoever says them."""
    return 1 + zlib.crc32(repr((list(said), reply)).encode()) % 999


def reply_of(number: int, call: str) -> Message:
    """Return one of the few replies that this world has; the last one calls a tool."""
    if number == len(REPLIES):
        return {"role": "assistant", "content": "I look.", "tool_calls": [{"id": call, **CALL}]}
    return {"role": "assistant", "content": REPLIES[number]}


def result_of(number: int, reply: Message) -> Message:
    """Return what came of the call in a reply."""
    return {"role": "tool", "tool_call_id": calls_of(reply)[0].id, "content": RESULTS[number]}


def figures(store: Store, ident: str) -> dict[str, Any]:
    """Return the figures of a conversation that two stores must agree on."""
    found = store.conversations.get(ident)
    title = None if found.title is None else told(user(found.title)).words
    return {
        "title": title,
        "cost": round(found.cost * 1e6),
        "api_calls": found.api_calls,
        "tokens": (found.input_tokens, found.output_tokens),
        "compactions": found.compactions,
    }


# -- agents ------------------------------------------------------------------------------------------------------------


@dataclass
class _Host:
    """An agent's conversation in one of its two stores."""

    store: Store
    conversation: AgentConversation | None = None
    turn: int | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass
class Agent:
    """An agent, which knows its conversation."""

    name: str
    prompt: str
    hosts: list[_Host]
    log: list[Step] = field(default_factory=list)
    is_asking: bool = False

    def next_step(self, rng: random.Random) -> Step:
        """Choose what to do next."""
        said = self.hosts[1].conversation
        last = said.messages[-1] if said is not None and said.messages else None
        chance = rng.random()
        if self.is_asking:
            if chance < 0.15:
                return Step(self.name, "fail", (chance < 0.08,))
            return Step(self.name, "answer", (rng.choice((0, 0, 1, 2, 3, 4)),))
        if last is not None and last["role"] == "assistant" and calls_of(last):
            return Step(self.name, "look", (rng.randrange(2),))
        if last is not None and chance < 0.15:
            return Step(self.name, "rewind")
        if last is not None and chance < 0.27:
            return Step(self.name, "compact", (rng.randrange(4), rng.randrange(6)))
        if last is not None and chance < 0.32:
            return Step(self.name, "undo")
        if last is not None and last["role"] in ("user", "tool") and chance < 0.6:
            return Step(self.name, "ask")
        return Step(self.name, "say", (0 if last is None else rng.randrange(len(WORDS)),))

    def do(self, step: Step) -> None:
        """Do it in both stores."""
        self.log.append(step)
        for host in self.hosts:
            if host.conversation is None:
                host.conversation = AgentConversation(
                    host.store, system_prompt=self.prompt, model="m", warn=host.warnings.append
                )
            getattr(self, f"_{step.verb}")(host, host.conversation, *step.values)
        self.is_asking = any(host.turn is not None for host in self.hosts)

    def _say(self, host: _Host, said: AgentConversation, number: int) -> None:
        if host.turn is None:
            said.add(Said(user(WORDS[number])))
            host.turn = said.begin_turn("m")

    def _ask(self, host: _Host, said: AgentConversation) -> None:
        if host.turn is None and said.branch is not None:
            host.turn = said.begin_turn("m")

    def _answer(self, host: _Host, said: AgentConversation, number: int) -> None:
        if host.turn is None:
            return
        message = reply_of(number, "call-1")
        cost = price_of(all_told(said.messages), told(message))
        reply = Reply(message, Usage(input_tokens=cost % 7, output_tokens=1), "end", "m", "p")
        said.finish_turn(host.turn, reply, cost / 1e6)
        host.turn = None

    def _fail(self, host: _Host, said: AgentConversation, is_cancelled: bool) -> None:
        if host.turn is not None:
            said.fail_turn(host.turn, "no", is_cancelled=is_cancelled)
            host.turn = None

    def _look(self, host: _Host, said: AgentConversation, number: int) -> None:
        if host.turn is None and said.messages and calls_of(said.messages[-1]):
            said.add(Said(result_of(number, said.messages[-1])))
            host.turn = said.begin_turn("m")

    def _rewind(self, host: _Host, said: AgentConversation) -> None:
        if host.turn is None:
            said.rewind()

    def _compact(self, host: _Host, said: AgentConversation, first: int, count: int) -> None:
        if host.turn is None and said.branch is not None:
            change = summarizing(first, first + count, f"{first} and {count} more")
            said.compact(ScriptedEngine(change), "asked", "p")

    def _undo(self, host: _Host, said: AgentConversation) -> None:
        if host.turn is None:
            said.undo_compaction()

    def restart(self, stores: Sequence[Store]) -> None:
        """Go on after the program ended."""
        for host, store in zip(self.hosts, stores, strict=True):
            before, host.store, host.turn = host.conversation, store, None
            ident = before.session_id if before is not None else ""
            host.conversation = AgentConversation.resume(store, ident, warn=host.warnings.append) if ident else None
        self.is_asking = False

    @property
    def is_old(self) -> bool:
        """Whether it has said enough."""
        return len(self.log) > 2 * LONGEST

    def problems(self) -> Iterator[str]:
        """Yield what differs from the same conversation alone in a store."""
        shared, alone = (self._state(host) for host in self.hosts)
        yield from _differences(self.name, shared, alone)
        yield from (f"{self.name}: warned: {warning}" for warning in self.hosts[0].warnings)

    def _state(self, host: _Host) -> dict[str, Any]:
        said = host.conversation
        if said is None or said.session is None:
            return {}
        ident = said.session_id
        return {
            **figures(host.store, ident),
            "context": said.messages,
            "stored context": [] if said.branch is None else host.store.context(said.branch),
            "system prompt": (said.system_prompt, host.store.conversations.system_prompt(ident)),
            "export": exported(host.store, ident),
        }


def _differences(name: str, shared: dict[str, Any], alone: dict[str, Any]) -> Iterator[str]:
    for what in {**shared, **alone}:
        if shared.get(what) != alone.get(what):
            yield f"{name}: {what} is {shared.get(what)!r}, alone it is {alone.get(what)!r}"


# -- stateless clients -------------------------------------------------------------------------------------------------


class Opening(NamedTuple):
    """What tells conversations apart before the first reply is repeated."""

    name: str | None
    prompt: str
    words: tuple[Told, ...]


class _Line(NamedTuple):
    """What a gateway remembers of the last request of a conversation."""

    messages: list[Message]
    at: Branch
    mark: bytes
    session: str
    opened: int
    name: str | None


@dataclass
class _Server:
    """A client's conversations in one of its two stores."""

    store: Store
    line: _Line | None = None
    turn: int | None = None
    waiting: tuple[Branch, NewMessages, list[Message]] | None = None
    """What is stored with its turn only."""
    session: str | None = None
    known: dict[str, Opening] = field(default_factory=dict)
    """The openings of the conversations that the client was in."""

    def ask(self, client: Client, messages: list[Message], how: str) -> None:
        """Take a request."""
        self.turn = self.waiting = None
        line = self.line
        if how == "follow" and line is not None and _follows(line, messages, client.session):
            self.waiting = (line.at, self._new(line, messages[len(line.messages) :]), messages)
            return
        store = self.store
        trace = store.chain.trace(map(store.cleaned, messages))
        placed = store.identity.place(StatelessRequest(messages, trace, client.sender, client.preamble(store)))
        self._put(client, messages, placed)
        if how == "begin":
            self.turn = store.turns.begin(placed.at, model="m", session=placed.session).id

    def _new(self, line: _Line, messages: list[Message]) -> NewMessages:
        trace = self.store.chain.trace(messages, line.at.node)
        return NewMessages(list(messages), trace, None if line.mark == line.at.head else line.mark)

    def _put(self, client: Client, messages: list[Message], placed: PlacedRequest) -> None:
        self.line = _Line(messages, placed.at, placed.mark, placed.session, placed.opened, client.session)
        self.session = placed.session

    def end(self, client: Client, past: FinishedTurn) -> None:
        """Store what became of a request."""
        store, line = self.store, self.line
        assert line is not None
        if self.waiting is not None:
            at, new, messages = self.waiting
            view = _view_at(store, at)
            done = store.turns.add_following(at, new, _with_session(past, line.session), view=view)
            if done is not None:
                marks = new.trace.ids
                if new.mark is not None:
                    marks = store.chain.rechain(new.messages, new.trace, new.mark)
                self.line = line._replace(messages=messages, at=done[0], mark=marks[-1])
                turn = done[1]
            else:
                self._place_after(client, at, line.mark, messages, len(line.messages))
                turn = store.turns.add_finished(self.line.at, _with_session(past, self.line.session))  # type: ignore[union-attr]
        elif self.turn is not None:
            ended: dict[str, Any] = {"usage": past.usage, "cost": past.cost, "status": past.status}
            turn = store.turns.finish(self.turn, past.reply, **ended).id
        else:
            turn = store.turns.add_finished(line.at, _with_session(past, line.session))
        self.turn = self.waiting = None
        self.session = store.turns.get(turn).session

    def _place_after(self, client: Client, at: Branch, mark: bytes, messages: list[Message], known: int) -> None:
        store, said = self.store, messages[known:]
        trace = store.chain.trace(map(store.cleaned, said), at.node)
        ids = trace.ids if mark == at.head else store.chain.rechain(said, trace, mark)
        asked = StatelessRequest(
            said, Trace(ids, trace.blocks, trace.ends), client.sender, client.preamble(store), at, mark
        )
        self._put(client, messages, store.identity.place(asked))

    def compact(self, first: int, count: int) -> None:
        """Compact the conversation, as a gateway does before it sends a request."""
        if self.line is not None and self.turn is None and self.waiting is None:
            change = ScriptedEngine(summarizing(first, first + count, f"{first} and {count} more"))
            done = self.store.compact(self.line.at, change, Occasion("asked"), roll_over=self.line.session)
            if done.child is not None:
                self.line = self.line._replace(session=done.child)
                self.session = done.child

    def note(self, opening: Opening, own: set[Opening]) -> str | None:
        """Note which opening the present conversation has; what is wrong where it had one that is not the client's."""
        if self.session is None:
            return None
        ident = self.store.sessions.get(self.session).conversation
        before = self.known.setdefault(ident, opening)
        return None if before in own else f"{ident} began as {before} and is used as {opening}"


def _view_at(store: Store, at: Branch) -> int | None:
    with store.database.read() as connection:
        found: int | None = connection.execute(select(branches.c.view_id).where(branches.c.id == at.id)).scalar()
    return found


def _with_session(past: FinishedTurn, session: str) -> FinishedTurn:
    return FinishedTurn(past.reply, "m", session, past.usage, past.cost, past.status)


def _follows(line: _Line, messages: list[Message], name: str | None) -> bool:
    """Return whether a gateway goes on with a conversation in memory."""
    is_longer = len(messages) > len(line.messages) and messages[: len(line.messages)] == line.messages
    return is_longer and line.at.depth > line.opened and line.name == name


@dataclass
class Client:
    """A stateless client: it has its own history and sends all of it."""

    name: str
    kind: str
    """``plain`` ones only ever go on; ``wild`` ones do whatever clients do."""
    prompt: str
    session: str | None
    servers: list[_Server]
    how: str = "whole"
    log: list[Step] = field(default_factory=list)
    history: list[Message] = field(default_factory=list)
    opening: Opening | None = None
    openings: set[Opening] = field(default_factory=set)
    trails: dict[Opening, set[tuple[Told, ...]]] = field(default_factory=lambda: defaultdict(set))
    """What it had said and heard at each moment."""
    is_asking: bool = False
    extra: str = ""
    """What it says with its newest question; again, where it asks again."""
    mixed: list[str] = field(default_factory=list)

    @property
    def sender(self) -> Sender:
        """Who it says it is."""
        return Sender("gateway", self.session, model="m")

    def preamble(self, store: Store) -> Blob:
        """Return what it is sent with."""
        told_with = {"system": [{"role": "system", "content": self.prompt}], "tools": None}
        return blob(store.tenant, encoded(told_with))

    # -- what it does --------------------------------------------------------------------------------------------------

    def next_step(self, rng: random.Random) -> Step:
        """Choose what to do next."""
        chance, last = rng.random(), self.history[-1] if self.history else None
        if self.is_asking:
            if self.kind == "wild" and self.how == "whole" and chance < 0.05:
                return Step(self.name, "compact", (rng.randrange(4), rng.randrange(6)))
            if self.kind != "plain" and chance < 0.2:
                return Step(self.name, "fail", (rng.choice(("cancelled", "failed")), rng.randrange(len(REPLIES) + 1)))
            return Step(self.name, "answer", (rng.choice((0, 0, 0, 1, 2, 3, 4)), rng.randrange(3)))
        word = 0 if last is None else rng.randrange(len(WORDS))
        extra = rng.choice(("", "", "", "reminder", "listing")) if self.kind == "adding" else ""
        if last is None:
            return Step(self.name, "say", (word, extra))
        if last["role"] != "assistant":  # there was no answer
            if chance < 0.7 or self.kind != "wild":
                return Step(self.name, "retry")
            return Step(self.name, "edit", (rng.randrange(9), word))
        if calls_of(last):
            return Step(self.name, "look", (rng.randrange(2),))
        if self.kind == "plain":
            return Step(self.name, "say", (word, extra))
        verbs = ("rename", "reprompt", "clear", "rewind", "edit", "repeat")[: 6 if self.kind == "wild" else 2]
        if chance < 0.05 * len(verbs):
            verb = verbs[int(chance / 0.05)]
            return Step(self.name, verb, () if verb == "repeat" else (rng.randrange(9), word))
        return Step(self.name, "say", (word, extra))

    def do(self, step: Step) -> None:
        """Do it in both stores."""
        self.log.append(step)
        getattr(self, f"_{step.verb}")(*step.values)
        said = tuple(all_told(self.history))
        if self.opening is not None:
            self.trails[self.opening].add(said)

    def _say(self, number: int, extra: str = "") -> None:
        if self.is_asking or (self.history and calls_of(self.history[-1])):
            return
        if not self.history or self.history[-1]["role"] == "assistant":  # else there was no answer, and it asks again
            self.history.append(user(WORDS[number]))
            self.extra = extra
        self._ask()

    def _look(self, number: int) -> None:
        if not self.is_asking and self.history and calls_of(self.history[-1]):
            self.history.append(result_of(number, self.history[-1]))
            self.extra = ""
            self._ask()

    def _retry(self) -> None:
        if not self.is_asking and self.history and self.history[-1]["role"] != "assistant":
            self._ask()

    def _repeat(self) -> None:
        if not self.is_asking and self.history and self.history[-1]["role"] == "assistant":
            self.history = self.history[: len(self.history) - 1]
            self._ask()

    def _rewind(self, place: int, number: int) -> None:
        ends = [at for at, one in enumerate(self.history, 1) if one["role"] == "assistant" and not calls_of(one)]
        if not self.is_asking and ends:
            self.history = self.history[: ends[place % len(ends)]]
            self._say(number)

    def _edit(self, place: int, number: int) -> None:
        ends = [at for at, one in enumerate(self.history) if one["role"] == "user"]
        if not self.is_asking and ends:
            self.history = self.history[: ends[place % len(ends)]]
            self._say(number)

    def _clear(self, _place: int, number: int) -> None:
        if not self.is_asking and self.history and self.history[-1]["role"] == "assistant":
            results = [at for at, one in enumerate(self.history) if one["role"] == "tool"]
            self.history = [
                {**one, "content": CLEARED} if at in results else one for at, one in enumerate(self.history)
            ]
            self._say(number)

    def _rename(self, _place: int, number: int) -> None:
        if not self.is_asking:
            self.session = f"{self.name} {len(self.log)}"
            self._say(number)

    def _reprompt(self, _place: int, number: int) -> None:
        if not self.is_asking:
            self.prompt = f"{self.prompt} It is later."
            self._say(number)

    def _compact(self, first: int, count: int) -> None:
        if self.is_asking:
            for server in self.servers:
                server.compact(first, count)

    def _ask(self) -> None:
        self._open()
        sent, extra = list(self.history), self.extra
        if extra == "reminder" and sent[-1]["role"] == "user":
            sent[-1] = user(sent[-1]["content"] + REMINDER)
        if extra == "listing":
            sent.insert(len(sent) - 1, user(LISTING))
        for server in self.servers:
            server.ask(self, sent, self.how)
        self.is_asking = True
        self._note()

    def _open(self) -> None:
        """Say which opening the history has: it is settled with the first repeated reply."""
        place = next((at for at, one in enumerate(self.history) if one["role"] == "assistant"), None)
        words = tuple(all_told(self.history[:1]))
        if place is None or self.opening is None:
            self.opening = Opening(self.session, self.prompt, words)
            self.openings.add(self.opening)

    def _note(self) -> None:
        assert self.opening is not None
        for server in self.servers:
            wrong = server.note(self.opening, self.openings)
            if wrong is not None:
                self.mixed.append(wrong)

    def _answer(self, number: int, shape: int) -> None:
        if self.is_asking:
            assert self.opening is not None
            reply = reply_of(number, f"call-{zlib.crc32(self.opening.prompt.encode())}")  # no provider uses one twice
            self._end(reply, "done")
            self.history.append(_echo(reply, shape))

    def _fail(self, status: str, number: int) -> None:
        if self.is_asking:
            partial = None if number == len(REPLIES) else {"role": "assistant", "content": REPLIES[number][:5]}
            self._end(partial, status)

    def _end(self, reply: Message | None, status: Any) -> None:
        cost = price_of(all_told(self.history), None if reply is None else told(reply))
        usage = {"input_tokens": cost % 7, "output_tokens": 1}
        for server in self.servers:
            server.end(self, FinishedTurn(reply, usage=usage, cost=cost / 1e6, status=status))
        self.is_asking = False
        self._note()

    def restart(self, stores: Sequence[Store]) -> None:
        """Go on with a gateway that has forgotten what it had in memory."""
        for server, store in zip(self.servers, stores, strict=True):
            server.store, server.line, server.turn, server.waiting = store, None, None, None
        self.is_asking = False

    @property
    def is_old(self) -> bool:
        """Whether it has said enough."""
        return len(self.history) >= LONGEST or len(self.log) > 2 * LONGEST

    # -- what must hold ------------------------------------------------------------------------------------------------

    @property
    def has_changed(self) -> bool:
        """Whether it has another name or system prompt than it began with."""
        return self.opening is not None and (self.session, self.prompt) != self.opening[:2]

    @property
    def said(self) -> tuple[Told, ...]:
        """What it has said and heard."""
        return tuple(all_told(self.history))

    def is_told_apart_from(self, other: Client) -> bool:
        """Return whether something tells its present conversation from all of another client's."""
        if self.opening is None:
            return True
        theirs = other.trails.get(self.opening, set())
        tips = {one for one in theirs if not any(len(more) > len(one) and more[: len(one)] == one for more in theirs)}
        mine = self.said
        return not any(one[: len(mine)] == mine for one in theirs) and not any(mine[: len(one)] == one for one in tips)

    def problems(self, others: Iterable[Client]) -> Iterator[str]:
        """Yield what differs from the same conversation alone in a store, as far as it must not."""
        yield from (f"{self.name}: {wrong}" for wrong in self.mixed)
        if self.opening is None or any(server.session is None for server in self.servers) or self._is_ahead:
            return
        rivals = [one for one in others if one is not self and self.opening in one.openings]
        shared, alone = (self._state(server) for server in self.servers)
        if rivals and self._has_cleared:
            return  # of a fork that clears what stands before it, the store does not know that it goes on
        if all(self.is_told_apart_from(one) for one in rivals):
            if rivals and not all(one.kind == "plain" for one in (self, *rivals)):
                # Who of them broke off, asked again or went back in what they shared cannot be known.
                shared, alone = ({"whole": _whole(one["export"]), "title": one["title"]} for one in (shared, alone))
            elif len(rivals) > 1:  # nor who of two that go on together was the third one, which came later
                for one in (shared, alone):
                    one.update(cost=0, api_calls=0, tokens=0)
            yield from _differences(self.name, shared, alone)
        else:
            words = _whole(shared["export"])
            if tuple(words[: len(self.said)]) != self.said:
                yield f"{self.name}: said {self.said!r}, and its conversation is {words!r}"

    @property
    def _is_ahead(self) -> bool:
        """Whether something was said that is stored with its turn only."""
        return any(server.waiting is not None for server in self.servers) or (
            not self.is_asking and bool(self.history) and self.history[-1]["role"] != "assistant"
        )

    @property
    def has_ever_cleared(self) -> bool:
        """Whether it has cleared old results."""
        return any(step.verb == "clear" for step in self.log)

    @property
    def _has_cleared(self) -> bool:
        return any(one.get("content") == CLEARED for one in self.history)

    def _state(self, server: _Server) -> dict[str, Any]:
        assert server.session is not None
        ident, store = server.session, server.store
        found = store.sessions.resume(ident)
        context = [] if found.branch is None else store.context(store.branch(found.branch, found.to_depth))
        return {
            **figures(store, ident),
            "export": exported(store, ident),
            "system prompt": [one["content"] for one in context if one["role"] == "system"],
            "context": all_told(context),
        }


def _whole(export: list[Told | str]) -> list[Told]:
    return [one for one in export if isinstance(one, Told) and one.status is None]


def _echo(reply: Message, shape: int) -> Message:
    """Return a reply as clients send it back."""
    if shape == 0:
        return reply
    text = str(reply["content"]).strip()
    return {**reply, "content": [{"type": "text", "text": text}] if shape == 1 else text}


# -- all of them -------------------------------------------------------------------------------------------------------

KINDS: tuple[tuple[str, str, str, str | None, str], ...] = (
    ("agent", "", PROMPTS[0], None, ""),
    ("agent", "", PROMPTS[1], None, ""),
    ("agent", "", PROMPTS[0], None, ""),
    ("plain", "plain", "You are plain.", None, "whole"),
    ("plain", "plain", "You are plain.", None, "begin"),
    ("plain", "plain", "You are plain.", None, "follow"),
    ("wild", "wild", PROMPTS[0], None, "whole"),
    ("wild", "wild", PROMPTS[0], None, "begin"),
    ("wild", "wild", PROMPTS[0], None, "follow"),
    ("named", "wild", PROMPTS[0], "own", "whole"),
    ("named", "wild", PROMPTS[0], "own", "follow"),
    ("prompted", "wild", "own", None, "whole"),
    ("prompted", "wild", "own", None, "begin"),
    ("prompted", "wild", "own", None, "follow"),
    ("adding", "adding", "own", None, "whole"),
    ("adding", "adding", "own", None, "begin"),
    ("adding", "adding", "own", None, "follow"),
    ("two", "plain", "two", None, "whole"),
    ("two", "plain", "two", None, "follow"),
)
"""Who lives here: a name, what it does, its system prompt, its session, and how its turns are stored."""


class World:
    """Agents and clients in one store.

    Args:
        open_store: opens the database anew, for a tenant.
        tenant: the tenant that all share; each actor has one of its own besides.
    """

    def __init__(self, open_store: Callable[[str], Store], tenant: str) -> None:
        self._open, self._tenant = open_store, tenant
        self.actors: dict[str, Agent | Client] = {}
        self.steps: list[Step] = []
        self._database = open_store(tenant).database
        self._known: dict[str, Opening] = {}

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def _stores(self, name: str) -> tuple[Store, Store]:
        return Store(self._database, self._tenant), Store(self._database, f"{self._tenant} {name}")

    def actor(self, name: str) -> Agent | Client:
        """Return an actor by its name, which says what it is; it comes when it is first asked for."""
        if name not in self.actors:
            kind = KINDS[int(name.split()[1])]
            shared, alone = self._stores(name)
            if kind[0] == "agent":
                self.actors[name] = Agent(name, kind[2], [_Host(shared), _Host(alone)])
            else:
                own = {"own": f"I am {name}.", "two": f"We are two, {name.split()[2]}."}
                prompt, session = (own.get(one or "", one) for one in kind[2:4])
                servers = [_Server(shared, known=self._known), _Server(alone)]
                self.actors[name] = Client(name, kind[1], str(prompt), session, servers, kind[4])
        return self.actors[name]

    def go_on(self, rng: random.Random, steps: int, every: int = 10) -> list[str]:
        """Let so many things happen; the first problems."""
        present = {place: f"{KINDS[place][0]} {place} 0" for place in range(len(KINDS))}
        for number in range(1, steps + 1):
            place = rng.randrange(len(KINDS))
            actor = self.actor(present[place])
            if rng.random() < 0.01:
                step = Step("", "restart")
            else:
                if actor.is_old:
                    present[place] = f"{KINDS[place][0]} {place} {int(actor.name.split()[2]) + 1}"
                    actor = self.actor(present[place])
                step = actor.next_step(rng)
            self.do(step)
            problems = list(self.problems(set(present.values()))) if number % every == 0 else []
            if problems:
                return problems
        return list(self.problems())

    def do(self, step: Step) -> None:
        """Have one thing done."""
        self.steps.append(step)
        if step.verb == "restart":
            self.close()
            self._database = self._open(self._tenant).database
            for name, actor in self.actors.items():
                actor.restart(self._stores(name))
        else:
            actor = self.actor(step.actor)
            if isinstance(actor, Client) and self._is_hidden_by(step, actor):
                step = Step(step.actor, "say", (step.values[-1] if step.values else 0, ""))
            actor.do(step)

    def _is_hidden_by(self, step: Step, client: Client) -> bool:
        """Return whether nobody could know who a client is after a step: under a new name or with a new prompt."""
        if step.verb in ("rename", "reprompt"):
            return self._is_like_others(client)
        return step.verb in ("rewind", "edit", "repeat") and client.has_changed

    def _is_like_others(self, client: Client) -> bool:
        """Return whether another client began alike, or has said and heard the same with whatever system prompt."""
        others = [one for one in self.actors.values() if isinstance(one, Client) and one is not client]
        if not client.history or any(client.opening in one.openings for one in others):
            return True
        trails = (trail for one in others for some in one.trails.values() for trail in some)
        return any(trail[: len(client.said)] == client.said for trail in trails)

    # -- what must hold ------------------------------------------------------------------------------------------------

    def problems(self, names: set[str] | None = None) -> Iterator[str]:
        """Yield what is wrong, with some actors or with all."""
        clients = [one for one in self.actors.values() if isinstance(one, Client)]
        for name, actor in self.actors.items():
            if names is None or name in names:
                yield from actor.problems() if isinstance(actor, Agent) else actor.problems(clients)
        yield from self._wrong_sums(clients)

    def _wrong_sums(self, clients: list[Client]) -> Iterator[str]:
        """Yield openings whose conversations have other sums together than alone."""
        shared = self._sums([one.servers[0] for one in clients])
        alone = self._sums([one.servers[1] for one in clients])
        for opening in {*shared, *alone}:
            ours, theirs = shared.get(opening, Counter()), alone.get(opening, Counter())
            more = ours.pop("conversations", 0) - theirs.pop("conversations", 0)
            if ours != theirs:
                yield f"{opening}: together {dict(ours)}, alone {dict(theirs)}"
            if more > 0 and not any(opening in one.openings and one.has_ever_cleared for one in clients):
                yield f"{opening}: {more} more conversations than alone"

    def _sums(self, servers: Sequence[_Server]) -> dict[Opening, Counter[str]]:
        openings = {ident: opening for server in servers for ident, opening in server.known.items()}
        columns = sessions.c.conversation, sessions.c.cost, sessions.c.api_calls, sessions.c.output_tokens
        tenants = {server.store.tenant for server in servers}
        found: dict[Opening, Counter[str]] = defaultdict(Counter)
        seen: set[str] = set()
        with self._database.read() as connection:
            rows = connection.execute(select(*columns).where(sessions.c.tenant.in_(tenants))).all()
        for row in rows:
            opening = openings.get(row.conversation)
            if opening is None:
                continue  # an agent's
            sums = found[opening]
            sums["cost"] += round(row.cost * 1e6)
            sums["calls"] += row.api_calls
            sums["tokens"] += row.output_tokens
            sums["conversations"] += row.conversation not in seen
            seen.add(row.conversation)
        return found
