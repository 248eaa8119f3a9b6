from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from everlong.channels.platform import Person
from everlong.channels.questions import CLOSED, NOT_NAMED, NOT_YOURS
from everlong.testing import Answer, Ask, Call, ScriptedModel
from tests.channels.conftest import Clock, Opened, hear, until
from tests.channels.recorder import ADA, BOB, RecordingPlatform


def writing(ask: Ask) -> Answer:
    """Ask for a file to be written; then tell what came of it."""
    if ask.results:
        return Answer(f"result: {ask.results[-1][1]}")
    if "write_file" not in ask.tools:
        return Answer("no such tool")
    return Answer("", [Call("write_file", {"path": "note.txt", "content": "hello"})])


def note(tmp_path: Path) -> Path:
    return tmp_path / "home" / "channels" / "telegram" / "10" / "note.txt"


async def test_only_the_person_who_asked_can_allow_a_call(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path
) -> None:
    server = serve(ScriptedModel(writing))
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("write it", person=ADA))
        await until(lambda: platform.button("Allow")[0])
        await channel.receive(platform.press("Allow", BOB))
        await channel.receive(platform.press("Allow", ADA, chat="20"))
        assert [text for _, text in platform.acknowledged] == [NOT_YOURS, CLOSED]
        assert not note(tmp_path).exists()
        press = platform.press("Allow", ADA)
        await hear(channel, press)
        assert note(tmp_path).read_text() == "hello"
        await channel.receive(press)
        assert platform.acknowledged[-1][1] == CLOSED
        await until(lambda: any("→ allowed" in text for text in platform.texts()))
        assert not any(one.buttons for one in platform.shown.values())


@pytest.mark.parametrize("answer", ["Refuse", "nothing", "stop"])
async def test_a_call_that_is_not_allowed_is_not_made(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path, clock: Clock, answer: str
) -> None:
    server = serve(ScriptedModel(writing))
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("write it"))
        await until(lambda: platform.button("Refuse")[0])
        if answer == "nothing":
            clock.time += 601
            await channel.tick()
        else:
            await channel.receive(platform.press(answer) if answer == "Refuse" else platform.message("/stop"))
        await channel.settle()
    assert not note(tmp_path).exists()
    told = platform.texts()
    expected = {"Refuse": "said no", "nothing": "pressed a button in time", "stop": "(Stopped.)"}[answer]
    assert any(expected in text for text in told), told


@pytest.mark.parametrize(
    ("policy", "said"), [("yes", "Made note.txt"), ("read", "may only read"), ("never", "no such tool")]
)
async def test_a_policy_decides_without_asking(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path, policy: str, said: str
) -> None:
    server = serve(ScriptedModel(writing))
    async with opened(server, platform, channels={"tools": policy}) as channel:
        await hear(channel, platform.message("write it"))
    (text,) = platform.texts()
    assert said in text
    assert note(tmp_path).exists() == (policy == "yes")


def calling(tool: str, **arguments: Any) -> Any:
    """Make one call in every turn; then tell what came of it."""

    def answer(ask: Ask) -> Answer:
        if ask.body["messages"][-1].get("role") == "tool":
            return Answer(f"result: {ask.results[-1][1]}")
        return Answer("", [Call(tool, arguments)])

    return answer


@pytest.mark.parametrize("lines", [200, 4_000])
async def test_the_whole_of_a_long_call_is_in_sight_before_it_can_be_allowed(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path, lines: int
) -> None:
    content = "harmless \u202e line\n" * lines + "the last words"
    server = serve(ScriptedModel(calling("write_file", path="note.txt", content=content)))
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("write it"))
        message, _ = await until(lambda: next((one for one in [platform.button("Allow")] if one[0]), None))
        ((place, file),) = [(key, one.data.decode()) for key, one in platform.shown.items() if one.data is not None]
        assert int(place) < int(message), "the file comes before the buttons"
        assert file.count("+harmless \\u202e line") == lines
        assert "+the last words" in file
        assert "in the file above" in platform.shown[message].text
        await hear(channel, platform.press("Allow"))
        assert note(tmp_path).read_text() == content


async def test_a_call_that_cannot_be_shown_whole_is_refused(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path
) -> None:
    platform.limits = replace(platform.limits, upload=10_000)
    server = serve(ScriptedModel(calling("write_file", path="note.txt", content="x" * 10_000)))
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("write it"))
    assert "too long to be shown" in platform.texts()[-1]
    assert not note(tmp_path).exists()


async def test_an_always_is_for_the_calls_of_the_member_who_pressed_it(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    server = serve(ScriptedModel(calling("run_command", command="true")))
    async with opened(server, platform) as channel:
        await channel.receive(platform.message("do it", person=ADA, is_private=False))
        await until(lambda: platform.button("Always here")[0])
        await hear(channel, platform.press("Always here", ADA))
        await hear(channel, platform.message("do it again", person=ADA, is_private=False))
        assert sum("exit code 0" in text for text in platform.texts()) == 2
        await channel.receive(platform.message("do it for me", person=BOB, is_private=False))
        await until(lambda: platform.button("Allow")[0])
        await channel.receive(platform.press("Allow", ADA))
        assert platform.acknowledged[-1][1] == NOT_YOURS
        await hear(channel, platform.press("Refuse", BOB))
        assert sum("exit code 0" in text for text in platform.texts()) == 2


async def test_a_message_of_nobody_known_causes_no_call(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path
) -> None:
    server = serve(ScriptedModel(writing))
    async with opened(server, platform, channels={"telegram": {"chats": ["10"]}}) as channel:
        await hear(channel, platform.message("write it", person=Person(""), is_private=False))
    assert not note(tmp_path).exists()
    assert "nobody" in platform.texts()[-1]


async def test_a_member_who_was_not_let_in_by_name_allows_nothing_and_an_owner_decides(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path
) -> None:
    server = serve(ScriptedModel(writing))
    member = Person("7", "Mallory")
    async with opened(server, platform, channels={"telegram": {"users": ["1"], "chats": ["10"]}}) as channel:
        await channel.receive(platform.message("write it", person=member, is_private=False))
        await until(lambda: platform.button("Allow")[0])
        assert platform.button("Always here")[0] == ""
        for person in (member, BOB):
            await channel.receive(replace(platform.press("Allow", person), is_private=False))
            assert platform.acknowledged[-1][1] == NOT_NAMED
        assert not note(tmp_path).exists()
        await hear(channel, replace(platform.press("Allow", ADA), is_private=False))
        assert note(tmp_path).read_text() == "hello"
