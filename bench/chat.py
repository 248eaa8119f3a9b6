"""The cost of the chat: CPU until the prompt appears, CPU to resume a long session, stalls while typing.

Bars: the prompt after at most 350 ms of CPU; going on with 10,000 messages at most 700 ms of CPU above a new chat;
while an answer comes, a compaction runs or another process imports, a letter waits at most 100 ms (19 in 20 of
them: such machines are noisy; the longest wait is printed beside it). Ctrl-C ends a compaction within a second, and
Ctrl-D the program within two.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import re
import select
import shlex
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
MODEL = "m-0.5b"
"""Its name says that it is small: it is not asked for summaries."""
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
        command = [
            sys.executable,
            "-c",
            PROGRAM,
            str(self.notes),
            "chat",
            "-m",
            MODEL,
            "--base-url",
            address,
            *arguments,
        ]
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

    def echoes(self, most: int = LETTERS, until: str | None = None) -> list[float]:
        """Type letter by letter, at most until a text is drawn; return how long each took to be drawn."""
        waits: list[float] = []
        began = len(self.seen)
        for number in range(most):
            if until is not None and until in self.seen[began:]:
                break
            if until is not None:
                self.read(0.03)  # as fast as a person types
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

    def leave(self) -> float:
        """Press Ctrl-D on an empty line; return the seconds until the program has ended."""
        start = time.perf_counter()
        self.type("\x15\x04")
        while self._process.poll() is None and time.perf_counter() - start < PATIENCE:
            self.read(0.01)
        return time.perf_counter() - start

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
        self._whole({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 1_000_000}]})

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
            try:
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
            except ConnectionError:  # the client hung up
                return
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
        session = store.sessions.start(branch, from_depth=0, title="long", model=f"custom:{MODEL}")
        # As every session that was talked in: what the last request had is known.
        turn = store.turns.begin(branch, model=f"custom:{MODEL}", session=session.id)
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
        (home / "config.yaml").write_text(
            '{"models": {"m-0.5b": {"context_length": 10000000}}}\n',
            encoding="utf-8",
        )
    store_long_session(full)
    prompts, new, resumed = [], [], []
    for _ in range(repeat):
        with chat(empty, address) as found:
            prompts.append(found.cpu("prompt"))
            new.append(found.cpu("ready"))
        with chat(full, address, "--resume", "long") as found:
            resumed.append(found.cpu("ready"))
    waits, seconds = measure_typing(empty, full, address)
    cost = min(resumed) - min(new)
    print("the chat: CPU of its process in ms\n")
    print(f"{min(prompts) * 1e3:>7.0f}  until the prompt is drawn  (bar 350)  {verdict(min(prompts), 0.35)}")
    print(f"{min(new) * 1e3:>7.0f}  until a new chat is ready")
    print(f"{min(resumed) * 1e3:>7.0f}  until a session of {MESSAGES:,} messages is ready")
    print(f"{cost * 1e3:>7.0f}  of them for the session  (bar 700)  {verdict(cost, 0.7)}")
    print("\nms that a letter waits to be drawn: 19 in 20 at most, and the longest wait\n")
    for name, times in waits.items():
        usual = sorted(times)[int(0.95 * (len(times) - 1))]
        held = verdict(usual, 0.1)
        print(f"{usual * 1e3:>7.0f} {max(times) * 1e3:>7.0f}  {name}, {len(times)} letters  (bar 100)  {held}")
    print("\nseconds\n")
    for name, (took, bar) in seconds.items():
        print(f"{took:>7.2f}  {name}  (bar {bar:g})  {verdict(took, bar)}")


def measure_typing(
    empty: Path, full: Path, address: str
) -> tuple[dict[str, list[float]], dict[str, tuple[float, float]]]:
    """Return how long letters waited while something else went on, and how long it took to stop and to leave."""
    waits: dict[str, list[float]] = {}
    seconds: dict[str, tuple[float, float]] = {}
    with chat(empty, address) as found:
        found.cpu("ready")
        found.until("context")
        waits["nothing goes on"] = found.echoes()
        with importing(empty):
            waits["another process imports"] = found.echoes()
        at = len(found.seen)
        found.type("\x15go on\r")
        found.until("answering", at)
        waits["an answer comes"] = found.echoes()
        seconds["until Ctrl-D has left, while an answer comes"] = (found.leave(), 2.0)
    with chat(full, address, "--resume", "long") as found:
        found.cpu("ready")
        found.until("context")
        at = len(found.seen)
        found.type("\x15/compress\r")
        found.until("compacting", at)
        waits["a compaction runs"] = found.echoes(400, until="compacted (")
        found.until("compacted (", at)  # on a busy machine it takes longer than the letters
    with chat(full, address, "--resume", "long") as found:
        found.cpu("ready")
        found.until("context")
        found.type("\x15/undo compaction\r")
        found.until("is undone")
        at = len(found.seen)
        found.type("\x15/compress\r")
        found.until("compacting", at)
        found.read(0.5)
        at = len(found.seen)
        found.type("\x03")
        seconds["until Ctrl-C has stopped a compaction"] = (found.until("stopped; nothing was changed", at), 1.0)
        at = len(found.seen)
        found.type("\x15/compress\r")
        found.until("compacting", at)
        seconds["until Ctrl-D has left, while a compaction runs"] = (found.leave(), 2.0)
    return waits, seconds


@contextmanager
def importing(home: Path) -> Iterator[None]:
    """Import conversations into the store of a home in another process, again and again, while the block runs."""
    from bench.conversations import conversation  # noqa: PLC0415 - what is measured is another process

    file = home / "import.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for number in range(20):
            messages = conversation(500)
            messages[0] = {**messages[0], "content": f"Conversation {number}."}
            lines.write(json.dumps({"messages": messages}) + "\n")
    program = "from everlong.cli.start import main; main()"
    env = {**os.environ, "EVERLONG_HOME": str(home)}
    command = [sys.executable, "-c", program, "sessions", "import", str(file)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env=env) as process:
        try:
            time.sleep(1.0)  # it has read its modules
            if process.poll():
                raise SystemExit(f"the import failed: {shlex.join(command)}")
            yield
        finally:
            process.kill()


if __name__ == "__main__":
    main()
