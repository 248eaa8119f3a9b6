"""The doctor's check of channels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.channels.telegram_stand_in import TOKEN, TelegramStandIn
from tests.cli.conftest import Run, run

__all__ = ["run"]

ANNA = 501


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: TelegramStandIn) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("EVERLONG_HOME", str(folder))
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    monkeypatch.setenv("EVERLONG_CHANNELS__TELEGRAM__API_BASE", api.address)
    monkeypatch.chdir(tmp_path)
    return folder


def finding(run: Run) -> tuple[str, str]:
    found = [one for one in run("doctor", "--json").json["checks"] if one["name"] == "channels"]
    assert len(found) == 1
    return found[0]["state"], found[0]["text"]


def configured(home: Path, api: TelegramStandIn, more: str = "users: ['501']") -> None:
    lines = f"channels:\n  telegram:\n    enabled: true\n    api_base: {api.address}\n    {more}\n"
    (home / "config.yaml").write_text(lines, encoding="utf-8")


def test_the_doctor_says_whether_there_is_a_token(
    run: Run, api: TelegramStandIn, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, api)
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", TOKEN)
    known = "telegram: there is a token, 1 id on the list"
    assert finding(run) == ("ok", known)
    assert not api.counts
