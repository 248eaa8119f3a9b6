"""The models that write summaries: those of ``auxiliary.compression``, the one that ``auto`` picks, and failures."""

from __future__ import annotations

from typing import Any

import pytest

from everlong import ContextCompressor, Message, SummarizerChain
from everlong.config import Settings
from everlong.providers import Connection, RetryPolicy, connect, summarizer_for
from everlong.testing import Fault, ModelServer
from tests.context.builders import long_session
from tests.context.scripted import GOOD
from tests.testing_server.conftest import KEY, Serve

ONCE = RetryPolicy(attempts=1)


def settings(**auxiliary: Any) -> Settings:
    return Settings.model_validate({"auxiliary": {"compression": auxiliary}})


def main_model(server: ModelServer, name: str = "anthropic:claude-opus-5") -> Connection:
    url = server.url if name.startswith("anthropic") else server.openai_url
    return connect(name, base_url=url, api_key=KEY, policy=ONCE)


def compacted(summarizer: Any, messages: list[Message] | None = None) -> ContextCompressor:
    engine = ContextCompressor(8_000, summarizer=summarizer)
    engine.compress(messages or long_session(60))
    assert engine.last_report is not None
    return engine


def members(chain: object) -> list[str]:
    assert isinstance(chain, SummarizerChain)
    return chain.name.split(", else ")


@pytest.mark.spec("3.1")
def test_a_model_at_an_address_writes_the_summary_and_the_report_names_it(serve: Serve) -> None:
    server = serve(GOOD, dialect="llama.cpp", models=("tiny",))
    chain = summarizer_for(settings(base_url=server.openai_url))
    report = compacted(chain).last_report
    assert report is not None
    assert (report.summarizer, report.fallback_reason) == ("custom:tiny", None)
    assert server.rejections == []


@pytest.mark.spec("3.1")
def test_main_means_the_conversations_own_model_first_warm_then_from_a_transcript(serve: Serve) -> None:
    server = serve(GOOD)
    chain = summarizer_for(settings(provider="main"), main_model(server))
    assert members(chain) == ["anthropic:claude-opus-5"]
    messages = long_session(60)
    report = compacted(chain, messages).last_report
    assert report is not None
    assert report.summarizer == "anthropic:claude-opus-5"
    assert len(server.requests[0].body["messages"]) > 20


@pytest.mark.spec("3.1")
def test_auto_picks_a_cheaper_model_of_a_provider_whose_key_exists(serve: Serve) -> None:
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    main = connect("anthropic:claude-opus-5", api_key=KEY)
    assert members(summarizer_for(settings(), main, env=keys))[0] == "anthropic:claude-haiku-5-5"
    other = connect("openai:gpt-5", api_key=KEY)
    assert members(summarizer_for(settings(), other, env=keys))[0] == "openai:gpt-6-luna"
    only = {"OPENAI_API_KEY": KEY}
    assert members(summarizer_for(settings(), main, env=only))[0] == "openai:gpt-6-luna"
    assert members(summarizer_for(settings(), main, env={}))[0] == "anthropic:claude-opus-5"
    assert summarizer_for(settings(), env={}) is None
    local = main_model(serve(dialect="vllm"), "tiny")
    assert members(summarizer_for(settings(), local, env=keys))[0] == "custom:tiny"


@pytest.mark.spec("5.7")
def test_where_the_auxiliary_model_fails_the_main_one_writes_and_where_that_fails_the_extract(serve: Serve) -> None:
    dead, alive = serve(faults=lambda _: Fault("unauthorized")), serve(GOOD)
    aux = settings(base_url=dead.openai_url, model="tiny")
    report = compacted(summarizer_for(aux, main_model(alive))).last_report
    assert report is not None
    assert (report.summarizer, report.fallback_reason) == ("anthropic:claude-opus-5", None)

    report = compacted(summarizer_for(aux, main_model(dead))).last_report
    assert report is not None
    assert report.summarizer == "built-in rules"
    assert report.fallback_reason is not None
    for who in ("custom:tiny", "anthropic:claude-opus-5", "AuthenticationFailed"):
        assert who in report.fallback_reason


@pytest.mark.spec("5.6")
def test_a_window_that_is_smaller_than_thought_is_learned_and_read_in_parts(serve: Serve) -> None:
    server = serve(GOOD, window=6_000, models=("tiny",))  # the dialect of OpenAI does not tell the window
    chain = summarizer_for(settings(base_url=server.openai_url, model="tiny"))
    report = compacted(chain, long_session(120)).last_report
    assert report is not None
    assert (report.summarizer, report.fallback_reason) == ("custom:tiny", None)
    overflows = [record for record in server.requests if record.status == 400]
    assert len(overflows) >= 1
    assert len(server.requests) > len(overflows) + 1


@pytest.mark.spec("9.3")
def test_several_models_are_asked_in_their_order_and_the_main_one_after_them() -> None:
    keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    main = connect("anthropic:claude-opus-5", api_key=KEY)
    several = settings(models=["openai:gpt-6-luna", "claude-haiku-5-5"])
    assert members(summarizer_for(several, main, env=keys)) == [
        "openai:gpt-6-luna",
        "anthropic:claude-haiku-5-5",
        "anthropic:claude-opus-5",
    ]
    assert settings(model="one", models="two, one").auxiliary.compression.names == ["one", "two"]


@pytest.mark.spec("9.3")
@pytest.mark.parametrize(("choose", "asked"), [("first_good", {"one"}), ("best", {"one", "two"})])
def test_the_first_good_summary_or_the_best_of_all_is_taken(serve: Serve, choose: str, asked: set[str]) -> None:
    server = serve(GOOD, dialect="vllm", models=("one", "two"))
    chain = summarizer_for(settings(base_url=server.openai_url, models=["one", "two"], choose=choose))
    report = compacted(chain).last_report
    assert report is not None
    assert report.summarizer == "custom:one"
    assert {request.body["model"] for request in server.requests} == asked
