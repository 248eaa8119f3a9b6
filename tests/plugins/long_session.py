"""One half of a long session with a plugged-in engine, run as a program of its own so that it can be restarted.

Prints what happened as JSON. Arguments: the store, the engine's name, the first turn, the number of turns, and the
session to go on with, if any.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from everlong.agent import AgentEvent, AgentOptions, CompactionFinished, Notice, approve_everything, open_agent
from everlong.config import Settings
from everlong.providers import RetryPolicy, connect
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.waiting import PATIENCE

WINDOW = 8_000
MODEL = "custom-model"
FILLER = "The pilot boat reports wind from the west and a swell of two metres at the outer buoy. "


def talker(ask: Ask) -> str | Answer:
    """Answers at length; asks for the engine's own tool where the user wants its size."""
    if ask.last_user.startswith("How long") and ask.turns[-1].role != "tool":
        return Answer("", calls=[Call("log_size", {})])
    return f"Noted. {FILLER * 6}"


def main(path: str, engine: str, first: int, turns: int, resume: str | None) -> dict[str, Any]:
    """Talk; what happened."""
    heard: list[AgentEvent] = []
    settings = Settings.model_validate(
        {
            "context": {"engine": engine},
            "models": {MODEL: {"context_length": WINDOW}},
            "auxiliary": {"compression": {"provider": "main"}},
            "memory": {"enabled": False},
        }
    )
    with ModelServer(talker, window=WINDOW) as server, Store.open(path) as store:
        policy = RetryPolicy(attempts=2, first_delay=0.0, longest_delay=0.0)
        connection = connect(
            MODEL, settings, base_url=server.openai_url, api_key="made-up", policy=policy, timeout=PATIENCE
        )
        options = AgentOptions(root=Path.cwd(), approver=approve_everything, resume=resume, log_folder=None)
        agent = open_agent(settings, connection, options, store=store, listen=heard.append)
        stops = {agent.run(f"Entry {number}: {FILLER * 5}").stop for number in range(first, first + turns)}
        told = agent.run("How long is the log?").text if agent.tools.toolbox.get("log_size") else ""
        facts = {
            "engine": agent.engine.name,
            "session": agent.conversation.session_id,
            "messages": len(agent.conversation.messages),
            "stops": sorted(stops),
            "told": told,
            "outcomes": [one.outcome for one in heard if isinstance(one, CompactionFinished)],
            "fallbacks": [one.fallback for one in heard if isinstance(one, CompactionFinished) if one.fallback],
            "notices": [one.text for one in heard if isinstance(one, Notice)],
            "rejections": [str(one) for one in server.rejections],
            "largest": max(record.prompt_tokens for record in server.requests),
            "last": str(agent.conversation.messages[:3]),
        }
        agent.end()
        agent.close()
        facts["problems"] = len(store.verify().problems)
    return facts


if __name__ == "__main__":
    _, path, engine, first, turns, *rest = sys.argv
    print(json.dumps(main(path, engine, int(first), int(turns), rest[0] if rest else None)))  # noqa: T201
