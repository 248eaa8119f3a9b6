"""A body that the gateway cannot read goes on as it came, and its client is told that it is not stored."""

from __future__ import annotations

import pytest

from tests.gateway.running import Raw, Running
from tests.gateway.upstream import Upstream

PATHS = ["/v1/messages", "/v1/chat/completions", "/v1/responses"]
SAID = b'[{"role":"user","content":"hi"}]'
WHOLE = b'{"model":"m","max_tokens":9,"messages":%b,"input":%b}' % (SAID, SAID)
BODIES = {
    "a name twice": b'{"model":"m",' + WHOLE[1:],
    "a list twice": WHOLE[:-1] + b',"messages":[],"input":[]}',
    "a byte-order mark": b"\xef\xbb\xbf" + WHOLE,
    "no UTF-8": WHOLE.replace(b'"hi"', b'"h\xff"'),
    "half of a character": WHOLE.replace(b'"hi"', b'"h\xed\xa0\x80"'),
    "half of a character in a field": WHOLE.replace(b"9", b'"\xed\xa0\x80"'),
    "no JSON": b"hello",
    "another encoding": b"\x01\x02",
}


@pytest.mark.spec("12.7")
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_cannot_be_read_is_passed_on_with_a_warning(
    path: str, kind: str, relay: Running, raw: Raw, upstream: Upstream, caplog: pytest.LogCaptureFixture
) -> None:
    headers = [("content-encoding", "snappy")] if kind == "another encoding" else []
    answer = raw.ask(BODIES[kind], path, headers)
    assert (answer.status, upstream.last.body) == (200, BODIES[kind])
    assert str(answer.header("x-everlong-warning")).startswith("not stored: ")
    assert "not stored" in caplog.text
    assert not list(relay.store().turns.since())
