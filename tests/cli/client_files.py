"""Configuration files of clients as people have them: with comments, and with much that is none of our business."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

PLACES = (
    "CLAUDE_CONFIG_DIR",
    "CLINE_DATA_DIR",
    "CLINE_PROVIDER_SETTINGS_PATH",
    "CODEX_API_KEY",
    "CODEX_HOME",
    "LLM_USER_PATH",
    "MSWEA_GLOBAL_CONFIG_DIR",
    "OPENCODE_CONFIG_CONTENT",
    "PI_CODING_AGENT_DIR",
    "XDG_CONFIG_HOME",
)
"""Variables by which clients are led to other places than the usual ones."""

FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "pi": ".pi/agent/models.json",
    "aider": ".aider.conf.yml",
    "cline": ".cline/data/settings/providers.json",
}
"""Where each client has its file on Linux."""

EXISTING = {
    "claude-code": """{
    "permissions": {"allow": ["Bash(ls:*)"], "deny": []},
    "env": {
        "MY_OWN": "1"
    },
    "model": "opus"
}
""",
    "codex": """# my settings
model = "gpt-5"   # the best one

[tui]
theme = 'dark'    # easy on the eyes

[mcp_servers.docs]
command = "docs"
args = ["--all", ]
""",
    "opencode": """{
  "$schema": "https://opencode.ai/config.json",
  "model": "anthropic/claude-sonnet-4-5",
  "provider": {
    "anthropic": { "options": { "timeout": 600000 } }
  }
}
""",
    "pi": """{
\t"providers": {
\t\t"ollama": {"baseUrl": "http://localhost:11434/v1", "api": "openai-completions", "apiKey": "x", "models": []},
\t\t"other": {"baseUrl": "http://localhost:11435/v1", "api": "openai-completions", "apiKey": "x", "models": []}
\t}
}
""",
    "aider": """# how I like it
dark-mode: true   # at night
set-env:
  # for the proxy
  - HTTP_TIMEOUT=60   # seconds
read: [CONVENTIONS.md, 'notes.md']
""",
    "cline": """{
  "version": 1,
  "lastUsedProvider": "openai-compatible",
  "modes": {},
  "providers": {
    "openai-compatible": {
      "settings": {"provider": "openai-compatible", "apiKey": "sk-mine", "baseUrl": "http://localhost:11434/v1"},
      "updatedAt": "2026-11-15T20:58:45.803Z",
      "tokenSource": "manual"
    }
  }
}
""",
}


def scratch_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder the home of every client."""
    home.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("EVERLONG_HOME", str(home / "everlong"))
    for name in PLACES:
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the gateway would be by the settings: nothing listens there, and nobody else can."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        monkeypatch.setenv("EVERLONG_GATEWAY__PORT", str(port))
        yield f"http://127.0.0.1:{port}"


PAGE = Path(__file__).parents[2] / "docs" / "clients.md"
SECTIONS: dict[str, str] = dict(
    re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
)
TITLES = {
    "claude-code": "Claude Code",
    "codex": "Codex",
    "opencode": "opencode",
    "pi": "pi",
    "aider": "aider",
    "cline": "Cline",
}


def commands_of(client: str) -> list[list[str]]:
    """The commands of a client's section in docs/clients.md."""
    blocks = re.findall(r"^```sh\n(.*?)^```", SECTIONS[TITLES[client]], re.DOTALL | re.MULTILINE)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]
