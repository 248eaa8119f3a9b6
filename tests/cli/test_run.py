"""``everlong run``: the program itself, against a model server on loopback."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from everlong.agent import AgentOptions
from everlong.agent.conversation import AgentConversation, Said
from everlong.cli.local import LocalModel
from everlong.config import Settings
from everlong.plugins.guard import compressors_in
from everlong.store import Store
from everlong.store.opening import open_database
from everlong.testing import Answer, Ask, Call, ModelServer
from tests.cli.conftest import Run
from tests.program import everlong_program
from tests.testing_server.conftest import Serve, serve
from tests.waiting import PATIENCE

__all__ = ["serve"]


def everlong(
    server: ModelServer, folder: Path, *arguments: str, stdin: str | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    env |= {"EVERLONG_HOME": str(folder / "home")}
    command = [*everlong_program(), "run", *arguments]
    address = [*([] if "-m" in arguments else ["-m", "some-model"]), "--base-url", server.openai_url]
    return subprocess.run(
        [*command, *address],
        env=env,
        cwd=cwd or folder,
        input=stdin or "",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def writer(ask: Ask) -> Answer:
    """Writes a file, then says what came of it."""
    if ask.results:
        return Answer(ask.results[-1][1])
    return Answer("Writing.", [Call("write_file", {"path": "out.txt", "content": "seven\n"})])


def test_the_answer_is_on_stdout_and_everything_else_on_stderr(serve: Serve, tmp_path: Path) -> None:
    done = everlong(serve("The harbour opens at seven."), tmp_path, "When does it open?")
    assert (done.returncode, done.stdout) == (0, "The harbour opens at seven.\n")
    assert "💾 Prompt caching: ENABLED (automatic at a local server" in done.stderr
    assert "1 answer, " in done.stderr


def test_without_a_terminal_nothing_is_written_unless_yes_is_said(serve: Serve, tmp_path: Path) -> None:
    refused = everlong(serve(writer), tmp_path, "Write it.")
    assert "--yes" in refused.stdout
    assert not (tmp_path / "out.txt").exists()
    done = everlong(serve(writer), tmp_path, "Write it.", "--yes")
    assert done.returncode == 0
    assert (tmp_path / "out.txt").read_text() == "seven\n"


def test_continue_goes_on_with_the_newest_conversation_of_the_folder_it_is_in(serve: Serve, tmp_path: Path) -> None:
    server = serve(lambda ask: f"{len(ask.turns)} turns.")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    everlong(server, tmp_path, "First.", cwd=here)
    elsewhere = everlong(server, tmp_path, "Second.", "--continue", cwd=there)
    assert elsewhere.returncode == 1
    assert f"there is no session to go on with in {there}" in " ".join(elsewhere.stderr.split())
    assert everlong(server, tmp_path, "Other.", cwd=there).stdout == "2 turns.\n"
    second = everlong(server, tmp_path, "Second.", "--continue", "--json", cwd=here)
    session = json.loads(second.stdout.splitlines()[0])["session_id"]
    assert everlong(server, tmp_path, "Third.", "--resume", session, cwd=here).stdout == "6 turns.\n"
    unknown = everlong(server, tmp_path, "Fourth.", "--resume", "nothing like it", cwd=here)
    assert unknown.returncode == 1
    assert "there is no conversation" in unknown.stderr


def test_a_file_that_is_not_there_is_said(serve: Serve, tmp_path: Path) -> None:
    done = everlong(serve("I see."), tmp_path, "see @nope.txt, and ask @ada")
    assert "there is no file nope.txt" in done.stderr
    assert "no file ada" not in done.stderr


def test_a_cost_is_the_same_in_the_events_the_list_and_the_usage(serve: Serve, tmp_path: Path) -> None:
    done = everlong(serve("It opens at seven. " * 900), tmp_path, "When?", "--json", "-m", "openai:gpt-4o")
    cost = json.loads(done.stdout.splitlines()[-1])["cost"]
    env = os.environ | {"EVERLONG_HOME": str(tmp_path / "home")}

    def told(*command: str) -> Any:
        ran = subprocess.run([*everlong_program(), *command, "--json"], env=env, capture_output=True, check=True)
        return json.loads(ran.stdout)

    assert cost > 0
    assert told("sessions", "list")[0]["cost"] == pytest.approx(cost)
    assert float(told("usage")["total"]["cost"]) == pytest.approx(cost)


@pytest.mark.parametrize("words", [("--local", "smollm2"), ("run", "--local", "Hi", "there")])
def test_a_name_that_is_no_file_of_weights_is_told_what_local_takes(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)
    assert ran.code == 2
    assert "--local takes a file whose name ends in .gguf" in ran.err


def test_a_small_model_is_never_asked_for_a_summary_not_even_when_a_full_session_is_resumed(tmp_path: Path) -> None:
    settings = Settings.model_validate({"models": {"llamacpp:harbour": {"context_length": 8_000}}})
    store = Store(open_database(tmp_path / "store.db"))
    conversation = AgentConversation(store, system_prompt="Answer.", model="llamacpp:harbour")
    for number in range(40):
        asked = {"role": "user", "content": f"Question {number}: {'what of the tide? ' * 40}"}
        conversation.add(Said(asked), Said({"role": "assistant", "content": f"Answer {number}."}))
    with ModelServer() as model:
        served = SimpleNamespace(
            name="harbour", parameters=135_000_000, is_small=True, url=model.openai_url, api_key="k"
        )
        local = LocalModel(served)  # type: ignore[arg-type]
        options = AgentOptions(resume=conversation.session_id, log_folder=None, root=tmp_path)
        agent = local.open_agent(settings, options, store, lambda _: None)
        assert [one.summarizer for one in compressors_in(agent.engine)] == [None]
        agent.run("And the tide now?")
        assert [one.summarizer for one in store.compactions()] == ["built-in rules"]
        assert len(model.requests) == 1
        agent.close()
