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
    assert {"channels.tools", "channels.telegram.users", "channels.discord.users"} <= {*keys}
    assert not any(may_set(key) for key in keys)


def test_pair_prints_a_code_and_list_shows_the_channels(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TELEGRAM_BOT_TOKEN", raising=False)
    refused = run("channels", "pair", "telegram")
    assert (refused.code, refused.out) == (1, "")
    assert "set TELEGRAM_BOT_TOKEN" in refused.err, "without a bot nobody could read a code"
    monkeypatch.setenv("TELEGRAM_BOT_TOKEN", "123:made-up")
    code = run("channels", "pair", "telegram").out.strip()
    assert len(code) == 8
    listed = json.loads(run("channels", "list", "--json").out)
    assert listed["telegram"]["enabled"] is False
    assert listed["discord"]["paired"] == []
    assert code not in json.dumps(listed)
    assert "telegram: not enabled" in run("channels", "list").out
    assert run("channels", "pair", "telegram", "--remove", "42").code != 0
