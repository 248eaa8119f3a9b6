"""``everlong setup telegram`` and the doctor's check of channels, without a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyring.backends import fail

from everlong.config import load_settings
from tests.channels.telegram_stand_in import BOT_ID, BOT_NAME, TOKEN, TelegramStandIn, stand_in
from tests.cli.conftest import Run, run
from tests.cli.test_auth import InMemory, ring

__all__ = ["ring", "run"]

ANNA, GROUP = 501, -1001


@pytest.fixture
def api() -> Iterator[TelegramStandIn]:
    with stand_in() as server:
        server.private_chat(ANNA, "Anna")
        server.group(GROUP, title="The harbour")
        yield server


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def set_up(run: Run, api: TelegramStandIn, *options: str, token: str = TOKEN) -> Any:
    return run("setup", "telegram", "--api-base", api.address, *options, stdin=f"{token}\n".encode())


def written(home: Path) -> str:
    path = home / "config.yaml"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def test_a_bot_is_set_up_in_one_line(run: Run, api: TelegramStandIn, home: Path, ring: InMemory) -> None:
    ran = set_up(run, api, "--user", str(ANNA), "--chat", str(GROUP))
    assert ran.code == 0, ran.err
    assert f"the bot is @{BOT_NAME} (id {BOT_ID})" in ran.err
    assert "user 501: Anna" in ran.err
    assert "chat -1001: The harbour" in ran.err
    assert list(ring.kept.values()) == [TOKEN]
    assert TOKEN not in written(home) + ran.err + ran.out
    telegram = load_settings().settings.channels.telegram
    assert (telegram.users, telegram.chats) == (["501"], ["-1001"])
    assert telegram.enabled


def test_comments_and_others_on_the_list_stay(run: Run, api: TelegramStandIn, home: Path, ring: InMemory) -> None:
    del ring
    text = "# mine\nagent: {max_steps: 7}  # few\nchannels:\n  telegram:\n    users: ['9']  # Ben\n  reset: idle:8\n"
    (home / "config.yaml").write_text(text, encoding="utf-8")
    assert set_up(run, api, "--user", str(ANNA)).code == 0
    for part in ("# mine", "# few", "# Ben", "reset: idle:8"):
        assert part in written(home)
    assert load_settings().settings.channels.telegram.users == ["9", "501"]
    before = written(home)
    assert set_up(run, api, "--user", str(ANNA)).code == 0
    assert written(home) == before


def test_a_wrong_token_writes_nothing(run: Run, api: TelegramStandIn, home: Path, ring: InMemory) -> None:
    for token in ("123:wrong", "nonsense"):
        ran = set_up(run, api, "--user", "1", token=token)
        assert ran.code == 1
        assert "BotFather" in ran.err
    assert ring.kept == {}
    assert written(home) == ""


@pytest.mark.parametrize(
    ("options", "token", "said"),
    [
        (["--user", "anna"], TOKEN, "an id is a number"),
        ([], TOKEN, "--user ID"),
        (["--user", "1"], "", "TELEGRAM_BOT_TOKEN"),
        (["--guild", "1"], TOKEN, "--chat"),
        (["--write"], TOKEN, "are for clients"),
    ],
)
def test_what_is_missing_is_named(
    run: Run, api: TelegramStandIn, home: Path, ring: InMemory, options: list[str], token: str, said: str
) -> None:
    ran = set_up(run, api, *options, token=token)
    assert ran.code == 2
    assert said in ran.err
    assert ring.kept == {}
    assert written(home) == ""


def test_an_id_that_the_bot_does_not_see_is_told_and_written(
    run: Run, api: TelegramStandIn, home: Path, ring: InMemory
) -> None:
    del home, ring
    ran = set_up(run, api, "--user", "77")
    assert ran.code == 0
    assert "has not written to the bot yet" in ran.err
    assert load_settings().settings.channels.telegram.users == ["77"]


def test_the_options_of_channels_are_for_channels(run: Run, home: Path) -> None:
    del home
    ran = run("setup", "codex", "--user", "1")
    assert ran.code == 2
    assert "telegram and discord" in ran.err


def test_without_a_keyring_the_variable_is_named(
    run: Run, api: TelegramStandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del home
    monkeypatch.setattr(keyring.core, "_keyring_backend", fail.Keyring())  # type: ignore[no-untyped-call]
    ran = set_up(run, api, "--user", str(ANNA))
    assert ran.code == 0
    assert "set TELEGRAM_BOT_TOKEN where the bot runs" in ran.err
    assert TOKEN not in ran.err


# -- the doctor --------------------------------------------------------------------------------------------------------
def finding(run: Run, *options: str) -> tuple[str, str]:
    found = [one for one in run("doctor", "--json", *options).json["checks"] if one["name"] == "channels"]
    assert len(found) == 1
    return found[0]["state"], found[0]["text"]


def configured(home: Path, api: TelegramStandIn, more: str = "users: ['501']") -> None:
    lines = f"channels:\n  telegram:\n    enabled: true\n    api_base: {api.address}\n    {more}\n"
    (home / "config.yaml").write_text(lines, encoding="utf-8")


def test_the_doctor_has_nothing_to_say_of_channels_that_are_off(run: Run, home: Path) -> None:
    del home
    assert finding(run) == ("ok", "none is switched on; everlong setup telegram or discord sets one up")


def test_the_doctor_misses_a_token(run: Run, api: TelegramStandIn, home: Path, ring: InMemory) -> None:
    del ring
    configured(home, api)
    assert finding(run) == (
        "fail",
        "there is no token for telegram; set TELEGRAM_BOT_TOKEN, or store one with: everlong setup telegram",
    )


def test_the_doctor_asks_the_platform(
    run: Run, api: TelegramStandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, api)
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    known = "telegram: a token from env TELEGRAM_BOT_TOKEN, 1 id on the list"
    assert finding(run) == ("ok", known)
    assert not api.counts
    assert finding(run, "--call") == ("ok", f"{known}; the bot is {BOT_NAME}")
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "1:wrong")
    state, text = finding(run, "--call")
    assert state == "fail"
    assert "does not know this token" in text


def test_the_doctor_warns_of_an_empty_list(
    run: Run, api: TelegramStandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    configured(home, api, "users: []")
    state, text = finding(run)
    assert (state, "0 ids on the list" in text) == ("warn", True)
