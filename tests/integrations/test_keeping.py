"""The common base of the adapters: views are recognized again, for any engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from everlong import ContextEngine, LosslessEngine, Message, MessageCounter, Store, integrations
from everlong.agent.tools.hidden_tools import RecallLookup
from everlong.context.invariants import check_all
from everlong.context.oversized import is_stub
from everlong.integrations.history import HistoryKeeper, OfferedTools, OverflowRescue, refused_window
from everlong.store import Branch
from everlong.testing import ModelServer
from tests.context.builders import assistant, long_session, summaries, system, user
from tests.integrations.desk import Engines


class Tail(ContextEngine):
    """An engine of another author: keeps prompt, request and last messages, decides by the tokens it is given."""

    keep = 4

    def __init__(self) -> None:
        self.starts: list[tuple[str, dict[str, Any]]] = []
        self.update_model("", 4_000)

    @property
    def name(self) -> str:
        return "tail"

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        self.starts.append((session_id, kwargs))

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return (prompt_tokens or 0) >= self.threshold_tokens

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        del current_tokens, focus_topic
        self.compression_count += 1
        return [*messages[:2], *messages[-self.keep :]]


class Lazy(Tail):
    """Says that it is time, and does nothing."""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        del args, kwargs
        self.compression_count += 1
        return messages


def test_a_fork_shares_what_was_compacted_before_it() -> None:
    engines = Engines(8_000)
    keeper, messages = HistoryKeeper(engines), long_session(60)
    first = keeper.fit(messages).messages
    one = keeper.fit([*messages, assistant("One."), user("Go left.")]).messages
    other = keeper.fit([*messages, assistant("One."), user("Go right.")]).messages
    assert one[:-1] == other[:-1]
    assert one[: len(first)] == first
    assert engines.compactions == 1
    assert len(engines.made) == 2, "an engine is led through one conversation only"


def test_an_edited_history_is_compacted_anew() -> None:
    engines = Engines(8_000)
    keeper, messages = HistoryKeeper(engines), long_session(60)
    keeper.fit(messages)
    sent = keeper.fit([messages[0], user("Something else."), *messages[2:]]).messages
    assert "Something else." in str(sent)
    assert "Build the project" not in str(sent)


def test_a_list_that_an_engine_cut_through_a_call_is_never_sent() -> None:
    class Careless(Tail):
        keep = 3  # begins with a result whose call is gone

    sent = HistoryKeeper(Careless).fit(long_session(30)).messages
    assert check_all(sent, long_session(30)) == []
    assert len(sent) < 20


def test_an_engine_that_raises_is_stood_in_for_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Tail):
        def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
            del messages, args, kwargs
            raise RuntimeError("no disk")

    keeper, messages = HistoryKeeper(Failing), long_session(30)
    for _ in range(3):
        messages = [*messages, assistant("Done."), *long_session(30)[1:], user("Go on.")]
        sent = keeper.fit(messages).messages
        assert check_all(sent, messages) == []
        assert len(sent) < len(messages)
    assert sum("no disk" in record.getMessage() for record in caplog.records) == 1


def refused(*words: str) -> OverflowRescue:
    rescue = OverflowRescue()
    assert all(rescue.takes(RuntimeError(one)) for one in words)
    return rescue


def test_a_refused_request_is_compacted_for_the_window_that_the_refusal_named() -> None:
    engines = Engines(200_000)
    keeper, messages = HistoryKeeper(engines), long_session(40)
    assert keeper.fit(messages).messages == messages
    sent = keeper.fit(
        messages, rescue=refused("maximum context length is 8000 tokens, resulted in 9000 tokens")
    ).messages
    assert len(summaries(sent)) == 1
    assert engines.made[0].context_length == 8_000
    unnamed = HistoryKeeper(Engines(200_000)).fit(messages, rescue=refused("the context window is exceeded")).messages
    assert len(unnamed) < len(messages)


def test_a_request_that_is_refused_again_is_cut_further_each_time_but_not_for_ever() -> None:
    keeper, messages, rescue = HistoryKeeper(Engines(200_000)), long_session(60), OverflowRescue()
    counter, sizes = MessageCounter(), []
    while rescue.takes(RuntimeError("prompt is too long")):
        sent = keeper.fit(messages, rescue=rescue).messages
        assert check_all(sent, messages) == []
        sizes.append(counter.total(sent))
    assert len(sizes) == 3
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]
    assert not rescue.takes(RuntimeError("the key is wrong"))


@pytest.mark.parametrize(
    ("words", "window"),
    [
        (
            "This model's maximum context length is 16000 tokens. However, your messages resulted in 16303 tokens.",
            16_000,
        ),
        ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
        ("the context window is exceeded", 0),
        ("Error code: 400 - {'error': {'message': 'Your input exceeds the context window of this model.'}}", 0),
        ("the key is wrong", None),
    ],
)
def test_refusals_are_told_from_other_errors(words: str, window: int | None) -> None:
    assert refused_window(RuntimeError(words)) == window


def test_with_a_store_a_new_keeper_goes_on_from_the_view(tmp_path: Path) -> None:
    messages = long_session(60)
    with Store.open(tmp_path / "talk.db") as store:
        engines, fresh = Engines(8_000), Engines(8_000)
        first = HistoryKeeper(engines, store=store).fit(messages).messages
        again = HistoryKeeper(fresh, store=store).fit([*messages, assistant("Done."), user("Go on.")]).messages
        assert again[: len(first)] == first
        assert (engines.compactions, fresh.compactions) == (1, 0)
        assert [compaction.reason for compaction in store.compactions()] == ["preflight"]


def test_a_kept_conversation_is_listed_once_with_its_title_in_any_process(tmp_path: Path) -> None:
    messages = [user("Which berths are free?"), *long_session(60)[2:]]
    with Store.open(tmp_path / "talk.db") as store:
        for _ in range(2):
            HistoryKeeper(Engines(8_000), store=store, platform="harbour").fit(messages, conversation="berths")
            messages = [*messages, assistant("Two."), user("Which ones?")]
        (one,) = store.conversations.newest()
    assert (one.title, one.source, one.compactions) == ("Which berths are free?", "harbour", 1)


@pytest.mark.parametrize("make", [Engines(8_000), Lazy], ids=["compressor", "an engine that does nothing"])
def test_with_a_store_a_message_larger_than_the_window_becomes_a_stub_that_stays_the_same(
    make: Any, tmp_path: Path
) -> None:
    text = "".join(f"line {number} of a file that somebody pasted\n" for number in range(50_000))
    with Store.open(tmp_path / "store.db") as store:
        keeper = HistoryKeeper(make, store=store)
        history = [system(), user("Hello."), assistant("Hello!"), user(text)]
        sent = keeper.fit(history).messages
        assert is_stub(sent[-1])
        history += [assistant("I see."), user("Go on.")]
        assert keeper.fit(history).messages == [*sent, *history[-2:]]
        (whole,) = [entry for entry in store.entries(store.record(history)) if entry.message["content"] == text]
        assert whole.id is not None
        assert whole.id.hex()[:12] in sent[-1]["content"]


class Shared(Store):
    """A store in which somebody else says the same words right after the next record."""

    others: list[Message] = []  # noqa: RUF012 - set by the test

    def record(self, messages: Iterable[Message], **options: Any) -> Branch:
        """Record messages, and those of somebody else."""
        made = super().record(messages, **options)
        others, self.others = self.others, []
        if others:
            super().record(others, **options)
        return made


def test_two_who_say_the_same_at_once_are_each_sent_under_their_own_system_prompt(tmp_path: Path) -> None:
    with Shared.open(tmp_path / "talk.db") as store:
        assert isinstance(store, Shared)
        keeper = HistoryKeeper(Engines(8_000), store=store)
        store.others = [system("You help Ada, who owes 4,000 dollars."), user("Hello")]
        sent = keeper.fit([system("You help Bob."), user("Hello")]).messages
        without = keeper.fit([user("Hello")]).messages
    assert sent == [system("You help Bob."), user("Hello")]
    assert without == [user("Hello")]


def test_a_look_up_sees_nothing_of_another_who_began_with_the_same_words(tmp_path: Path) -> None:
    with Store.open(tmp_path / "talk.db") as store:
        keeper, tools = HistoryKeeper(lambda: LosslessEngine(8_000), store=store), OfferedTools(store)
        waiting, same = keeper.fit([user("Hello")]), keeper.fit([user("Hello")])
        other = keeper.fit([user("Hello"), assistant("Hi."), user("My password is heron.")])
        assert waiting.at == same.at
        found = tools.answer(waiting, [RecallLookup("call", "lcm_grep", {"query": "password"})])["call"]
        own = tools.answer(other, [RecallLookup("call", "lcm_grep", {"query": "password"})])["call"]
    assert "heron" not in found
    assert "heron" in own


PAGE = Path(__file__).parent.parent.parent / "docs" / "integrations.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


NAMES = ["wrap_client", "langchain", "langgraph"]
TELL = "\nprint(reply if isinstance(reply, str) else reply['messages'][-1].content)\n"


def run_examples(*names: str) -> None:
    """Run examples of the page, and look at their answers; in one process, because the frameworks take long to load."""
    examples = dict(zip(NAMES, EXAMPLES, strict=True))
    code = "".join(f"exec({examples[name] + TELL!r}, {{}})\n" for name in names)
    with ModelServer("Good morning to you.", dialect="openai") as server:
        environment = os.environ | {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any"}
        environment |= {"OPENAI_API_BASE": server.openai_url}
        environment |= {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "any"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout, done.returncode) == ("Good morning to you.\n" * len(names), 0), done.stderr
        assert len(server.requests) >= len(names)
        assert server.rejections == []


def test_the_examples_of_the_documentation_answer() -> None:
    run_examples(*NAMES)


@pytest.mark.parametrize("name", integrations.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert f"`{name}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("EverlongMiddleware", "langchain", "langchain"), ("KeptModel", "langchain_core", "langgraph")],
)
def test_a_framework_that_is_not_installed_is_named_with_what_to_install(name: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from everlong.integrations import {name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = f"ImportError: {name} needs a package that is not installed: pip install {extra}"
    assert done.stderr.splitlines()[-1] == wanted
