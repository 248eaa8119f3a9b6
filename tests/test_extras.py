"""The command that adds an extra, for each way in which Everlong may be installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlong.extras import install_command


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/mira/project/.venv", "pip install 'everlong[gateway]'"),
        ("/home/mira/.local/share/pipx/venvs/everlong", "pipx inject everlong aiohttp brotli tomlkit"),
        (
            "/home/mira/.local/share/uv/tools/everlong",
            "uv pip install --python /home/mira/.local/share/uv/tools/everlong aiohttp brotli tomlkit",
        ),
    ],
)
def test_the_command_fits_how_this_copy_was_installed(prefix: str, command: str) -> None:
    assert install_command("gateway", Path(prefix)) == command
