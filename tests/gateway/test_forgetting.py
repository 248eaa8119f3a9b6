"""What is forgotten leaves the journal of a gateway that runs, whatever database it has."""

from __future__ import annotations

import json
import uuid

import pytest

from everlong.gateway.journal import JournalEntry
from everlong.store.turns import FinishedTurn
from everlong.testing import ModelServer
from tests.gateway.running import TENANT, Running, run_gateway
from tests.waiting import until

pytestmark = pytest.mark.spec("12.8")

SECRET = "pelican-4711"  # noqa: S105 - made up


def files_of(running: Running) -> str:
    return "".join(path.read_text() for path in running.gateway.journal._folder.iterdir() if path.suffix != ".reserve")


def test_forgotten_words_leave_the_journal(
    model: ModelServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("everlong.gateway.upkeep._REPLAY_SECONDS", 0.05)
    tenant = uuid.uuid4().hex
    with run_gateway(model.url, database_url) as running, running.raw() as raw:
        said = [{"role": "user", "content": f"The vault opens with {SECRET}. " * 9}]
        for words in ("And then?", f"Once more, {SECRET}?", "Good."):
            body = json.dumps({"model": "m", "messages": said}).encode()
            got = raw.ask(body, "/v1/chat/completions", [(TENANT, tenant), ("authorization", "Bearer made-up")])
            reply = got.json()["choices"][0]["message"]["content"]
            said += [{"role": "assistant", "content": reply}, {"role": "user", "content": words}]
        store = running.store(tenant)
        (turn, *_) = store.turns.since()
        aside = JournalEntry(tenant, "openai", FinishedTurn(model="m", began=1.0), messages=[dict(said[0])])
        running.gateway.journal.put_aside(0, aside, "made up")
        assert SECRET in files_of(running)
        found = [entry.id for entry in store.entries(store.branch(turn.branch)) if SECRET in str(entry.message)]
        assert store.forget([one for one in found if one is not None]).messages >= 2
        until(lambda: SECRET not in files_of(running))
