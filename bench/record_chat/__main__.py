"""Makes docs/recording/chat.cast and its screens from the real program, a scripted model and a scripted person."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.api_rules import install_cache

from bench.record_chat.cast import Cast
from bench.record_chat.still import stills
from bench.record_chat.story import STEPS, WINDOW, answer, write_files
from bench.record_chat.terminal import Terminal
from everlong.testing import ModelServer

COLUMNS, LINES = 126, 34
TITLE = "everlong chat: a conversation that outgrows its window three times"
OUT = Path(__file__).parent.parent.parent / "docs" / "recording"


def main() -> None:
    """Record."""
    install_cache()
    # Always the same folder: its name is in the prompt, and so in the figures that are shown.
    folder = Path(tempfile.gettempdir()) / "everlong-harbour"
    folder.mkdir()
    try:
        with ModelServer(answer, window=WINDOW) as server:
            cast = record(server, folder)
            assert server.rejections == []  # noqa: S101 - a recording of a broken session is worth nothing
    finally:
        shutil.rmtree(folder)
    OUT.mkdir(exist_ok=True)
    (OUT / "chat.cast").write_text(cast.dump(), encoding="utf-8")
    for name, drawn in stills(cast).items():
        (OUT / name).write_text(drawn, encoding="utf-8")
    size = (OUT / "chat.cast").stat().st_size
    print(f"{OUT / 'chat.cast'}: {len(cast.events)} pieces, {cast.events[-1][0]:.0f} s, {size:,} bytes")


def record(server: ModelServer, folder: Path) -> Cast:
    """Play the story and return the terminal's output."""
    project = folder / "harbour"
    write_files(project)
    terminal = Terminal(["/bin/sh", "-i"], COLUMNS, LINES, _environment(server, folder), project)
    try:
        terminal.wait(r"^\$$")
        _type(terminal, "everlong\r")
        terminal.wait(r"│ context ")
        for step in STEPS:
            _type(terminal, step.keys + ("\r" if step.is_line else ""))
            terminal.wait(step.until)
        return Cast.from_pieces(COLUMNS, LINES, TITLE, terminal.shown)
    finally:
        terminal.close()


def _type(terminal: Terminal, keys: str) -> None:
    for key in keys:
        terminal.press(key)


def _environment(server: ModelServer, folder: Path) -> dict[str, str]:
    home, programs = folder / "home", folder / "bin"
    home.mkdir()
    programs.mkdir()
    (home / "config.yaml").write_text(
        f"""\
agent: {{model: "anthropic:claude-sonnet-5"}}
auxiliary: {{compression: {{provider: main}}}}
compression: {{protect_last_n: 4}}
memory: {{enabled: false}}
models:
  claude-sonnet-5:
    {{context_length: {WINDOW}, input_price: 3, output_price: 15, cache_read_price: 0.3, cache_write_price: 3.75}}
providers: {{anthropic: {{base_url: "{server.url}"}}}}
""",
        encoding="utf-8",
    )
    program = programs / "everlong"
    program.write_text(f"#!{sys.executable}\nfrom everlong.cli.main import main\nmain()\n", encoding="utf-8")
    program.chmod(0o755)
    return {**environment(folder, programs), "EVERLONG_HOME": str(home)}


def environment(folder: Path, programs: Path) -> dict[str, str]:
    """Return the environment of a person at home in a folder, whose programs are in another one."""
    return {
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1",
        "PATH": f"{programs}:/usr/bin:/bin",
        "PS1": "$ ",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm-256color",
    }


if __name__ == "__main__":
    main()
