"""The cost of the chat: CPU until the prompt appears, CPU to resume a long session, stalls while typing.

Bars: the prompt after at most 700 ms of CPU; going on with 10,000 messages at most 1 s of CPU above a new chat; while
an answer comes a letter waits at most 100 ms longer than the longest wait without one (such machines are noisy).
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench.measure import verdict

COLUMNS, ROWS = 100, 40
MESSAGES = 10_000
TOKENS = 4_600_000
"""Tokens of these messages, more or less."""
LETTERS = 60
PATIENCE = 180.0

# The program notes the CPU that its process has used when the prompt was first drawn, and when it is ready.
PROGRAM = """
import sys, time
from everlong.cli.start import main
from everlong.cli.chat import terminal, worker
def noting(kind, name, what):
    inner = getattr(kind, name)
    def noted(*args):
        if what == "prompt":
            print(what, time.process_time(), file=open(notes, "a"))
        result = inner(*args)
        if what == "ready":
            print(what, time.process_time(), file=open(notes, "a"))
        return result
    setattr(kind, name, noted)
notes = sys.argv.pop(1)
noting(terminal._Talk, "_begin", "prompt")
noting(worker.ChatWorker, "_start_up", "ready")
main()
"""


class Chat:
    """The program on a pseudo-terminal."""

    def __init__(self, home: Path, address: str, *arguments: str) -> None:
        self.notes = home / "notes"
        self.notes.unlink(missing_ok=True)
        self.seen = ""
        # Programs keep their compiled modules, as an installed copy does.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        env = {**kept, "EVERLONG_HOME": str(home), "TERM": "xterm-256color", "NO_PROXY": "127.0.0.1"}
        command = [sys.executable, "-c", PROGRAM, str(self.notes), "chat", "-m", "m", "--base-url", address, *arguments]
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
        os.set_blocking(ours, False)
        self._ours = ours
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=env, cwd=home, start_new_session=True
        )
        os.close(theirs)

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._ours, text.encode())

    def read(self, seconds: float) -> None:
        """Take in what is drawn within so many seconds, and answer where the cursor is if asked."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return
        try:
            data = os.read(self._ours, 65_536).decode("utf-8", "replace")
        except OSError:  # the program has left
            return
        if "\x1b[6n" in data:
            os.write(self._ours, f"\x1b[{ROWS};1R".encode())
        self.seen += data

    def until(self, text: str, since: int = 0) -> float:
        """Return the seconds until a text is drawn."""
        start = time.perf_counter()
        while text not in self.seen[since:]:
            self.read(0.05)
            if time.perf_counter() - start > PATIENCE or self._process.poll() is not None:
                raise SystemExit(f"waited in vain for {text!r}:\n{self.seen[-2_000:]}")
        return time.perf_counter() - start

    def cpu(self, what: str) -> float:
        """Return the CPU seconds of the process so far."""
        start = time.perf_counter()
        while True:
            noted = self.notes.read_text(encoding="utf-8") if self.notes.exists() else ""
            found = re.search(rf"^{what} ([\d.]+)\n", noted, re.MULTILINE)
            if found:
                return float(found[1])
            self.read(0.05)
            if time.perf_counter() - start > PATIENCE:
                raise SystemExit(f"the chat was never {what}:\n{self.seen[-2_000:]}")

    def echoes(self) -> list[float]:
        """Type letter by letter; how long each took to be drawn."""
        waits = []
        for number in range(LETTERS):
            letter = "qxzjkvwbpg"[number % 10]
            at = len(self.seen)
            start = time.perf_counter()
            self.type(letter)
            while letter not in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.seen[at:]):
                self.read(0.01)
                if time.perf_counter() - start > PATIENCE:
                    raise SystemExit(f"the letter {letter} was never drawn")
            waits.append(time.perf_counter() - start)
        return waits

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        os.close(self._ours)


@contextmanager
def chat(home: Path, address: str, *arguments: str) -> Iterator[Chat]:
    """Yield a chat that is ended afterwards."""
    found = Chat(home, address, *arguments)
    try:
        yield found
    finally:
        found.close()


class _Endless(BaseHTTPRequestHandler):
    """A model that writes digits for ever, a word every few milliseconds; no letter of the test is among them."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def do_GET(self) -> None:
        """List one model."""
        self._whole({"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 1_000_000}]})

    def do_POST(self) -> None:
        """Answer until the client hangs up."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        word = 0
        while True:
            word += 1
            text = f"{word} " + ("\n\n" if word % 40 == 0 else "")
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [
                {"index": 0, "delta": {"content": text}, "finish_reason": None}]}  # fmt: skip
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
            time.sleep(0.005)

    def _whole(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def serve() -> None:
    """Be the model's server, in a process of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endless)
    server.daemon_threads = True
    print(f"http://127.0.0.1:{server.server_address[1]}/v1", flush=True)
    server.serve_forever()


def store_long_session(home: Path) -> None:
    """Store a session of 10,000 messages in a home."""
    from bench.conversations import conversation  # noqa: PLC0415 - what is measured is another process
    from everlong.store import Store  # noqa: PLC0415 - as above

    with Store.open(home / "store.db") as store:
        branch = store.record(conversation(MESSAGES))
        session = store.sessions.start(branch, from_depth=0, title="long", model="custom:m")
        # As every session that was talked in: what the last request had is known.
        turn = store.turns.begin(branch, model="custom:m", session=session.id)
        usage = {"prompt_tokens": TOKENS, "total_tokens": TOKENS}
        store.turns.finish(turn.id, {"role": "assistant", "content": "Done."}, usage=usage)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--repeat", type=int, default=5, help="runs of which the best counts (5)")
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    command = [sys.executable, "-m", "bench.chat", "--serve"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server,
    ):
        try:
            assert server.stdout is not None  # noqa: S101 - it is a pipe
            measure(Path(folder), server.stdout.readline().strip(), arguments.repeat)
        finally:
            server.kill()


def measure(folder: Path, address: str, repeat: int) -> None:
    """Measure everything and print it."""
    empty, full = folder / "empty", folder / "full"
    for home in (empty, full):
        home.mkdir()
        (home / "config.yaml").write_text('{"models": {"m": {"context_length": 10000000}}}\n', encoding="utf-8")
    store_long_session(full)
    prompts, new, resumed = [], [], []
    for _ in range(repeat):
        with chat(empty, address) as found:
            prompts.append(found.cpu("prompt"))
            new.append(found.cpu("ready"))
        with chat(full, address, "--resume", "long") as found:
            resumed.append(found.cpu("ready"))
    with chat(empty, address) as found:
        found.cpu("ready")
        found.until("context")
        idle = found.echoes()
        found.type("\x15go on\r")
        found.until("answering")
        busy = found.echoes()
    cost, stall = min(resumed) - min(new), max(busy) - max(idle)
    print("the chat: CPU of its process in ms, and how long letters wait to be drawn\n")
    print(f"{min(prompts) * 1e3:>7.0f}  until the prompt is drawn  (bar 700)  {verdict(min(prompts), 0.7)}")
    print(f"{min(new) * 1e3:>7.0f}  until a new chat is ready")
    print(f"{min(resumed) * 1e3:>7.0f}  until a session of {MESSAGES:,} messages is ready")
    print(f"{cost * 1e3:>7.0f}  of them for the session  (bar 1,000)  {verdict(cost, 1.0)}")
    print(f"{max(idle) * 1e3:>7.0f}  the longest wait of {LETTERS} letters while nothing comes (not CPU)")
    print(f"{max(busy) * 1e3:>7.0f}  the longest wait of {LETTERS} letters while an answer comes (not CPU)")
    print(f"{stall * 1e3:>7.0f}  of it because of the answer  (bar 100)  {verdict(stall, 0.1)}")


if __name__ == "__main__":
    main()
