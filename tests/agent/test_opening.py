"""What an agent is made of: prompt, instructions, prices, routing, and errors that say what to do."""

from __future__ import annotations

import json
from pathlib import Path

from everlong.agent.events import AgentEvent, Notice
from everlong.agent.opening import project_instructions
from everlong.store import Store
from everlong.store.imports import Importer, ImportOrigin
from everlong.testing.server import Answer, Call
from everlong.wire.transcript import TranscriptConversation
from tests.agent.conftest import Opened
from tests.testing_server.conftest import Serve


def test_the_projects_own_instructions_are_in_the_prompt_once_and_within_their_budget(tmp_path: Path) -> None:
    assert project_instructions(tmp_path, 1_000) == ""
    (tmp_path / "AGENTS.md").write_text("Write tests first.\n")
    (tmp_path / "CLAUDE.md").write_text("Write tests first.\n")
    told = project_instructions(tmp_path, 1_000)
    assert told.count("Write tests first.") == 1
    assert "AGENTS.md" in told
    (tmp_path / "CLAUDE.md").write_text("".join(f"Rule {number}: be careful.\n" for number in range(5_000)))
    long = project_instructions(tmp_path, 200)
    assert "Rule 3:" in long
    assert "Rule 400:" not in long
    assert "The rest of CLAUDE.md does not fit" in long
    assert project_instructions(tmp_path, 0) == ""


def test_the_prompt_of_a_session_stays_when_files_change(serve: Serve, opened: Opened, root: Path) -> None:
    server = serve("Fine.")
    (root / "AGENTS.md").write_text("Use tabs.")
    agent = opened(server, trusts_root=True)
    agent.run("One.")
    (root / "AGENTS.md").write_text("Use spaces.")
    agent.run("Two.")
    again = opened(server, trusts_root=True, resume=agent.conversation.session_id)
    again.run("Three.")
    assert len({ask.system for ask in server.model.asked}) == 1
    assert "Use tabs." in server.model.asked[-1].system


def test_a_file_that_instructions_name_follows_them_if_it_is_in_the_repository(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("Outside.")
    top = tmp_path / "harbour"
    (top / "docs").mkdir(parents=True)
    (top / "CLAUDE.md").write_text("See @docs/style.md, @../secret.md, mira@docs/mail.md and `@docs/code.md`.")
    (top / "docs" / "style.md").write_text("Two spaces. @more.md @style.md @../CLAUDE.md")
    for name in ("more", "mail", "code"):
        (top / "docs" / f"{name}.md").write_text(f"These are {name} words.")
    told = project_instructions(top, 1_000)
    assert told.index("Two spaces.") < told.index("These are more words.")
    assert told.count("Two spaces.") == 1
    for left_out in ("Outside.", "mail words", "code words"):
        assert left_out not in told


def test_a_summary_model_without_a_key_keeps_no_conversation_from_starting(serve: Serve, opened: Opened) -> None:
    agent = opened(serve("Fine."), settings={"auxiliary": {"compression": {"provider": "nous"}}})
    assert agent.run("Hello?").text == "Fine."


def test_notes_of_one_conversation_are_in_the_prompt_of_the_next_in_the_same_process(
    serve: Serve, opened: Opened
) -> None:
    note = Call("memory_add", {"text": "Berths at pier 9."})
    server = serve(lambda ask: Answer("Noted.") if ask.results else Answer("", [note]))
    agent = opened(server, settings={"memory": {"enabled": True}})
    agent.run("My berth is at pier 9; keep that.")
    agent.reset()
    agent.run("Where is my berth?")
    before, after = (json.dumps(server.requests[number].body["system"]) for number in (0, -1))
    assert "pier 9" not in before
    assert "pier 9" in after


def test_who_goes_on_with_a_conversation_that_a_folder_brought_along_is_told_so(
    serve: Serve, opened: Opened, store: Store, heard: list[AgentEvent], tmp_path: Path
) -> None:
    said = TranscriptConversation(
        [{"role": "user", "content": "Always push."}, {"role": "assistant", "content": "Yes."}]
    )
    found = Importer(store).add(said, ImportOrigin("chat.jsonl", 1.0, found_in=str(tmp_path), is_apart=True))
    opened(serve("Fine."), resume=found.session)
    assert [one for one in heard if isinstance(one, Notice) and f'found in "{tmp_path}", not from the user' in one.text]
