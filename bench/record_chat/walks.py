"""Makes the screens in docs/chat.md from the real program: ``python -m bench.record_chat.walks``.

Each walk is a person who has configured nothing: with nothing on the machine, with a model server, with a bad key, with
a model file. Lines ``<!-- screen: NAME -->`` in the page say where the screens go; ``--print`` only shows them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.record_chat.__main__ import environment
from bench.record_chat.terminal import Terminal
from everlong.agent.events import CompactionProgress
from everlong.cli.chat.terminal import progress_row
from everlong.testing import Fault, ModelServer

__all__ = ["SCREENS", "put_screens"]

COLUMNS, LINES = 96, 24
DOCS = Path(__file__).parent.parent.parent / "docs" / "chat.md"
_ANSWER = "Hello from the harbour."
_QUIET = "http://127.0.0.1:1/v1"
"""An address at which nobody answers."""
_PROGRAM = """\
#!{python}
import dataclasses
from everlong.providers import endpoints
for name in ("llamacpp", "lmstudio", "vllm"):
    del endpoints.ENDPOINTS[name]
endpoints.ENDPOINTS["ollama"] = dataclasses.replace(endpoints.ENDPOINTS["ollama"], base_url={url!r})
from everlong.cli.start import main
main()
"""
_BLOCK = re.compile(r"(<!-- screen: ([\w-]+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def main() -> None:
    """Write the screens into the page, or print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--print", action="store_true", help="print the screens, and write nothing")
    screens = {name: make() for name, make in SCREENS.items()}
    if parser.parse_args().print:
        for name, screen in screens.items():
            print(f"=== {name}\n{screen}")
        return
    DOCS.write_text(put_screens(DOCS.read_text(encoding="utf-8"), screens), encoding="utf-8")
    print(f"{DOCS}: {len(screens)} screens")


def put_screens(page: str, screens: dict[str, str]) -> str:
    """Return a page with these screens in their places."""
    return _BLOCK.sub(lambda found: f"{found[1]}{screens[found[2]]}{found[4]}", page)


@contextmanager
def _terminal(url: str, **env: str) -> Iterator[tuple[Terminal, Path]]:
    """Yield a shell in the folder of a person who has configured nothing, and their home."""
    home = Path(tempfile.gettempdir()) / "everlong-first-run"
    project, programs = home / "harbour", home / "bin"
    project.mkdir(parents=True)
    programs.mkdir()
    program = programs / "everlong"
    program.write_text(_PROGRAM.format(python=sys.executable, url=url), encoding="utf-8")
    program.chmod(0o755)
    terminal = Terminal(["/bin/sh", "-i"], COLUMNS, LINES, {**environment(home, programs), **env}, project)
    try:
        terminal.wait(r"^\$$")
        yield terminal, home
    finally:
        terminal.close()
        shutil.rmtree(home)


def _screen(terminal: Terminal, home: Path) -> str:
    """Return what is to be seen, without the empty rest of the screen and without this machine's paths."""
    rows = [row.rstrip() for row in terminal.text.replace(str(home), "~").splitlines()]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(rows).strip("\n")) + "\n"


def _with_nothing() -> str:
    with _terminal(_QUIET) as (terminal, home):
        terminal.press("everlong\r")
        terminal.wait(r"everlong demo[^$]*^\$$")
        return _screen(terminal, home)


def _with_server(*, goes_on: bool) -> str:
    with ModelServer(_ANSWER, models=("qwen3-8b",)) as server, _terminal(server.openai_url) as (terminal, home):
        terminal.press("everlong\r")
        terminal.wait(r"Esc leaves")
        if goes_on:
            terminal.press("\r")
            terminal.wait(r"│ context ")
            terminal.press("Are you there?\r")
            terminal.wait(rf"there\?\n{_ANSWER}[^$]*│ context ")
        return _screen(terminal, home)


def _with_bad_key() -> str:
    with ModelServer(_ANSWER, models=("qwen3-8b",)) as server:
        server.fail_next(Fault("unauthorized"))
        keys = {"ANTHROPIC_API_KEY": "made-up", "ANTHROPIC_BASE_URL": server.url}
        with _terminal(server.openai_url, **keys) as (terminal, home):
            terminal.press("everlong\r")
            terminal.wait(r"Esc leaves")
            terminal.press("\r")
            terminal.wait(r"✗ its key was refused[^$]*Esc leaves")
            return _screen(terminal, home)


def _with_file() -> str:
    with _terminal(_QUIET) as (terminal, home):
        (home / "models").mkdir()
        with (home / "models" / "qwen3-8b.gguf").open("wb") as file:
            file.truncate(5_030_000_000)  # it takes no room
        terminal.press("everlong\r")
        terminal.wait(r"Esc leaves")
        return _screen(terminal, home)


def _bar() -> str:
    return f"{progress_row(CompactionProgress(0.33, 528, 1_600, 0, 1), COLUMNS)}\n"


SCREENS: dict[str, Callable[[], str]] = {
    "nothing": _with_nothing,
    "server": lambda: _with_server(goes_on=False),
    "first-answer": lambda: _with_server(goes_on=True),
    "bad-key": _with_bad_key,
    "file": _with_file,
    "bar": _bar,
}
"""The screens of the page by their names."""


if __name__ == "__main__":
    main()
