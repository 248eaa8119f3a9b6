"""The files and functions of everlong that one piece of work crosses, so that a reader can follow it.

    python -m bench.crossings

A function counts once, however often it is called, also in the threads that store; defining and importing do not count.
Of a request, what every one of six crosses: the index and the journal are tidied by the clock, whatever is asked.
Exits with 1 if a bar is missed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

from tests.gateway.running import run_gateway

import everlong
from bench.agent.session import connected, own_folder, settings_for
from bench.conversations import conversation
from bench.measure import verdict
from everlong.agent import AgentOptions, open_agent
from everlong.context import ContextCompressor
from everlong.store import Store
from everlong.testing import ModelServer

_ROOT = str(Path(everlong.__file__).parent) + os.sep
_BARS = {"a growing gateway request": (35, 300), "compress": (25, 250), "an agent's hello": (40, 280)}


class _Watch:
    """A watch over the calls in this thread, and in all that are started after it."""

    def __init__(self, *, shows: bool) -> None:
        self._shows = shows
        self._seen: set[CodeType] | None = None
        self.is_good = True
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    @contextmanager
    def counting(self, name: str) -> Iterator[None]:
        """Print the files and functions that are crossed inside of a ``with`` block."""
        with self.noting() as seen:
            yield
        self.tell(name, seen)

    @contextmanager
    def noting(self) -> Iterator[set[CodeType]]:
        """Gather what is called inside of a ``with`` block."""
        self._seen = set[CodeType]()
        yield self._seen
        self._seen = None

    def tell(self, name: str, seen: set[CodeType]) -> None:
        """Print the files and functions of what was called."""
        functions = {code for code in seen if code.co_name[0] != "<" or code.co_name == "<lambda>"}
        files = {code.co_filename for code in functions}
        print(name)
        for what, count, bar in zip(("files", "functions"), (len(files), len(functions)), _BARS[name], strict=True):
            print(f"  {what:10} {count:4} <= {bar} {verdict(count, bar)}")
            self.is_good = self.is_good and count <= bar
        for file in sorted(files) if self._shows else ():
            called = sorted(code.co_name for code in functions if code.co_filename == file)
            print(f"    {file.removeprefix(_ROOT)}: {', '.join(called)}")

    def _note(self, frame: FrameType, event: str, given: object) -> None:
        del given
        file = frame.f_code.co_filename
        if event == "call" and self._seen is not None and file.startswith(_ROOT) and "/testing/" not in file:
            self._seen.add(frame.f_code)


def _compress(watch: _Watch) -> None:
    messages = conversation(200)
    ContextCompressor(128_000).compress(messages)  # what is made once is made
    with watch.counting("compress"):
        ContextCompressor(128_000).compress(messages)


def _say_hello(watch: _Watch, folder: Path, model: ModelServer) -> None:
    settings = settings_for(200_000, "anthropic:claude-sonnet-5")
    with Store.open(folder / "agent.db") as store:
        for is_counted in (False, True):
            connection = connected(model.url, "anthropic", settings)
            agent = open_agent(settings, connection, AgentOptions(root=folder / "project"), store=store)
            if is_counted:
                with watch.counting("an agent's hello"):
                    agent.run("hello")
            else:
                agent.run("hello there")
            agent.close()


def _grow(watch: _Watch, folder: Path, model: ModelServer) -> None:
    said: list[dict[str, str]] = []
    with run_gateway(model.openai_url, str(folder / "gateway.db")) as running:
        client = running.openai()

        def ask(text: str) -> None:
            said.append({"role": "user", "content": text})
            answer = client.chat.completions.create(model="m", messages=said)  # type: ignore[arg-type]
            said.append({"role": "assistant", "content": answer.choices[0].message.content or ""})
            while running.gateway.journal.waiting:  # until it is stored
                time.sleep(0.01)

        for number in range(4):
            ask(f"Question {number}?")
        each: list[set[CodeType]] = []
        for number in range(6):
            with watch.noting() as seen:
                ask(f"And now, for the {number}th time?")
            each.append(seen)
        watch.tell("a growing gateway request", set.intersection(*each))


def main() -> int:
    """Count and tell; 1 where a bar was missed."""
    watch = _Watch(shows="--show" in sys.argv)
    with own_folder() as folder, ModelServer("Understood.") as model:
        _grow(watch, folder, model)
        _compress(watch)
        _say_hello(watch, folder, model)
    return 0 if watch.is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
