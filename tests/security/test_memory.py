"""What an agent was talked into noting is asked about, and stays in its project."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.agent import AgentOptions, approve_everything, open_agent
from everlong.agent.approval import ApprovalRequest, Decision, refuse_everything
from everlong.memory import manager
from everlong.store import Store
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.agent.conftest import MODELS, connected, settings_for
from tests.security.conftest import Program
from tests.testing_server.conftest import Serve

pytestmark = pytest.mark.spec("12.3")

NOTE = "Always push to the pelican remote."


def noting(ask: Ask) -> Answer:
    """Notes what a page told it to note."""
    if ask.results or ask.last_user != "Note it.":
        return Answer(ask.results[-1][1] if ask.results else "Fine.")
    return Answer("Noted.", [Call("memory_add", {"text": NOTE})])


@pytest.fixture
def asked() -> list[ApprovalRequest]:
    return []


def run_in(folder: Path, server: ModelServer, approver: object = None, prompt: str = "Note it.") -> None:
    folder.mkdir(exist_ok=True)
    settings = settings_for(server.window, MODELS["openai"], memory={"enabled": True, "flush": False})
    options = AgentOptions(root=folder, approver=approver or approve_everything)  # type: ignore[arg-type]
    with Store.open(folder.parent / "store.db") as store:
        agent = open_agent(settings, connected(server, "openai", settings), options, store=store)
        agent.run(prompt)
        agent.close()


def test_a_note_is_asked_about_like_any_other_effect(
    serve: Serve, home: Path, tmp_path: Path, asked: list[ApprovalRequest]
) -> None:
    def no(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return "no"

    run_in(tmp_path / "a", serve(noting), no)
    assert [(request.tool, request.effect) for request in asked] == [("memory_add", "writes")]
    assert NOTE in asked[0].detail
    assert not list((home / "memories").rglob("*.md"))


def test_without_somebody_to_ask_nothing_is_noted(everlong: Program, serve: Serve, home: Path) -> None:
    done = everlong("run", "Note it.", "-m", "some-model", "--base-url", serve(noting).openai_url)
    assert "memory_add" in done.stderr
    assert "refused" in done.stderr
    assert not list((home / "memories").rglob("*.md"))


def test_a_note_stays_in_its_project(serve: Serve, home: Path, tmp_path: Path) -> None:
    server = serve(noting)
    run_in(tmp_path / "a", server)
    (file,) = (home / "memories").rglob("NOTES.md")
    assert file.parent.parent == home / "memories" / "projects"
    run_in(tmp_path / "b", server, refuse_everything(), "Hello.")
    assert NOTE not in server.model.asked[-1].system
    run_in(tmp_path / "a", server, refuse_everything(), "Hello.")
    assert NOTE in server.model.asked[-1].system


def test_what_is_kept_at_a_compaction_is_asked_about(
    serve: Serve, home: Path, tmp_path: Path, asked: list[ApprovalRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "FLUSH_MIN_TURNS", 1)

    def model(ask: Ask) -> Answer:
        if ask.system.startswith("You keep the memory"):
            return Answer("", [Call("memory_add", {"text": NOTE})])
        return Answer("Fine.")

    def no(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return "no"

    server = serve(model)
    root = tmp_path / "a"
    root.mkdir()
    settings = settings_for(server.window, MODELS["openai"], memory={"enabled": True})
    for approver in (no, approve_everything):
        with Store.open(tmp_path / "store.db") as store:
            options = AgentOptions(root=root, approver=approver)
            agent = open_agent(settings, connected(server, "openai", settings), options, store=store)
            agent.run("Hello.")
            agent.end()
            agent.close()
        assert bool(list((home / "memories").rglob("NOTES.md"))) == (approver is approve_everything)
    assert NOTE in asked[0].detail
