"""The import of the logs of all clients, as a person runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from everlong.store import Store
from everlong.store.identity import Sender, StatelessRequest
from everlong.store.turns import FinishedTurn
from tests.archive import samples
from tests.cli.conftest import Run, run

__all__ = ["run"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home with logs of Claude Code and Codex, and nothing archived."""
    house = tmp_path / "home"
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(house))
    monkeypatch.setenv("EVERLONG_HOME", str(house / "everlong"))
    monkeypatch.chdir(tmp_path)
    log = house / ".claude" / "projects" / "-srv-harbour" / "5a991f5d.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text(samples.claude_log().text())
    rollout = house / ".codex" / "sessions" / "2026" / "09" / "02" / "rollout-1.jsonl"
    rollout.parent.mkdir(parents=True)
    rollout.write_text(samples.codex_rollout())
    for path in (log, rollout):
        os.utime(path, (1_790_000_000, 1_790_000_000))  # their clients have ended long ago
    return house


def test_one_run_archives_every_client_and_the_next_reads_nothing(run: Run, home: Path) -> None:
    first = run("sessions", "import", "--json")
    assert (first.code, first.json["new"], first.json["files"]) == (0, 2, 2)
    assert {one["client"] for one in run("sessions", "list", "--json").json} == {"claude-code", "codex"}
    again = run("sessions", "import", "--json").json
    assert (again["files"], again["new"]) == (0, 0)
    found = run("sessions", "search", "crane", "--json").json["hits"]
    assert found[0]["title"] == "Berths and cranes"
    assert (home / "everlong" / "store.db").exists()


def test_usage_counts_what_archived_logs_tell(run: Run, home: Path) -> None:
    run("sessions", "import")
    logged = run("usage", "--json").json["total"]
    listed = run("sessions", "list", "--json").json
    assert logged["calls"] == sum(one["api_calls"] for one in listed) > 0
    assert logged["tokens"]["output_tokens"] == sum(one["output_tokens"] for one in listed) > 0
    assert [one["cost"] > 0 for one in listed] == [True, True]
    assert float(logged["cost"]) == pytest.approx(sum(one["cost"] for one in listed))
    assert home.exists()


def test_a_folder_is_read_so_that_sub_agents_find_those_they_work_for(run: Run, home: Path) -> None:
    folder = home / "projects"
    session = samples.claude_log()
    (folder / "a-session" / "subagents").mkdir(parents=True)
    (folder / "b-session.jsonl").write_text(session.text())
    inner = samples.ClaudeLog(agent="a1").ask("Count the cranes.").say("Three.").text()
    (folder / "a-session" / "subagents" / "agent-a1.jsonl").write_text(inner)
    assert run("sessions", "import", str(folder)).code == 0
    (agent,) = run("sessions", "list", "--side", "--json").json
    (main,) = run("sessions", "list", "--json").json
    assert agent["works_for"] == main["id"]


def through_the_gateway(store: Store, messages: list[dict[str, object]], name: str | None) -> str:
    """Store a conversation as the gateway does, request by request."""
    session = ""
    for count in range(1, len(messages), 2):
        sender = Sender(client="claude-code", session=name, folder="/srv/harbour", model="m", platform="gateway")
        asked = StatelessRequest(messages[:count], store.chain.trace(messages[:count]), sender)
        placed = store.identity.place(asked)
        session = placed.session
        store.turns.add_finished(placed.at, FinishedTurn(messages[count], session=session))
    return session


def test_a_conversation_of_the_gateway_appears_once(tmp_path: Path) -> None:
    talk: list[dict[str, object]] = [
        {"role": "user", "content": "Which berth is free?"},
        {"role": "assistant", "content": "The south berth."},
        {"role": "user", "content": "Thanks."},
        {"role": "assistant", "content": "Gladly."},
    ]
    log = samples.ClaudeLog("named").ask("Which berth is free?").say("The south berth.").ask("Thanks.").say("Gladly.")
    path = tmp_path / "named.jsonl"
    for number, name in enumerate(["named/", None]):
        with Store.open(tmp_path / f"{number}.db") as store:
            session = through_the_gateway(store, talk, name)
            path.write_text(log.text())
            found = samples.OwnLogs(store).add(path)
            assert found is not None
            assert (dict(found.outcomes), [one.id for one in store.conversations.newest()]) == ({"known": 1}, [session])
            log_on = samples.ClaudeLog("named")
            log_on.entries, log_on.parent, log_on.replies = list(log.entries), log.parent, log.replies
            for entry in log_on.ask("And at noon?").say("The north berth.").entries:
                entry["timestamp"] = "2099-01-01T00:00:00Z"
            path.write_text(log_on.text())
            samples.OwnLogs(store).add(path)
            assert [one.messages for one in store.conversations.newest()] == [6]
            assert store.verify().problems == []


REPLY: dict[str, object] = {"role": "assistant", "content": "The south berth."}


def test_a_reply_that_the_gateway_has_after_other_words_is_not_added_again(tmp_path: Path) -> None:
    path = tmp_path / "named.jsonl"
    path.write_text(samples.ClaudeLog("named").ask("Which berth is free?").say("The south berth.").text())
    with Store.open(tmp_path / "store.db") as store:
        wrapped: dict[str, object] = {"role": "user", "content": "Which berth is free? Answer in one line."}
        session = through_the_gateway(store, [wrapped, REPLY], "named/")
        for _ in range(2):
            samples.OwnLogs(store).add(path)
            assert [(one.id, one.messages) for one in store.conversations.newest()] == [(session, 2)]
        assert store.verify().problems == []


def test_a_log_without_a_title_has_the_same_one_on_every_screen(run: Run, home: Path) -> None:
    log = home / ".claude" / "projects" / "-srv-harbour" / "6b.jsonl"
    asked = samples.ClaudeLog().ask("Which crane is __free__?").say("The north crane.")
    log.write_text(asked.text())
    run("sessions", "import")
    assert "Which crane is __free__?" in [one["title"] for one in run("sessions", "list", "--json").json]
    log.write_text(asked.note(type="ai-title", aiTitle="The crane").text())
    run("sessions", "import")
    titles = [one["title"] for one in run("sessions", "list", "--json").json]
    assert ("The crane" in titles, len(titles)) == (True, 3)
