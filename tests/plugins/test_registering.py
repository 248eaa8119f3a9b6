"""What a plugin registers reaches the agent and the chat; what cannot be taken is a warning and breaks nothing."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from everlong.agent import AgentEvent, Notice, ToolFinished, refuse_everything
from everlong.config import Settings
from everlong.model import typed_words
from everlong.plugins.context import PluginContext
from everlong.plugins.hooks import EVENTS
from everlong.plugins.manager import Plugins
from everlong.testing import Answer, Ask, Call
from tests.agent.conftest import Opened
from tests.plugins.making import copied, write
from tests.testing_server.conftest import Serve

Loaded = Callable[..., tuple[Plugins, list[str]]]


@pytest.fixture
def loaded(home: Path) -> Loaded:
    """Loads the plugin ``p`` of one file."""

    def load(code: str, **section: Any) -> tuple[Plugins, list[str]]:
        write(home / "plugins" / "p", code)
        said: list[str] = []
        settings = Settings.model_validate({"plugins": {"enabled": ["p"], "p": section}})
        plugins = Plugins(settings, home, warn=said.append)
        plugins.load()
        return plugins, said

    return load


def notices(heard: list[AgentEvent]) -> list[str]:
    return [one.text for one in heard if isinstance(one, Notice)]


@pytest.mark.spec("2.5")
def test_a_general_plugin_brings_tools_hooks_commands_and_memory(
    serve: Serve, opened: Opened, heard: list[AgentEvent], home: Path
) -> None:
    copied("clock", home / "plugins")
    calls = [Answer(calls=[Call("high_water", {"day": "Monday"}), Call("low_water", {})]), "At noon and at six."]
    server = serve(calls)
    settings = {
        "plugins": {"enabled": ["clock"], "clock": {"zone": "CET"}},
        "memory": {"enabled": True, "provider": "tides", "flush": False},
    }
    agent = opened(server, "openai", settings=settings)
    agent.run("When is the tide?")
    assert notices(heard) == []
    results = [one.text for one in heard if isinstance(one, ToolFinished)]
    assert results == ["On Monday at noon.", '{"at": "six", "knows": ["session_id", "task_id"]}']
    assert "High water is at noon." in server.model.asked[0].system
    assert "spring_tide" not in server.model.asked[0].tools
    registered = agent.plugins.registered
    assert registered.commands["tide"].handler("today") == "CET: today"
    assert "post_llm_call" in registered.hooks
    kept = home / "plugin-data" / "clock"
    assert (kept / "asked.txt").read_text() == "today"
    if os.name != "nt":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_tools_of_plugins_need_an_approval_unless_they_say_that_they_only_read(
    serve: Serve, opened: Opened, heard: list[AgentEvent], home: Path
) -> None:
    copied("clock", home / "plugins")
    server = serve([Answer(calls=[Call("high_water", {"day": "Monday"}), Call("low_water", {})]), "No."])
    approver = refuse_everything("not today")
    agent = opened(server, "openai", settings={"plugins": {"enabled": ["clock"]}}, approver=approver)
    agent.run("When is the tide?")
    assert [one.outcome for one in heard if isinstance(one, ToolFinished)] == ["done", "refused"]


HOOKS = """
HEARD = []
def register(ctx):
    for event in {events!r}:
        ctx.register_hook(event, lambda event=event, **facts: HEARD.append((event, sorted(facts))))
    ctx.register_hook("pre_llm_call", lambda user_message: {{"context": "The tide is low."}})
    ctx.register_hook("pre_tool_call", lambda tool_name, args: (
        {{"action": "block", "message": "not with the tide so low"}} if args.get("command") == "sail" else None))
    ctx.register_hook("post_tool_call", lambda **facts: 1 / 0)
    ctx.register_tool(name="heard", schema={{}}, handler=lambda args: HEARD, effect="reads")
"""


def test_hooks_hear_everything_may_add_to_a_prompt_and_may_stop_a_tool(
    serve: Serve, opened: Opened, heard: list[AgentEvent], home: Path
) -> None:
    write(home / "plugins" / "p", HOOKS.format(events=list(EVENTS)))
    script = [
        Answer(calls=[Call("run_command", {"command": "sail"}), Call("run_command", {"command": "echo ho"})]),
        Answer(calls=[Call("heard", {})]),
        "We stay.",
    ]
    server = serve(script)
    agent = opened(server, "openai", settings={"plugins": {"enabled": ["p"]}})
    finished = agent.run("Can we leave?")
    assert finished.text == "We stay."
    assert "The tide is low." in server.model.asked[0].text
    assert typed_words(agent.conversation.messages[1]) == "Can we leave?"
    assert "_added" not in str([one.body for one in server.requests])
    assert "not with the tide so low" in server.model.asked[1].text
    assert [one.outcome for one in heard if isinstance(one, ToolFinished)] == ["done", "done"]
    (said,) = notices(heard)
    assert "plugin 'p': its hook for post_tool_call failed: ZeroDivisionError" in said
    module = agent.plugins.registered.tools["heard"].handler
    assert module is not None
    agent.compress()
    agent.reset()
    happened = [event for event, _ in module({})]
    assert set(happened) == set(EVENTS)
    assert happened.index("pre_llm_call") < happened.index("pre_api_request") < happened.index("post_api_request")
    assert happened.count("on_session_start") == 2
    facts = dict(module({}))
    assert {"session_id", "model", "platform", "user_message", "conversation_history"} <= set(facts["post_llm_call"])


def test_a_plugin_asks_a_model_under_the_users_settings_and_it_is_counted(
    serve: Serve, opened: Opened, home: Path
) -> None:
    code = """
        def register(ctx):
            ctx.register_command("ask", lambda words: ctx.llm.complete(words, system="Be short.", unknown=1).text)
        """
    write(home / "plugins" / "p", code)

    def answer(ask: Ask) -> str:
        return "Short." if "Be short." in ask.system else "Fine."

    agent = opened(serve(answer), "openai", settings={"plugins": {"enabled": ["p"]}})
    agent.run("Hello.")
    assert agent.plugins.registered.commands["ask"].handler("Why?") == "Short."
    receipts = agent.conversation.store.receipts.of_session(agent.conversation.session_id)
    assert [one.kind for one in receipts] == ["plugin"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("ctx.register_hook('on_moon', print)", "there are on_session_start"),
        ("ctx.register_hook('pre_compress', 5)", "registered a hook for"),
        ("ctx.register_command('a b', print)", "no proper name"),
        ("ctx.register_command('tide')", "no handler"),
        ("ctx.register_command('x', print); ctx.register_command('/x', print)", "has already"),
        ("ctx.register_tool(name='t', schema={})", "cannot be used"),
        ("ctx.register_tool(name='a b', schema={}, handler=print)", "cannot be used"),
        ("[ctx.register_tool(name='t', schema={}, handler=print) for _ in 'ab']", "has already"),
        ("ctx.register_memory_provider(object())", "not made from everlong.memory.MemoryProvider"),
        ("ctx.register_context_engine(object())", "lacks name, update_from_response"),
        ("ctx.register_moon_phase(1, when=2)", "called register_moon_phase, which Everlong does not offer"),
    ],
)
def test_what_cannot_be_registered_is_one_warning(loaded: Loaded, call: str, said: str) -> None:
    plugins, warnings = loaded(f"def register(ctx):\n    {call}\n    ctx.register_command('last', print)\n")
    assert len(warnings) == 1
    assert "plugin 'p'" in warnings[0]
    assert said in warnings[0]
    assert "last" in plugins.registered.commands  # what follows is registered all the same


def test_every_event_and_everything_that_the_context_has_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    assert [event for event in EVENTS if f"| `{event}` |" not in page] == []
    offered = [name for name in dir(PluginContext) if not name.startswith("_")] + [
        "config",
        "llm",
        "logger",
        "manifest",
    ]
    assert [name for name in offered if not re.search(rf"`{name}\b", page)] == []
