"""Requests that nobody should send, and what is wrong with how they were answered.

Everything follows from a seed. A secret stands in every request; where it turns up in a log, that is a leak.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import logging
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.gateway.upstream import Exchange, Hangup
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from tests.gateway.running import Answer, Raw, Running

__all__ = ["SECRET", "Shot", "bomb", "listening", "outcome_of", "play", "shots", "upstream_script"]

SECRET = "sesame-8431"  # noqa: S105 - not one

_ROUTES = [
    "/v1/messages",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages/count_tokens",
    "/v1/models",
    "/healthz",
    "/readyz",
    "/metrics",
    "/",
    "/api/hello",
]
_METHODS = ["POST"] * 12 + [
    "GET",
    "HEAD",
    "PUT",
    "DELETE",
    "OPTIONS",
    "PATCH",
    "TRACE",
    "CONNECT",
    "post",
    "B\x00D",
    "É",
]
_ODD: list[Any] = [
    *(None, True, False, 0, -1, 1e308, 10**40, 0.1, "", " ", "\x00", "\ud800", "x" * 5_000, SECRET, [], {}, [[]]),
    *([None], {"": ""}, {"type": None}, {"type": "text"}, {"type": "text", "text": 5}, {"role": "user"}, [1, "a"]),
    *({"type": "tool_use"}, {"type": "tool_result", "content": {}}, {"type": "image", "source": 7}, "assistant"),
    *({"type": "thinking"}, {"cache_control": 1}, [{"type": "text", "text": None}], {"function": None}, "system"),
]


class Shot(NamedTuple):
    """One request, in the pieces in which it is sent."""

    pieces: list[bytes]
    is_whole: bool
    """Whether it has as many bytes as it says; whoever sends less may be waited for."""
    hangs_up: bool
    is_head: bool


def upstream_script(exchange: Exchange) -> None:
    """Answer something else every time, by what is asked."""
    rng = random.Random(zlib.crc32(exchange.received.body))  # from megabytes, it would hold up all other threads
    kind = rng.randrange(8)
    if kind == 0:
        exchange.answer(b'{"error":{"message":"upstream says no"}}', f"{rng.choice([400, 401, 413, 429, 503, 529])} No")
    elif kind == 1:
        exchange.stream(b"event: message_start\ndata: {}\n\n", b"data: [DONE]\n\n", b"event: message_stop\n\n")
    elif kind == 2:
        exchange.begin()
        exchange.chunk(b"data: {")
        exchange.cut()
    elif kind == 3:
        exchange.cut()
    elif kind == 4:
        exchange.answer(rng.randbytes(40), headers=[("content-encoding", rng.choice(["gzip", "br", "zstd"]))])
    else:
        exchange.answer(json.dumps(rng.choice(_ODD), default=str).encode() if kind == 5 else b'{"choices":[{}]}')


# -- requests ----------------------------------------------------------------------------------------------------------


def shots(seed: int, count: int) -> Iterator[Shot]:
    """So many requests."""
    for number in range(count):
        yield _shot(random.Random(f"{seed} {number}"))


def _shot(rng: random.Random) -> Shot:
    is_rude = rng.random() < 0.4  # else its HTTP is fine, and what it says is not
    method = rng.choice(_METHODS) if is_rude else "POST"
    path = _path(rng) if is_rude else rng.choice(_ROUTES[:3])
    version = rng.choice(["HTTP/1.1"] * 12 + ["HTTP/1.0", "HTTP/2.0", "HTP/1.1", ""]) if is_rude else "HTTP/1.1"
    head = f"{method} {path} {version}\r\n"
    headers, body, is_whole = _headers(rng, _body(rng), is_rude=is_rude)
    data = head.encode("utf-8", "surrogatepass") + headers + b"\r\n" + body
    if rng.random() < 0.05:
        place = rng.randrange(len(data))
        data, is_whole = data[:place] + rng.randbytes(rng.randrange(1, 9)) + data[place:], False
    pieces = [data]
    if rng.random() < 0.1:
        place = rng.randrange(len(data))
        pieces = [data[:place], data[place:]]
    hangs_up = rng.random() < 0.1
    if hangs_up:
        pieces[-1] = pieces[-1][: rng.randrange(len(pieces[-1]) + 1)]
    return Shot(pieces, is_whole, hangs_up, method == "HEAD")


def bomb(rng: random.Random) -> Shot:
    """Return a request whose structure takes long to read: very many values, deep ones, or packed ones."""
    count = rng.choice([20_000, 100_000, 400_000, 2_000_000])
    depth = rng.choice([200, 5_000, 200_000])
    contents: list[Callable[[], bytes]] = [
        lambda: b"[" + b"[]," * count + b"[]]",
        lambda: b"[{" + b",".join(b'"k%d":1' % number for number in range(count)) + b"}]",
        lambda: b"[" + b'{"type":"text","text":"x"},' * (count // 10) + b'{"type":"text","text":"x"}]',
        lambda: b"[" * depth + b"]" * depth,
        lambda: b'{"a":' * depth,
        lambda: b'"' + b"\\n" * count + b'"',
        lambda: b'"' + b"\\u4e2d" * (4 * count) + b'"',
        lambda: b'"' + b"\\ud800" * count + b'"',
        lambda: b'"' + b"aA" * count + b'"',
        lambda: b'"' + b"well, [yes] " * (count // 4) + b'"',
        lambda: b"[" + b"1e400," * count + b"1]",
    ]
    content = rng.choice(contents)()
    entry = b'{"role":"user","content":%s}' % content
    bodies: list[Callable[[], bytes]] = [
        lambda: b'{"model":"m","max_tokens":9,"messages":[%s],"input":[%s]}' % (entry, entry),
        lambda: b'{"model":"m","max_tokens":9,"tools":%s,"messages":[{"role":"user","content":"x"}]}' % content,
        lambda: b'{"model":"m","input":%s,"previous_response_id":"r"}' % content,
        lambda: b'{"model":"m","messages":[%s]}' % b",".join([b'{"role":"user","content":"x"}'] * (count // 20)),
        lambda: b'{%s,"messages":[]}' % b",".join(b'"f%d":0' % number for number in range(count // 10)),
    ]
    made = rng.choice(bodies)()
    lines = [b"host: localhost", b"content-type: application/json", b"authorization: Bearer " + SECRET.encode()]
    if rng.random() < 0.5:
        made = gzip.compress(made, 6)
        lines.append(b"content-encoding: gzip")
    if rng.random() < 0.2:
        lines.append(b"x-everlong: off")
    lines.append(b"content-length: %d" % len(made))
    head = b"POST %s HTTP/1.1\r\n" % rng.choice(_ROUTES[:4]).encode()
    return Shot([head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + made], True, False, False)


def _path(rng: random.Random) -> str:
    path = rng.choice(_ROUTES[:4] * 3 + _ROUTES)
    if rng.random() < 0.6:
        return path + rng.choice(["", "", "?beta=true", f"?q={SECRET}"])
    return rng.choice(
        [
            *(f"/{path}", f"{path}/", f"/..{path}", f"/v1/..{path}", f"{path}/../../../etc/passwd", f"{path}%00"),
            *(
                f"/%2e%2e{path}",
                path.replace("/", "%2f"),
                path.upper(),
                f"{path};a=b",
                f"{path}#{SECRET}",
                "*",
                path[1:],
            ),
            *(
                f"http://example.invalid{path}",
                f"http://user:{SECRET}@example.invalid:1{path}",
                f"//example.invalid{path}",
            ),
            *(f"{path}?{'a=b&' * 3_000}", f"/{'a' * 70_000}", f"{path}?\x01\x7f", f"{path} x", "", f"/{SECRET}/\ud800"),
            *(
                f"{path}?a=%zz&b=%",
                f"{path}\\..\\x",
                f"/@example.invalid{path}",
                f"{path}?a=\u00fc",
                "/v1/messages/batches",
            ),
        ]
    )


def _headers(rng: random.Random, body: bytes, *, is_rude: bool) -> tuple[bytes, bytes, bool]:
    lines = [b"host: localhost", b"authorization: Bearer " + SECRET.encode(), b"content-type: application/json"]
    framing = rng.random() * (1.0 if is_rude else 0.86)
    if framing < 0.8:
        lines.append(b"content-length: %d" % len(body))
    elif framing < 0.86:
        lines.append(b"transfer-encoding: chunked")
        size = rng.randrange(1, 500)
        chunks = [body[at : at + size] for at in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    else:
        bad = [
            b"content-length: -1",
            b"content-length: 1e3",
            b"content-length: 99999999999999999999",
            b"content-length:",
        ]
        twice = b"content-length: 5\r\ncontent-length: 6"
        both = b"content-length: 5\r\ntransfer-encoding: chunked"
        lines.append(rng.choice([*bad, twice, both, b"transfer-encoding: gzip, chunked", b"transfer-encoding: odd"]))
    odd = [
        *(
            b"x-odd: a\r\n b",
            b"x-odd: \x00",
            b"x-odd: \xff\xfe\xfd",
            b"x odd: 1",
            b": nameless",
            b"x-odd",
            b"x-odd: a\nx: b",
        ),
        *(b"x-long: " + b"a" * 70_000, b"\r\n".join(b"x-%d: 1" % n for n in range(200)), b"connection: close"),
        *(b"expect: 100-continue", b"expect: " + SECRET.encode(), b"upgrade: websocket\r\nconnection: upgrade"),
        *(
            b"content-encoding: gzip",
            b"content-encoding: br",
            b"content-encoding: gzip, gzip",
            b"accept-encoding: ,;q=x",
        ),
        *(b"x-everlong-session: " + rng.randbytes(6).hex().encode(), b"x-everlong-session: \xc3\x28" + b"z" * 900),
        *(
            b"x-claude-code-session-id: ../..",
            b"x-request-id: {}\r\nx-injected: 1",
            b"host: second",
            b"cookie: " + b"a=b;" * 99,
        ),
    ]
    lines += rng.sample(odd, rng.choice([0, 0, 1, 2])) if is_rude else []
    if rng.random() < 0.1:
        body = gzip.compress(body) if framing < 0.8 else body
        lines = [line for line in lines if not line.startswith((b"content-length", b"content-encoding"))]
        lines += [b"content-encoding: gzip", b"content-length: %d" % len(body)]
    return b"".join(line + b"\r\n" for line in lines), body, framing < 0.86


def _body(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.05:
        return rng.choice(
            [b"", b"null", b"[]", b"{}", b'"', b"[" * 20_000, b'{"a":' * 5_000, rng.randbytes(300), b"\xff"]
        )
    made = copy.deepcopy(_PLAIN)
    made["messages"] = made["input"] = made["messages"][: rng.randrange(1, len(made["messages"]) + 1)]
    for _ in range(rng.choice([0, 1, 1, 2, 5])):
        _break(rng, made)
    data = json.dumps(made, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if kind < 0.15:
        place = rng.randrange(len(data))
        data = rng.choice([data[:place], data[:place] + rng.randbytes(3) + data[place:], data + data[place:]])
    return data


def _break(rng: random.Random, value: Any) -> None:
    """Put something odd somewhere into a value."""
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.75:
            value = value[key]
            continue
        if rng.random() < 0.2:
            del value[key]
        else:
            value[key] = copy.deepcopy(rng.choice(_ODD))
        return


_PLAIN: dict[str, Any] = {
    "model": "m",
    "max_tokens": 10,
    "system": [{"type": "text", "text": f"You know {SECRET}."}],
    "stream": False,
    "metadata": {"user_id": "user_1_account__session_2"},
    "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    "previous_response_id": "resp_1",
    "messages": [
        {"role": "user", "content": f"The word is {SECRET}."},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Yes."}, {"type": "tool_use", "id": "t", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text"}]}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
        {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "AA=="}}]},
    ],
}


# -- answers -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """Everything that is logged meanwhile, as it would be written."""
    lines: list[str] = []
    formatter = logging.Formatter()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(formatter.format(record))

    listener, root = Listener(logging.INFO), logging.getLogger()
    level = root.level
    root.addHandler(listener)
    root.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        root.removeHandler(listener)
        root.setLevel(level)


def play(running: Running, seed: int, count: int) -> tuple[Counter[str], list[str]]:
    """Send so many odd requests; how they were answered, and what was wrong with that."""
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    with listening() as lines:
        for number, shot in enumerate(shots(seed, count)):
            outcome = _outcome(running, shot)
            outcomes[outcome] += 1
            if outcome in {"500", "hang"}:
                problems.append(f"seed {seed}, request {number}: {outcome} for {b''.join(shot.pieces)[:300]!r}")
            if number % 200 == 199 and _plain_outcome(running) != "200":
                problems.append(f"seed {seed}: no answer to a plain request after {number + 1} odd ones")
    problems += [f"seed {seed}: logged {line[-400:]!r}" for line in lines if SECRET in line]
    problems += [f"seed {seed}: a traceback was logged: {line[-600:]}" for line in lines if "Traceback" in line][:5]
    return outcomes, problems


def _outcome(running: Running, shot: Shot) -> str:
    return outcome_of(running.raw, shot)


def outcome_of(connect: Callable[[], Raw], shot: Shot, patience: float = PATIENCE) -> str:
    """Send a request; the status that it was answered with, or what became of it."""
    try:
        with connect() as raw:
            for piece in shot.pieces:
                raw.send(piece)
            if shot.hangs_up:
                return "left"
            raw.wire.socket.settimeout(patience if shot.is_whole else 0.2)
            return _told(raw, is_head=shot.is_head)
    except Hangup:
        return "closed"
    except TimeoutError:
        return "hang" if shot.is_whole else "waits"
    except OSError:
        return "closed"


def _told(raw: Raw, *, is_head: bool) -> str:
    answer: Answer = raw.head()
    while answer.status == 100:
        answer = raw.head()
    if not is_head and answer.status not in {204, 304}:
        raw.rest_of(answer)
    return str(answer.status)


def _plain_outcome(running: Running) -> str:
    with running.raw() as raw:
        return str(raw.ask(b"", "/healthz", method="GET").status)
