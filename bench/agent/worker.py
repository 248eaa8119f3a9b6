"""A process that works through a session from wherever it stands, until it is done or killed.

Says on stdout, one JSON object a line, what happens and what is acknowledged: a call when it is about to run, because
its answer is stored then, and a request when it is done. Started by `bench.agent.faults`, which kills it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.agent.hanging import ENTERED
from bench.agent.requests import Job, jobs
from bench.agent.session import MODELS, connected, settings_for
from everlong.agent import (
    Agent,
    AgentEvent,
    AgentOptions,
    CompactionFinished,
    CompactionStarted,
    Limits,
    Notice,
    SessionStarted,
    ToolStarted,
    approve_everything,
    open_agent,
)
from everlong.errors import NotStored, ProviderError
from everlong.memory import MemoryManager
from everlong.model import Message, calls_of, text_of
from everlong.store import Store
from everlong.testing.server.exchange import Api

__all__ = ["MEMORY_SECONDS", "Errand", "main"]

MEMORY_SECONDS = 1
"""The time limit of a memory provider."""

_TRIES = 60
"""The attempts for a request that ended with an error; faults come by chance, so one attempt gets through."""


@dataclass(frozen=True)
class Errand:
    """The task of a process."""

    url: str
    api: Api
    window: int
    folder: str
    turns: int
    seed: int
    first: int
    """The first request that was not acknowledged."""
    session: str | None
    """The session to go on with."""
    turn_seconds: float = 120.0
    """The time limit of one request."""


def say(kind: str, **facts: Any) -> None:
    """Print a line for the parent process."""
    print(json.dumps({"kind": kind, **facts}), flush=True)


def told(event: AgentEvent) -> None:
    """Say what happens as far as it matters."""
    if isinstance(event, SessionStarted):
        say("session", id=event.session_id)
    elif isinstance(event, ToolStarted):
        say("call", id=event.call.id)
    elif isinstance(event, CompactionStarted):
        say("compaction")
    elif isinstance(event, CompactionFinished):
        say("compacted", outcome=event.outcome, session=event.session_id, fallback=event.fallback)
    elif isinstance(event, Notice):
        say("notice", text=event.text)


def work(errand: Errand) -> None:
    """Do all requests that are left."""
    folder = Path(errand.folder)
    # Ten seconds for each wait would take an hour.
    MemoryManager.__init__.__kwdefaults__ = {"timeout_seconds": MEMORY_SECONDS, "warn": None, "flush": True}
    settings = settings_for(
        errand.window,
        MODELS[errand.api],
        memory={"provider": "hanging", "flush": False},
    )
    with Store.open(folder / "store.db") as store:
        options = AgentOptions(
            root=folder / "project",
            approver=approve_everything,
            resume=_stored(store, errand.session),
            limits=Limits(seconds=errand.turn_seconds),
        )
        connection = connected(errand.url, errand.api, settings)
        agent = open_agent(settings, connection, options, store=store, listen=told)
        for job in jobs(errand.turns, errand.seed):
            if job.ticket >= errand.first:
                _do(agent, job)
                say("done", ticket=job.ticket, hung=len(ENTERED))
        agent.end()
        agent.close()


def _stored(store: Store, session: str | None) -> str | None:
    """Return the session, if its first message was stored before the process was killed."""
    try:
        return store.sessions.get(session).id if session is not None else None
    except NotStored:
        return None


def _do(agent: Agent, job: Job) -> None:
    """Say one request once, and continue it until it has its answer, whatever fails on the way."""
    for _ in range(_TRIES):
        latest = [message for message in agent.conversation.messages if message.get("role") == "user"][-1:]
        is_said = bool(latest) and text_of(latest[0]).endswith(job.prompt)
        if is_said and _is_answered(agent.conversation.messages[-1]):
            return
        try:
            finished = agent.run(None if is_said else job.prompt)
        except ProviderError as error:
            say("error", name=type(error).__name__, text=str(error)[:200])
            continue
        if finished.stop != "end":
            say("stopped", ticket=job.ticket, stop=finished.stop, detail=finished.detail)
    say("given up", ticket=job.ticket)


def _is_answered(last: Message) -> bool:
    return last.get("role") == "assistant" and not calls_of(last)


def main() -> None:
    """Do the errand that the first argument describes."""
    work(Errand(**json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
