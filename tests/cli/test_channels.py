from __future__ import annotations

import json

import pytest

from everlong.config import catalog
from everlong.config.trust import may_set
from tests.cli.conftest import Run, run

__all__ = ["run"]


@pytest.mark.spec("12.1")
def test_no_folder_may_set_anything_about_channels() -> None:
    keys = [key for key in catalog() if key.startswith("channels.")]
    assert len(keys) > 20
    assert not any(may_set(key) for key in keys)


def test_run_without_a_channel_says_how_to_set_one_up(run: Run) -> None:
    done = run("channels", "run")
    assert done.code != 0
    assert "everlong setup telegram" in done.err


def test_run_without_a_token_says_where_it_comes_from(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    monkeypatch.setenv("EVERLONG_CHANNELS__TELEGRAM__ENABLED", "true")
    done = run("channels", "run")
    assert done.code != 0
    assert "TELEGRAM_BOT_TOKEN" in done.err


def test_pair_prints_a_code_and_list_shows_the_channels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    refused = run("channels", "pair", "telegram")
    assert (refused.code, refused.out) == (1, "")
    assert "everlong setup telegram" in refused.err, "without a bot nobody could read a code"
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123:made-up")
    code = run("channels", "pair", "telegram").out.strip()
    assert len(code) == 8
    listed = json.loads(run("channels", "list", "--json").out)
    assert listed["telegram"]["enabled"] is False
    assert listed["discord"]["paired"] == []
    assert code not in json.dumps(listed)
    assert "telegram: not enabled" in run("channels", "list").out
    assert run("channels", "pair", "telegram", "--remove", "42").code != 0


@pytest.mark.parametrize(("chat", "text", "told"), [("404", "hello", "is not known"), ("404", "  ", "is empty")])
def test_send_refuses_an_unknown_chat_and_an_empty_text(run: Run, chat: str, text: str, told: str) -> None:
    done = run("channels", "send", "telegram", chat, text)
    assert done.code != 0
    assert told in done.err
