"""The hooks of clients: the files that hold them, and what `everlong setup CLIENT --hooks` writes there.

A hook calls ``everlong hook CLIENT``. It stores the session when the client ends a turn and before it compacts, and
tells a new session where the folder's last conversation stands.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from everlong.cli.clients.client import ConfigurationFile, Setting, folder_of
from everlong.cli.clients.formats import JSON, TEXT, TOML, value_at
from everlong.processes import own_command

HOOKED = ("claude-code", "codex", "opencode")
"""The clients with hooks."""

_MARK = "everlong-hooks"
_START_SECONDS = 30
_STORE_SECONDS = 300


HookFile = tuple[ConfigurationFile, list[Setting]]
"""A file that holds hooks of a client, and the settings that are these hooks."""


def hook_files(client: str, env: Mapping[str, str], home: Path) -> list[HookFile]:
    """Return the files that hold a client's hooks, as they ought to be."""
    command = own_command("everlong", "hook", client)
    if client == "claude-code":
        path = folder_of("CLAUDE_CONFIG_DIR", home / ".claude", env) / "settings.json"
        return [_events_file(path, command, ("SessionStart", "PreCompact", "Stop"))]
    if client == "codex":
        folder = folder_of("CODEX_HOME", home / ".codex", env)
        config = ConfigurationFile(folder / "config.toml", TOML, _MARK)
        events = ["SessionStart", "PreCompact"]
        found: list[HookFile] = []
        if _is_taken(config, command):
            events.append("Stop")
        else:
            found.append((config, [Setting(("notify",), command, is_ours=lambda _: True)]))
        return [*found, _events_file(folder / "hooks.json", command, events)]
    path = folder_of("XDG_CONFIG_HOME", home / ".config", env) / "opencode" / "plugins" / "everlong.js"
    source = files("everlong.cli.clients").joinpath("opencode_plugin.js").read_text(encoding="utf-8")
    plugin = source.replace('["everlong", "hook", "opencode"]', json.dumps(command))
    return [(ConfigurationFile(path, TEXT, _MARK), [Setting(("text",), plugin)])]


def hook_notes(client: str, env: Mapping[str, str], home: Path) -> list[str]:
    """Return what is left to do for a person who has set up hooks."""
    if client != "codex":
        return []
    notes = ["Codex runs new hooks only after you have trusted them once: type /hooks in Codex"]
    config = ConfigurationFile(folder_of("CODEX_HOME", home / ".codex", env) / "config.toml", TOML, _MARK)
    if _is_taken(config, own_command("everlong", "hook", client)):
        notes.append("notify in config.toml is taken by another program and stays; a Stop hook stores sessions instead")
    return notes


def _is_taken(config: ConfigurationFile, command: Sequence[str]) -> bool:
    """Return whether Codex tells another program about its turns; it can tell only one."""
    told = value_at(config.values(), ("notify",))
    return bool(told) and list(told)[-2:] != list(command)[-2:]


def _events_file(path: Path, command: Sequence[str], events: Sequence[str]) -> HookFile:
    """Return the file whose hooks have the shape that Claude Code gave them."""
    file = ConfigurationFile(path, JSON, _MARK)
    values = file.values()
    line = shlex.join(command)

    def is_ours(item: Any) -> bool:
        inside = item.get("hooks") if isinstance(item, dict) else None
        words = f" hook {command[-1]}"
        return isinstance(inside, list) and any(
            isinstance(one, dict) and "everlong" in str(one.get("command")) and str(one.get("command")).endswith(words)
            for one in inside
        )

    settings = []
    for event in events:
        before = value_at(values, ("hooks", event))
        kept = [item for item in before if not is_ours(item)] if isinstance(before, list) else []
        call: dict[str, Any] = {"type": "command", "command": line, "timeout": _STORE_SECONDS}
        entry: dict[str, Any] = {"hooks": [call]}
        if event == "SessionStart":
            call["timeout"] = _START_SECONDS
            entry = {"matcher": "startup|clear|compact", **entry}
        settings.append(Setting(("hooks", event), [*kept, entry], is_ours=is_ours))
    return file, settings
