"""Stores as the versions before conversations left them: their rows, written by hand.

What those versions did, in short: a list of messages joined whatever began with the same words; a reply was a column of
its turn, and a message only once it was said again; a gateway's session began with its second request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from everlong.model import HashChain, Message
from everlong.model.identity import Node
from everlong.store.content import blob, encoded
from everlong.store.migrations.earlier import run_steps
from everlong.store.upgrade import BASELINE, backend_for, run_revisions, stamp

TENANT = "local"
LAST = "0006"
TOOLS = [{"type": "function", "function": {"name": "bash"}}]


def user(words: str) -> Message:
    return {"role": "user", "content": words}


def assistant(words: str) -> Message:
    return {"role": "assistant", "content": words}


def create_earlier(connection: Connection, version: str) -> None:
    """Make the schema of an earlier version in an empty database."""
    run_steps(connection, to=version)
    stamp(connection, min(version, BASELINE))
    if version > BASELINE:
        run_revisions(connection, version)


@dataclass(frozen=True)
class At:
    """A place in the tree."""

    branch: int | None
    node: bytes
    depth: int


class OldStore:
    """A database of an older version, into which rows are written as it would have."""

    def __init__(self, url: str | Path, revision: str = LAST) -> None:
        self.chain = HashChain(TENANT)
        self.clock = 1_700_000_000.0
        self._engine = backend_for(url).engine()
        self._connection = self._engine.connect()
        create_earlier(self._connection, revision)

    def __enter__(self) -> OldStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.commit()
        self._connection.close()
        self._engine.dispose()

    @property
    def start(self) -> At:
        return At(None, self.chain.root().id, 0)

    def now(self) -> float:
        self.clock += 10.0
        return self.clock

    def first(self, statement: str, **values: Any) -> Any:
        """Return the first row of a statement."""
        return self._connection.execute(text(statement), values).first()

    def all(self, statement: str) -> Sequence[Any]:
        """Return all rows of a statement."""
        return self._connection.execute(text(statement)).all()

    def write(self, statement: str, **values: Any) -> None:
        """Run a statement."""
        self._connection.execute(text(statement), values)

    def content(self, value: Any) -> bytes:
        made = blob(TENANT, encoded(value))
        self.write(
            "INSERT INTO content (tenant, digest, bytes, codec, state)"
            " VALUES (:tenant, :digest, :bytes, :codec, 'live') ON CONFLICT DO NOTHING",
            **made._asdict(),
            tenant=TENANT,
        )
        return made.digest

    def insert(self, table: str, **values: Any) -> Any:
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join(f":{name}" for name in values)
        key = "" if table in {"session", "pending"} else " RETURNING " + ("seq" if table == "node" else "id")
        done = self._connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks}){key}"), values)  # noqa: S608
        return done.scalar() if key else None

    def update(self, table: str, key: Any, **values: Any) -> None:
        pairs = ", ".join(f"{name} = :{name}" for name in values)
        self.write(f"UPDATE {table} SET {pairs} WHERE id = :key", key=key, **values)  # noqa: S608 - our own names

    def record(self, said: Sequence[Message], *, system: str = "", tools: Any = None, hint: str | None = None) -> At:
        """Store a list from its beginning on: what begins alike is one."""
        sent = {"system": [{"role": "system", "content": system}] if system else [], "tools": tools}
        at = self.start
        for message in said:
            at = self.append(at, message, preamble=sent if system or tools else None, hint=hint)
        return at

    def append(self, at: At, message: Message, *, preamble: Any = None, hint: str | None = None) -> At:
        """Store a message after a place, on a fork where the branch has gone on."""
        node = self.chain.extend(Node(at.node, at.depth), message)
        known = self.first("SELECT branch FROM node WHERE id = :id", id=node.id)
        if known is not None:
            return At(known[0], node.id, node.depth)
        owner = self.first("SELECT branch FROM node WHERE id = :id", id=at.node)
        number = owner[0] if owner is not None else at.branch
        head = None if number is None else self.first("SELECT head, preamble FROM branch WHERE id = :id", id=number)
        if head is None or bytes(head[0]) != at.node:
            held = self.content(preamble) if preamble is not None else None if head is None else head[1]
            number = self.insert(
                "branch",
                tenant=TENANT,
                parent=number,
                fork_depth=at.depth,
                head=at.node,
                head_depth=at.depth,
                epoch=0,
                preamble=held,
                ext_id=hint,
                ts=self.clock,
            )
        seq = self.insert(
            "node",
            id=node.id,
            tenant=TENANT,
            parent=at.node if at.depth else None,
            branch=number,
            depth=node.depth,
            role=message["role"],
            digest=self.content(message),
            ts=self.clock,
        )
        self.insert("pending", seq=seq)
        self.update("branch", number, head=node.id, head_depth=node.depth)
        return At(number, node.id, node.depth)

    def session(self, ident: str, at: At | None = None, **values: Any) -> str:
        """Begin a session, after a place unless it is told otherwise."""
        prompt = values.pop("prompt", None)
        origin = values.pop("origin", None)
        row = {
            "id": ident,
            "tenant": TENANT,
            "branch": at.branch if at is not None else None,
            "from_depth": at.depth if at is not None else 0,
            "source": values.get("platform") or "cli",
            "system_prompt": None if prompt is None else self.content(prompt),
            "origin": None if origin is None else json.dumps(origin),
            "started": self.clock,
            "cost": 0.0,
            **dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"), 0),
            **dict.fromkeys(("reasoning_tokens", "api_calls"), 0),
            **values,
        }
        self.insert("session", **row)
        return ident

    def turn(self, at: At, reply: Message | None = None, session: str | None = None, **values: Any) -> int:
        """Store a request and what became of it; its reply is no message by that."""
        row = {
            "tenant": TENANT,
            "session": session,
            "branch": at.branch,
            "node": at.node,
            "depth": at.depth,
            "model": "m",
            "status": "done",
            "usage": json.dumps({"input_tokens": 5, "output_tokens": 1}),
            "cost": 0.25,
            "reply": None if reply is None else self.content(reply),
            "ts": self.clock,
            "ended": self.clock + 1.0,
            **values,
        }
        held = self.first("SELECT preamble FROM branch WHERE id = :id", id=at.branch)
        number: int = self.insert("turn", **{"preamble": held[0], **row})
        if session is not None:
            self.write(
                "UPDATE session SET api_calls = api_calls + 1, cost = cost + :cost, input_tokens = input_tokens + 5,"
                " output_tokens = output_tokens + 1 WHERE id = :id",
                id=session,
                cost=row["cost"],
            )
        return number

    def agent(self, ident: str, prompt: str = "You help.") -> OldAgent:
        """Begin a conversation of the agent."""
        return OldAgent(self, ident, prompt)

    def gateway(self) -> OldGateway:
        """Serve stateless clients."""
        return OldGateway(self)


class OldAgent:
    """A conversation as the agent kept it."""

    def __init__(self, old: OldStore, ident: str, prompt: str) -> None:
        self.old, self.ident, self.prompt = old, ident, prompt
        self.sessions = [ident]
        self.at: At | None = None

    def say(self, words: str, answer: str) -> OldAgent:
        """Say something and be answered."""
        old = self.old
        old.now()
        self._add(user(words))
        assert self.at is not None
        place = self.at
        old.turn(place, assistant(answer), self.sessions[-1])
        old.now()
        self._add(assistant(answer))
        return self

    def _add(self, message: Message) -> None:
        old, before = self.old, self.at
        if before is None:
            title = f"{message['content']}"
            if old.first("SELECT 1 FROM session WHERE title = :title", title=title):
                title = None  # type: ignore[assignment]
            old.session(self.ident, prompt=self.prompt, title=title)
            self.at = old.record([message], system=self.prompt)
            old.update("session", self.ident, branch=self.at.branch)
        else:
            self.at = old.append(before, message)
            if self.at.branch != before.branch:  # "this conversation was continued elsewhere too"
                self.sessions.append(old.session(f"{self.ident}-{len(self.sessions)}", self.at, prompt=self.prompt))

    def end(self) -> None:
        """End it, where the branch ends by then."""
        assert self.at is not None
        head = self.old.first("SELECT head_depth FROM branch WHERE id = :id", id=self.at.branch)
        values = {"ended": self.old.clock, "end_reason": "exit", "to_depth": head[0]}
        self.old.update("session", self.sessions[-1], **values)

    def resume(self) -> OldAgent:
        """Go on with it as it is shown: where the branch ends."""
        assert self.at is not None
        row = self.old.first("SELECT id, head, head_depth FROM branch WHERE id = :id", id=self.at.branch)
        self.at = At(row[0], bytes(row[1]), row[2])
        return self


class OldGateway:
    """Requests as the gateway stored them: with a session from the second one on."""

    def __init__(self, old: OldStore) -> None:
        self.old = old
        self.sessions: dict[tuple[int | None, str | None], str] = {}

    def ask(self, *words: str, reply: str | None, hint: str | None = None, tools: Any = TOOLS, **values: Any) -> At:
        """Store a request, whose messages are the user's and the assistant's in turn."""
        old = self.old
        old.now()
        said = [user(text) if place % 2 == 0 else assistant(text) for place, text in enumerate(words)]
        at = old.record(said, system="You are a gateway's.", tools=tools, hint=hint)
        session = None
        if len(words) > 1:
            key = (at.branch, hint)
            if key not in self.sessions:
                ident = f"g-{len(self.sessions)}"
                origin = {"client_session": hint} if hint else None
                self.sessions[key] = old.session(ident, at, platform="gateway", origin=origin, from_depth=0)
            session = self.sessions[key]
        old.turn(at, None if reply is None else assistant(reply), session, **values)
        return at
