"""Small plugins, written into real folders."""

from __future__ import annotations

import textwrap
from pathlib import Path

HARBOUR_LOG = "name: harbour_log\ndescription: Keeps one line for each request.\nversion: 1.2.0\n"
"""The manifest of the engine that the documentation chooses."""

ENGINE = """
from everlong import ContextEngine

class Engine(ContextEngine):
    name = "{name}"
    def __init__(self, context_length=0):
        self.context_length = context_length
    def update_from_response(self, usage):
        self.last_prompt_tokens = usage.get("prompt_tokens", 0)
    def should_compress(self, prompt_tokens=None):
        return False
    def compress(self, messages, current_tokens=None, focus_topic=None):
        return messages
"""
"""The least that an engine can be."""


def write(folder: Path, code: str, manifest: str | None = None) -> Path:
    """A plugin of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(textwrap.dedent(code), encoding="utf-8")
    if manifest != "":
        text = manifest or f"name: {folder.name}\ndescription: A plugin for a test.\nversion: 1.0\n"
        (folder / "plugin.yaml").write_text(text, encoding="utf-8")
    return folder


def engine_in(folder: Path, name: str | None = None, manifest: str | None = None) -> Path:
    """The least engine, in a folder."""
    return write(folder, ENGINE.format(name=name or folder.name), manifest)
