"""``--local``: how it is written, and a small real model behind ``everlong run`` and ``everlong chat``."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from everlong.agent import AgentOptions
from everlong.agent.conversation import AgentConversation, Said
from everlong.cli.local import LocalModel
from everlong.config import Settings
from everlong.plugins.guard import compressors_in
from everlong.store import Store
from everlong.store.opening import open_database
from everlong.testing import ModelServer
from tests.cli.conftest import Run


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
