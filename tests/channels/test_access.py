from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from everlong.channels.access import CODE_SECONDS, Access
from everlong.channels.platform import Attachment, Person
from everlong.config.settings import TelegramSettings
from everlong.store import Store
from everlong.store.schema import channel_update
from everlong.testing import ScriptedModel
from tests.channels.conftest import Clock, Opened, hear
from tests.channels.recorder import RecordingPlatform
from tests.channels.test_queueing import words

STRANGER = Person("666", "Mallory")


def stored(store: Store) -> int:
    with store.database.read() as connection:
        return len(connection.execute(select(channel_update.c.id)).all())


async def test_a_stranger_gets_nothing_and_leaves_nothing(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    model = ScriptedModel(words)
    server = serve(model)
    async with opened(server, platform) as channel:
        for text in ("hello", "/help", "/start", "/pair", "ABCDEFGH", ""):
            await channel.receive(platform.message(text, "77", STRANGER))
        await hear(
            channel,
            platform.message("hi all", "-9", STRANGER, is_private=False),
            platform.message("", "77", STRANGER, kind="button", button="ask:x:y"),
            platform.message("I am a bot", "10", Person("1", "Ada", is_bot=True)),
        )
    assert (platform.requests, platform.acknowledged, len(model.asked), stored(store)) == ([], [], 0, 0)


async def test_a_group_message_that_is_not_for_the_bot_is_not_stored(
    opened: Opened, platform: RecordingPlatform, store: Store, serve: Any
) -> None:
    server = serve(words)
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("lunch?", "-9", is_private=False, is_addressed=False))
        assert (platform.requests, stored(store)) == ([], 0)
    async with opened(server, platform, channels={"groups": "all"}) as channel:
        await hear(channel, platform.message("lunch?", "-9", is_private=False, is_addressed=False))
        assert platform.texts("-9") == ["lunch?"]


async def test_a_code_from_the_terminal_lets_one_person_in(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    server = serve(words)
    async with opened(server, platform) as channel:
        code = channel.access.make_code()
        await hear(
            channel,
            platform.message(code, "-9", STRANGER, is_private=False),
            platform.message(code, "77", STRANGER, is_forwarded=True),
        )
        assert platform.requests == []
        await hear(
            channel,
            platform.message(f"/pair {code.lower()}", "77", STRANGER),
            platform.message("hello", "77", STRANGER),
            platform.message(code, "88", Person("667")),
        )
        assert platform.texts("77")[0].startswith("You are in")
        assert platform.texts("77")[1] == "hello"
        assert platform.texts("88") == []
        assert [guest.id for guest in channel.access.guests()] == ["666"]
        assert channel.access.remove("666")
        await hear(channel, platform.message("hello?", "77", STRANGER))
        assert len(platform.texts("77")) == 2


def test_a_code_runs_out_and_cannot_be_guessed(store: Store, platform: RecordingPlatform, clock: Clock) -> None:
    access = Access(store, "telegram", TelegramSettings(), clock.now)
    code = access.make_code()
    for _ in range(10):
        assert not access.admit(platform.message("AAAAAAAA", "77", STRANGER))
    assert not access.admit(platform.message(code, "77", STRANGER))
    code = access.make_code()
    clock.time += CODE_SECONDS + 1
    assert not access.admit(platform.message(code, "77", STRANGER))
    assert access.guests() == []


async def test_a_forwarded_command_is_no_command(opened: Opened, platform: RecordingPlatform, serve: Any) -> None:
    model = ScriptedModel(words)
    server = serve(model)
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("remember me"))
        bound = channel.places.all("telegram")[0].conversation
        await hear(channel, platform.message("/reset", is_forwarded=True))
        assert channel.places.all("telegram")[0].conversation == bound
    assert platform.texts() == ["remember me", "<forwarded>\n/reset\n</forwarded>"]
    assert "words of somebody else" in model.asked[-1].last_user


async def test_a_huge_file_is_refused_with_one_reply_and_never_fetched(
    opened: Opened, platform: RecordingPlatform, serve: Any
) -> None:
    model = ScriptedModel(words)
    server = serve(model)
    huge = Attachment("document", "film.mkv", "video/x-matroska", 50_000_000, "f1")
    unstated = Attachment("document", "film.mkv", "video/x-matroska", 0, "f2")
    platform.files["f2"] = b"\0" * 21_000_000
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("", attachments=(huge,)))
        await hear(channel, platform.message("", attachments=(unstated,)))
    first, second = platform.texts()
    assert first == "The file film.mkv is too large: I take up to 20 MB."
    assert second == "I could not take a file: it is too large."
    assert [values.reference for method, values in platform.requests if method == "fetch"] == ["f2"]
    assert len(model.asked) == 0


async def test_files_are_stored_and_shown_and_voice_is_left_out_politely(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Any
) -> None:
    model = ScriptedModel("seen")
    server = serve(model)
    png = b"\x89PNG\r\n\x1a\n" + b"x" * 40
    platform.files |= {"i": png, "t": "Grüße aus Wien".encode(), "b": b"\0\1\2"}
    files = (
        Attachment("image", "cat.png", "image/png", 48, "i"),
        Attachment("document", "../../letter.txt", "text/plain", 16, "t"),
        Attachment("document", "data.bin", "application/octet-stream", 3, "b"),
    )
    async with opened(server, platform) as channel:
        await hear(channel, platform.message("look", attachments=files))
        await hear(channel, platform.message("", attachments=(Attachment("voice", "", "audio/ogg", 9, "v"),)))
    assert platform.texts() == ["seen", "I cannot listen to voice messages; please write it."]
    assert len(model.asked) == 1
    (ask,) = model.asked
    assert "data:image/png;base64," in str(ask.body)
    assert "Grüße aus Wien" in ask.last_user
    received = tmp_path / "home" / "channels" / "telegram" / "10" / "received"
    assert sorted(path.name.partition("-")[2] for path in received.iterdir()) == ["cat.png", "data.bin", "letter.txt"]


@pytest.mark.parametrize("planted", ["received", "received/{message}-letter.txt"])
async def test_a_file_of_a_message_is_written_through_no_link_that_a_command_has_planted(
    opened: Opened, platform: RecordingPlatform, serve: Any, tmp_path: Path, planted: str
) -> None:
    server = serve(words)
    root, outside = tmp_path / "home" / "channels" / "telegram" / "10", tmp_path / "outside"
    outside.mkdir()
    (outside / "settings").write_text("mine")
    platform.files["letter"] = b"evil"
    event = platform.message("", attachments=(Attachment("document", "letter.txt", "text/plain", 4, "letter"),))
    link = root / planted.format(message=event.message)
    link.parent.mkdir(parents=True)
    link.symlink_to(outside if planted == "received" else outside / "settings")
    async with opened(server, platform) as channel:
        await hear(channel, event)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"settings": "mine"}
    assert "could not store the file letter.txt" in platform.texts()[-1]
