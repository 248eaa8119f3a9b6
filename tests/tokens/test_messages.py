from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from everlong.tokens import MessageCounter
from everlong.tokens.media import DEFAULT_FILE_TOKENS, image_size, media_tokens
from everlong.tokens.messages import MESSAGE_OVERHEAD, REPLY_PRIMING


class Tally:
    """Counts characters, and how often it was asked."""

    name = "tally"
    exact = True

    def __init__(self) -> None:
        self.asked = 0

    def count_text(self, text: str) -> int:
        self.asked += 1
        return len(text)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_request_is_its_messages_its_tools_and_the_start_of_the_reply() -> None:
    counter = MessageCounter(Tally())
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    messages = [user("one"), user("three")]
    assert counter.total(messages) == 8 + 2 * MESSAGE_OVERHEAD + REPLY_PRIMING
    assert counter.total(messages, tools) - counter.total(messages) == counter.count_tools(tools) > 50


def test_text_parts_count_as_their_text_and_pictures_do_not_count_as_text() -> None:
    counter = MessageCounter(Tally())
    assert counter.count(user([{"type": "text", "text": "hello"}, "more"])) == 9 + MESSAGE_OVERHEAD
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500_000, "detail": "low"}}
    assert counter.count(user([picture])) == 85 + MESSAGE_OVERHEAD


def test_reasoning_counts_once_however_many_fields_repeat_it() -> None:
    counter = MessageCounter(Tally())
    plain = counter.count({"role": "assistant", "content": "done"})
    blocks = [{"type": "thinking", "thinking": "so and so", "signature": "x" * 400}]
    message = {"role": "assistant", "content": "done", "reasoning_content": "so and so", "thinking_blocks": blocks}
    assert counter.count(message) == plain + len("so and so")
    assert counter.count({"role": "assistant", "content": [*blocks, {"type": "text", "text": "done"}]}) == plain + 9


@pytest.mark.parametrize(
    "message",
    [
        user(7),
        user([[["deep"]]]),
        user([None, 3, "text", {"type": 5}, {"type": "image_url", "image_url": 9}]),
        user({"type": "text", "text": "alone"}),
        user("\ud800"),
        {},
        {"role": "assistant", "tool_calls": "broken"},
        {"role": "assistant", "tool_calls": [None, 5, "x", {}, {"function": None}, {"function": "x"}]},
        {"role": "assistant", "tool_calls": [{"id": None, "function": {"name": None, "arguments": {(1, 2): "x"}}}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": ["x"], "arguments": [1]}}]},
        {"role": "user", "name": ["x"], "content": object},
        "not a message",
        None,
    ],
)
def test_a_malformed_message_is_counted_as_far_as_it_goes(message: Any) -> None:
    assert MessageCounter().count(message) >= MESSAGE_OVERHEAD


def test_circles_and_deep_nesting_do_not_raise() -> None:
    circle: dict[str, Any] = {}
    circle["again"] = circle
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    call = {"id": "c", "function": {"name": "f", "arguments": circle}}
    assert MessageCounter().count({"role": "assistant", "tool_calls": [call], "content": deep}) > 0


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02" + bytes(3000)


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(100)


def jpeg(width: int, height: int) -> bytes:
    profile = b"\xff\xe1" + struct.pack(">H", 20_002) + bytes(20_000)
    return b"\xff\xd8" + profile + b"\xff\xc0\0\x11\x08" + struct.pack(">HH", height, width) + bytes(50)


def webp(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + size + bytes(50)


def linked(data: bytes, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded(data)}", **more}}


@pytest.mark.parametrize("picture", [png, gif, jpeg, webp])
def test_width_and_height_are_read_from_the_header(picture: Any) -> None:
    assert image_size(encoded(picture(640, 480))) == (640, 480)


def test_a_picture_is_counted_by_tiles_after_scaling() -> None:
    assert media_tokens(linked(png(512, 512))) == 85 + 170
    assert media_tokens(linked(png(1024, 1024))) == 85 + 4 * 170
    assert media_tokens(linked(png(2048, 4096))) == 85 + 6 * 170


def test_a_linked_or_broken_picture_gets_the_default() -> None:
    default = 85 + 4 * 170
    assert media_tokens({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}) == default
    assert media_tokens({"type": "image_url", "image_url": "data:image/png;base64,!!!"}) == default
    assert media_tokens({"type": "image_url"}) == default


def test_sound_is_counted_by_its_length() -> None:
    ten_seconds = encoded(bytes(480_000))
    part = {"type": "input_audio", "input_audio": {"data": ten_seconds, "format": "wav"}}
    assert media_tokens(part) == 100


def test_a_file_is_counted_by_its_size_and_by_a_default_if_only_named() -> None:
    data = "data:application/pdf;base64," + encoded(bytes(100_000))
    assert 3_000 < (media_tokens({"type": "file", "file": {"file_data": data}}) or 0) < 6_000
    assert media_tokens({"type": "file", "file": {"file_id": "file-1"}}) == DEFAULT_FILE_TOKENS
