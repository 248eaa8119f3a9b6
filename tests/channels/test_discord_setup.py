"""``everlong setup discord`` without a terminal, against the stand-in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from everlong.config import load_settings
from tests.channels.discord_stand_in import TOKEN, DiscordStandIn, discord_stand_in
from tests.cli.conftest import Run, run

__all__ = ["run"]


@pytest.fixture
def discord() -> Iterator[DiscordStandIn]:
    with discord_stand_in() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, discord: DiscordStandIn) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.delenv("DISCORD_BOT_TOKEN", raising=False)
    monkeypatch.setenv("EVERLONG_CHANNELS__DISCORD__API_BASE", discord.api)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_bot_is_set_up_with_people_and_servers(run: Run, discord: DiscordStandIn, home: Path) -> None:
    ada, guild = discord.add_person("ada"), discord.add_guild("the lab")
    (home / "config.yaml").write_text("# mine\nchannels:\n  discord:\n    chats: ['7']  # quiet\n", encoding="utf-8")
    ran = run("setup", "discord", "--user", ada, "--guild", guild, stdin=f"{TOKEN}\n".encode())
    assert ran.code == 0, ran.err
    for part in ("the bot is everlong", f"user {ada}: Ada", f"guild {guild}: the lab"):
        assert part in ran.err
    assert f"client_id={discord.bot['id']}&scope=bot+applications.commands&permissions=274878024704" in ran.err
    assert "set DISCORD_BOT_TOKEN" in ran.err
    text = (home / "config.yaml").read_text(encoding="utf-8")
    assert "# mine" in text
    assert "# quiet" in text
    assert TOKEN not in text + ran.err + ran.out
    settings = load_settings().settings.channels.discord
    assert (settings.users, settings.guilds, settings.enabled) == ([ada], [guild], True)


@pytest.mark.parametrize(
    ("token", "allows_content", "said"),
    [("wrong", True, "refuses the bot's token"), (TOKEN, False, "MESSAGE CONTENT INTENT")],
)
def test_a_bot_that_cannot_work_is_not_written(
    run: Run, discord: DiscordStandIn, home: Path, token: str, allows_content: bool, said: str
) -> None:
    discord.allows_content = allows_content
    ran = run("setup", "discord", "--user", "1", stdin=f"{token}\n".encode())
    assert ran.code == 1
    assert said in ran.err
    assert not (home / "config.yaml").exists()
