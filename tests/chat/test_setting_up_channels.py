"""``everlong setup telegram`` at a real terminal: a token is asked for and checked."""

from __future__ import annotations

from pathlib import Path

from tests.channels.telegram_stand_in import BOT_NAME, TOKEN, stand_in
from tests.chat.conftest import Open


def test_a_person_is_led_to_a_bot(terminal: Open, home: Path) -> None:
    with stand_in() as api:
        found = terminal(110, 40)
        address = f"import os\nos.environ['EVERLONG_CHANNELS__TELEGRAM__API_BASE'] = {api.address!r}\n"
        found.start("setup", "telegram", first=address)
        found.wait("@BotFather", "Token of the Telegram bot")
        found.enter("123:not-the-token")
        found.wait("does not know this token")
        found.enter(TOKEN)
        found.wait(f"the bot is @{BOT_NAME}", "everlong channels pair telegram")
        assert found.wait_exit() == 0
        seen = found.everything()
    assert TOKEN not in seen
    assert "set TELEGRAM_BOT_TOKEN" in seen
    written = next(home.rglob("config.yaml")).read_text(encoding="utf-8")
    assert "enabled: true" in written
