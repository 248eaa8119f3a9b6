"""What the gateway tells of itself: numbers, log lines and spans, and nothing that anybody said."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest

from everlong.gateway.telemetry import GatewayLog, RequestAccount
from everlong.providers.base import Usage
from everlong.testing import ModelServer
from tests.gateway.running import Raw
from tests.gateway.served import raw, serving
from tests.gateway.test_auth import ADA, ASKED, KEYS
from tests.gateway.upstream import Upstream

WINDOW = 4_000


def numbers(text: str) -> dict[str, float]:
    """Every line of the text format, which has to be one."""
    found = {}
    for line in text.splitlines():
        if line.startswith("# "):
            assert re.fullmatch(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (counter|gauge|histogram))", line)
            continue
        matched = re.fullmatch(r'([a-z_]+(?:\{[a-z_]+="[^"]*"(?:,[a-z_]+="[^"]*")*\})?) (\S+)', line)
        assert matched, line
        found[matched[1]] = float(matched[2])
    return found


def read(client: Raw, *headers: tuple[str, str]) -> dict[str, float]:
    answer = client.ask(b"", "/metrics", headers, "GET")
    assert answer.header("content-type") == "text/plain; version=0.0.4; charset=utf-8"
    return numbers(answer.body.decode())


def test_requests_bytes_and_tokens_are_counted(model: ModelServer, tmp_path: Path) -> None:
    said: Any = [{"role": "user", "content": "hi"}]
    with serving(model.url, tmp_path, models={"m": {"input_price": 3.0}}) as hosted, raw(hosted.address) as client:
        with openai.OpenAI(base_url=f"{hosted.address}/v1", api_key="k") as gpt:
            used = gpt.chat.completions.create(model="m", messages=said).usage
        client.ask(b"", "/v1/files", method="DELETE")
        told = read(client)
    assert used is not None
    assert told['everlong_requests_total{route="chat",status="200"}'] == 1
    assert sum(value for name, value in told.items() if name.startswith('everlong_requests_total{route="other"')) == 1
    assert told['everlong_request_seconds_bucket{route="chat",le="+Inf"}'] == 1
    assert told['everlong_request_seconds_count{route="chat"}'] == 1
    assert told['everlong_tokens_total{kind="input"}'] == used.prompt_tokens
    assert told['everlong_tokens_total{kind="output"}'] == used.completion_tokens
    assert told["everlong_received_bytes_total"] > 40
    assert told["everlong_sent_bytes_total"] > 100
    assert told["everlong_dollars_total"] > 0
    assert told["everlong_requests_in_flight"] == 1  # the one that asks
    assert told["everlong_store_queue"] in {0, 1}  # what came of the request may still be on its way
    assert told["everlong_journal_entries"] in {0, 1, 2}  # as above, with the request itself
    assert told["everlong_conversations"] >= 0


def test_compactions_are_counted_by_reason_and_outcome(tmp_path: Path) -> None:
    models = {"m": {"context_length": WINDOW}}
    compression = {"minimum_context_length": 0, "protect_last_n": 2}
    with (
        ModelServer("Understood.", window=WINDOW) as model,
        serving(model.url, tmp_path, models=models, compression=compression) as hosted,
        openai.OpenAI(base_url=f"{hosted.address}/v1", api_key="k", max_retries=0) as gpt,
    ):
        said: list[Any] = []
        for turn in range(30):
            said.append({"role": "user", "content": f"Question {turn}: " + "what of the harbour? " * 40})
            answer = gpt.chat.completions.create(model="m", messages=said, max_tokens=100)
            said.append({"role": "assistant", "content": answer.choices[0].message.content})
        with raw(hosted.address) as client:
            told = read(client)
    made = {name: value for name, value in told.items() if name.startswith("everlong_compactions_total")}
    assert sum(value for name, value in made.items() if 'outcome="compacted"' in name) >= 1
    assert all(re.search(r'reason="(threshold|preflight|overflow)"', name) for name in made)


def test_the_numbers_need_a_key_where_there_are_keys(upstream: Upstream, tmp_path: Path) -> None:
    with serving(upstream.url, tmp_path, {"keys": KEYS}) as hosted, raw(hosted.address) as client:
        assert client.ask(b"", "/metrics", method="GET").status == 401
        told = read(client, ("Authorization", f"Bearer {ADA}"))
    assert "ada" not in str(told)


def lines(kept: io.BytesIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.getvalue().splitlines()]


def test_a_line_for_each_request_names_it_and_tells_no_content_and_no_key(model: ModelServer, tmp_path: Path) -> None:
    kept = io.BytesIO()
    secret, words = "made-up-upstream-key", "the word that nobody may see"
    with serving(model.url, tmp_path, log=kept) as hosted:
        with openai.OpenAI(base_url=f"{hosted.address}/v1", api_key=secret) as gpt:
            gpt.chat.completions.create(model="m", messages=[{"role": "user", "content": words}])
        with raw(hosted.address) as client:
            client.ask(words.encode(), "/v1/messages?key=in-the-query", [("x-api-key", secret)])
            client.send(f"GET / HTTP/1.1\r\nauthorization {secret}\r\n\r\n".encode())
            client.answer()
    text = kept.getvalue().decode()
    assert words not in text
    assert secret not in text
    assert "in-the-query" not in text
    assert "Understood" not in text
    first, second = [line for line in lines(kept) if line["event"] == "request"][:2]
    assert first["path"] == "/v1/chat/completions"
    assert (first["method"], first["status"], first["tenant"], first["model"]) == ("POST", 200, "local", "m")
    assert first["ms"] > 0
    assert first["received"] > 0
    assert first["sent"] > 0
    assert first["prompt_tokens"] > 0
    assert second["path"] == "/v1/messages"
    assert any(line["event"] == "connection" for line in lines(kept))


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("trace-1:2.3_4", True), ("x" * 129, False), ("two words", False), ("käse", False), ("", False)],
)
def test_the_id_that_a_client_gives_is_kept_where_it_can_be(
    given: str, is_kept: bool, upstream: Upstream, tmp_path: Path
) -> None:
    kept = io.BytesIO()
    with serving(upstream.url, tmp_path, log=kept) as hosted, raw(hosted.address) as client:
        answer = client.ask(ASKED, headers=[("x-request-id", given.encode().decode("latin-1"))])
    told = answer.header("x-everlong-request-id")
    assert (told == given) is is_kept
    assert next(line for line in lines(kept) if line["event"] == "request")["id"] == told


def test_a_log_that_cannot_be_written_holds_up_nothing() -> None:
    class Full(io.RawIOBase):
        def write(self, _data: Any) -> int:
            raise OSError(28, "No space left on device")

    log = GatewayLog(Full(), "info")
    log.say("error", "something")


def test_a_request_is_one_line_for_people_with_its_client_and_no_number_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = io.BytesIO()
    log = GatewayLog(shown, "info", for_people=True)
    usage = Usage(input_tokens=1_249, output_tokens=189, cache_read_tokens=50_000)
    log.request(RequestAccount("req_1", program="claude-code", model="claude-sonnet-5", usage=usage, cost=0.1283))
    named, why = "claude-sonnet-4-5-20250929", ["overflow"]
    log.request(RequestAccount("req_2", program="sdk", model=named, usage=usage, cost=0.1283, compactions=why))
    log.say("info", "gateway", message="20261119_114034_1e690b compacted at 51,141 tokens (threshold)")
    request, cut, compaction = (line.split("  ", 1)[1] for line in shown.getvalue().decode().splitlines())
    assert request.startswith("claude-code  claude-sonnet-5  51,249 → 189, 98% cached  $0.1283  0.")
    assert cut.startswith("sdk  claude-sonnet-4-5-2025…  51,249 → ")
    assert len(cut) == 70
    assert compaction == "20261119_114034_1e690b compacted at 51,141 tokens (threshold)"
