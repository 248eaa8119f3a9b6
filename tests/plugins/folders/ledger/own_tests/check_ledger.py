"""The plugin's own tests, against whatever host is on the path."""

from types import SimpleNamespace

import pytest
from agent.context_engine import ContextEngine
from ledger_plugin import register
from ledger_plugin.engine import LedgerEngine


def _answer(text):
    return SimpleNamespace(choices=[SimpleNamespace(message=SimpleNamespace(content=text))])


@pytest.fixture
def engine(tmp_path):
    made = LedgerEngine(hermes_home=str(tmp_path), keep=2)
    made.update_model("some/model", 200_000)
    made.on_session_start("one", platform="cli")
    return made


def _conversation(turns=10):
    said = [{"role": "system", "content": "Be brief."}]
    for number in range(turns):
        said += [{"role": "user", "content": f"Q{number}"}, {"role": "assistant", "content": f"A{number}"}]
    return said


def test_is_a_context_engine(engine):
    assert isinstance(engine, ContextEngine)
    assert engine.name == "ledger"
    assert (engine.last_prompt_tokens, engine.compression_count, engine.protect_first_n) == (0, 0, 3)


def test_compress_asks_the_auxiliary_model(engine, monkeypatch):
    asked = []
    monkeypatch.setattr("ledger_plugin.engine.call_llm", lambda **call: asked.append(call) or _answer("short"))
    result = engine.compress(_conversation())
    assert asked[0]["task"] == "compression"
    assert result[1]["content"].endswith("short")
    assert engine.compression_count == 1


def test_the_module_of_the_host_can_be_patched(monkeypatch):
    monkeypatch.setattr("agent.auxiliary_client.call_llm", lambda **call: _answer("patched"))
    from agent.auxiliary_client import call_llm

    assert call_llm(messages=[]).choices[0].message.content == "patched"


def test_registers_with_a_host(tmp_path, monkeypatch):
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))

    class Ctx:
        engine = None

        def register_context_engine(self, engine):
            self.engine = engine

    ctx = Ctx()
    register(ctx)
    ctx.engine.on_session_start("x")
    assert (tmp_path / "ledger.db").exists()


def test_a_missing_part_of_the_host_is_an_import_error():
    with pytest.raises(ImportError):
        import agent.no_such_module  # noqa: F401
