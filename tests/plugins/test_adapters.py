"""The modules of another host by themselves: models under the user's settings, the configuration, homes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.config import Settings
from everlong.config.paths import data_home
from everlong.errors import PluginError
from everlong.plugins.foreign import import_module
from everlong.plugins.host import Host, running_in
from everlong.testing import ModelServer
from tests.testing_server.conftest import Serve

MESSAGES = [{"role": "user", "content": "Summarize the log."}]
auxiliary_client, context_compressor, context_engine, model_metadata = (
    import_module(f"agent.{name}")
    for name in ("auxiliary_client", "context_compressor", "context_engine", "model_metadata")
)
hermes_constants, config = import_module("hermes_constants"), import_module("hermes_cli.config")
runtime_provider = import_module("hermes_cli.runtime_provider")


def settings(server: ModelServer | None = None, **sections: Any) -> Settings:
    auxiliary = {"compression": {"base_url": server.openai_url, "model": "small-one"}} if server else {}
    return Settings.model_validate({"auxiliary": auxiliary, **sections})


@pytest.fixture
def inside(serve: Serve) -> Iterator[ModelServer]:
    """A server whose model is the user's auxiliary one, and a host that says so."""
    server = serve(lambda ask: f"{ask.model}: {ask.body.get('temperature')}", window=8_000)
    with running_in(Host(settings(server))):
        yield server


def test_the_auxiliary_model_answers_in_the_shape_of_openais_client(inside: ModelServer) -> None:
    answer = auxiliary_client.call_llm(
        task="compression", messages=MESSAGES, max_tokens=50, temperature=0.3, timeout=9, main_runtime={}, other=1
    )
    assert answer.choices[0].message.content == "small-one: 0.3"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert auxiliary_client.extract_content_or_reasoning(answer) == "small-one: 0.3"
    assert inside.requests[0].body["max_tokens"] == 50


def test_the_configuration_has_the_shape_that_plugins_know() -> None:
    chosen = settings(
        agent={"model": "anthropic:claude-sonnet-5"},
        models={"claude-sonnet-5": {"context_length": 9_000}},
        plugins={"ledger": {"keep": 4}},
        providers={"shed": {"base_url": "http://127.0.0.1:1/v1"}},
    )
    with running_in(Host(chosen)):
        found = config.load_config()
        assert found["model"] == {"default": "claude-sonnet-5", "provider": "anthropic", "context_length": 9_000}
        assert found["compression"]["threshold"] == 0.5
        assert found["context"]["engine"] == "compressor"
        assert found["ledger"] == found["plugins"]["ledger"] == found["plugins"]["entries"]["ledger"] == {"keep": 4}
        assert config.cfg_get(found, "plugins", "ledger", "keep") == 4
        assert config.cfg_get(found, "no", "such", default=3) == 3
        assert runtime_provider._get_named_custom_provider("shed")
        assert runtime_provider._get_named_custom_provider("cerebras") is None
        assert model_metadata.get_model_context_length("claude-sonnet-5") == 9_000
    with pytest.raises(PluginError, match="everlong config set"):
        config.save_config(found)


def test_the_home_is_everlongs_unless_the_environment_says_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    assert config.get_hermes_home() == hermes_constants.get_hermes_home() == data_home()
    monkeypatch.setenv("AIGENLABS_HOME", str(tmp_path / "a"))
    assert hermes_constants.get_aigenlabs_home() == tmp_path / "a"
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "h"))
    assert config.get_hermes_home() == tmp_path / "h"
    token = hermes_constants.set_hermes_home_override(tmp_path / "o")
    assert hermes_constants.get_hermes_home() == tmp_path / "o"
    hermes_constants.reset_hermes_home_override(token)
    assert hermes_constants.get_hermes_home() == tmp_path / "h"


def test_what_other_hosts_have_in_the_base_class_can_be_passed_on_and_does_nothing() -> None:
    class Newer(context_compressor.ContextCompressor):  # type: ignore[misc, name-defined]
        def on_turn_complete(self, messages: list[Any], usage: dict[str, Any] | None = None, **facts: Any) -> None:
            super().on_turn_complete(messages, usage=usage, **facts)

        def select_context(self, request_messages: list[Any], **facts: Any) -> list[Any] | None:
            return super().select_context(request_messages, **facts)  # type: ignore[no-any-return]

    engine = Newer(8_000)
    engine.on_turn_complete([], usage=None, turn_id="x")
    assert engine.select_context([], budget_tokens=1) is None
    assert engine.should_compress_info(7_999) == (True, None)
    assert engine.should_defer_preflight_to_real_usage(5) is False
    assert engine.prune_tool_results_only(MESSAGES) == (MESSAGES, 0)
    assert engine.pending_compression_operation([]) is None
    said = context_engine.automatic_compaction_status_message
    assert said(engine, phase="compress", default_message=" Compacting ") == "Compacting"
    engine.emit_automatic_compaction_status = False
    assert said(engine, phase="compress", default_message="Compacting") is None
