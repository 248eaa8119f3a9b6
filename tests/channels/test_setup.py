"""``everlong setup telegram`` and the doctor's check of channels, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from everlong.config import load_settings
from tests.channels.telegram_stand_in import BOT_ID, BOT_NAME, TOKEN, TelegramStandIn, stand_in
from tests.cli.conftest import Run, run

__all__ = ["run"]

ANNA, GROUP = 501, -1001


@pytest.fixture
def api() -> Iterator[TelegramStandIn]:
    with stand_in() as server:
        server.private_chat(ANNA, "Anna")
        server.group(GROUP, title="The harbour")
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: TelegramStandIn) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    monkeypatch.setenv("EVERLONG_CHANNELS__TELEGRAM__API_BASE", api.address)
    monkeypatch.chdir(tmp_path)
    return folder


def set_up(run: Run, *options: str, token: str = TOKEN) -> Any:
    return run("setup", "telegram", *options, stdin=f"{token}\n".encode())


def written(home: Path) -> str:
    path = home / "config.yaml"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_a_bot_is_set_up_in_one_line(run: Run, home: Path) -> None:
    ran = set_up(run, "--user", str(ANNA), "--chat", str(GROUP))
    assert ran.code == 0, ran.err
    assert f"the bot is @{BOT_NAME} (id {BOT_ID})" in ran.err
    assert "user 501: Anna" in ran.err
    assert "chat -1001: The harbour" in ran.err
    assert "set TELEGRAM_BOT_TOKEN" in ran.err
    assert TOKEN not in written(home) + ran.err + ran.out
    telegram = load_settings().settings.channels.telegram
    assert (telegram.users, telegram.chats) == (["501"], ["-1001"])
    assert telegram.enabled


def test_a_wrong_token_writes_nothing(run: Run, home: Path) -> None:
    for token in ("123:wrong", "nonsense"):
        ran = set_up(run, "--user", "1", token=token)
        assert ran.code == 1
        assert "BotFather" in ran.err
    assert written(home) == ""


# -- the doctor --------------------------------------------------------------------------------------------------------
def finding(run: Run, *options: str) -> tuple[str, str]:
    found = [one for one in run("doctor", "--json", *options).json["checks"] if one["name"] == "channels"]
    assert len(found) == 1
    return found[0]["state"], found[0]["text"]


def configured(home: Path, api: TelegramStandIn, more: str = "users: ['501']") -> None:
    lines = f"channels:\n  telegram:\n    enabled: true\n    api_base: {api.address}\n    {more}\n"
    (home / "config.yaml").write_text(lines, encoding="utf-8")


def test_the_doctor_says_where_the_token_is_from(
    run: Run, api: TelegramStandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, api)
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    known = "telegram: there is a token, 1 id on the list"
    assert finding(run) == ("ok", known)
    assert not api.counts
