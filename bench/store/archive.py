"""The import of 1 GB of logs: rate, memory, resumption, and the time to look at them again when nothing has changed.

The logs have the shape of those that Claude Code 2.1 writes: a line for each
block of a reply, results with the tool's own account of them, the request's system prompt and tools once for each
prompt, and a note of each request. Indexing is apart everywhere. Three ways are compared in the same run, in turns, on
the same logs, each in a process of its own that begins with an empty store:

- before: each log is read as a whole and its conversations are imported, which is all that `sessions import` did in
  0.1. This is the rate that the archive is held to. It runs on today's store, so what makes the store itself quicker
  makes this quicker too.
- import: `sessions import` as it is now. It reads logs with the archive's readers, in one process.
- now: the archive, which reads large logs in processes of its own.

A rate is in megabytes per second of the clock, the best of the runs; CPU seconds are those of all processes together.
The archive uses two cores and the others use one, which is a part of its rate: on a machine that is busy with other
work, compare the CPU seconds too.

Bars: at least 3 times the rate of before; resident sets, of all processes together, that grow by less than 150 MB
however much is imported; an import that is killed goes on and ends with the same messages; a look at unchanged logs
takes at most 2 s.

    python -m bench.store.archive [--megabytes 1000] [--sample 120] [--folder DIR]
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from bench.conversations import conversation
from bench.measure import verdict
from everlong.cli.archive.places import LogFolder
from everlong.cli.archive.scan import Scan
from everlong.cli.sessions_transfer import import_files
from everlong.store import Store
from everlong.store.imports import Importer, ImportOrigin
from everlong.store.upkeep.maintenance import stats
from everlong.wire import read_transcript

RATE, MEMORY_MB, RESCAN_SECONDS = 3.0, 150.0, 2.0
_MESSAGES = 700
"""Messages of one log, which make about 4 MB."""
_PROMPT = ("The harbour master keeps the list of berths, and every crane has a name. " * 400)[:27_000]
_TOOLS = [{"name": f"tool_{n}", "description": _PROMPT[:2_200], "input_schema": {"type": "object"}} for n in range(20)]


def write_log(folder: Path, number: int, messages: int = _MESSAGES) -> int:
    """Write one log; return its size."""
    rng = random.Random(number)
    session = str(uuid.UUID(int=rng.getrandbits(128), version=4))
    lines: list[str] = []
    parent: str | None = None

    def put(entry: dict[str, Any]) -> None:
        lines.append(json.dumps(entry, ensure_ascii=False))

    def link(kind: str, **more: Any) -> None:
        nonlocal parent
        ident = str(uuid.UUID(int=rng.getrandbits(128), version=4))
        moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(1_780_000_000 + number * 7_200 + len(lines)))
        about = {"userType": "external", "cwd": "/home/mira/harbour", "sessionId": session, "version": "2.1.325"}
        put(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "type": kind,
                **more,
                "uuid": ident,
                "timestamp": moment,
                **about,
            }
        )
        parent = ident

    def note_request(newest: Any) -> None:
        put({"type": "api-request-blob", "sessionId": session, "hash": "0" * 64, "message": newest})
        params = {"model": "claude-sonnet-4-5", "max_tokens": 32_000, "betas": ["a" * 40] * 8}
        put({"type": "api-request", "sessionId": session, "id": "0" * 36, "params": params, "tail": ["0" * 64] * 3})
        link("attachment", attachment={"type": "total_tokens_reminder", "text": "<total_tokens>1</total_tokens>"})

    put({"type": "api-request-shape", "sessionId": session, "shape": {"system": [_PROMPT], "tools": _TOOLS}})
    newest: Any = None
    for message in conversation(messages, seed=number)[1:]:
        if message["role"] == "user":
            newest = {"role": "user", "content": message["content"]}
            link("user", message=newest)
            link("attachment", attachment={"type": "prompt_snapshot", "systemPrompt": [_PROMPT], "tools": _TOOLS[:12]})
        elif message["role"] == "tool":
            ident = f"{message['tool_call_id']}_{session[:6]}"
            block = {"type": "tool_result", "tool_use_id": ident, "content": message["content"]}
            newest = {"role": "user", "content": [block]}
            link("user", message=newest, toolUseResult={"stdout": message["content"], "stderr": "", "isImage": False})
        else:
            note_request(newest)
            usage = {"input_tokens": 12, "cache_creation_input_tokens": 300, "cache_read_input_tokens": 20_000}
            reply: dict[str, Any] = {
                "id": f"msg_{uuid.UUID(int=rng.getrandbits(128)).hex}",
                "type": "message",
                "role": "assistant",
            }
            reply |= {"model": "claude-sonnet-4-5", "usage": {**usage, "output_tokens": 88}}
            blocks: list[dict[str, Any]] = [{"type": "text", "text": message["content"]}] if message["content"] else []
            for call in message.get("tool_calls") or ():
                given = json.loads(call["function"]["arguments"])
                ident = f"{call['id']}_{session[:6]}"
                blocks.append({"type": "tool_use", "id": ident, "name": call["function"]["name"], "input": given})
            for block in blocks:
                link("assistant", message={**reply, "content": [block]}, requestId="req_0")
    data = ("\n".join(lines) + "\n").encode()
    (folder / f"{session}.jsonl").write_bytes(data)
    return len(data)


def write_logs(folder: Path, megabytes: float) -> int:
    """Write logs of so many megabytes; return their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    size = number = 0
    while size < megabytes * 1e6:
        size += write_log(folder, number)
        number += 1
    return size


def import_as_before(store: Store, folder: Path) -> None:
    """Import logs as a whole each, as the command did before."""
    importer = Importer(store)
    for path in sorted(folder.glob("*.jsonl")):
        transcript = read_transcript(path.read_bytes())
        origin = ImportOrigin(str(path), path.stat().st_mtime, kind=transcript.kind)
        with store.batch():
            for one in transcript.conversations:
                importer.add(one, origin)


def import_with_command(store: Store, folder: Path) -> None:
    """Import logs as `sessions import` does."""
    for _ in import_files(store, {str(path): True for path in sorted(folder.glob("*.jsonl"))}, None, [], []):
        pass


def import_now(store: Store, folder: Path) -> None:
    """Import logs as the archive does."""
    Scan(store, [LogFolder("claude-code", folder, ("**/*.jsonl",))]).run()


def measure(folder: Path, way: str, store: Path) -> dict[str, float]:
    """Import in a process of its own; return the seconds, CPU seconds, peak memory and messages."""
    command = [
        sys.executable,
        "-m",
        "bench.store.archive",
        "--run",
        way,
        "--folder",
        str(folder),
        "--store",
        str(store),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _resident_megabytes() -> float:
    """Return the resident memory of this process and of those that it has started."""
    own = Path("/proc/self/task")
    started = [pid for one in own.iterdir() for pid in (one / "children").read_text().split()]
    pages = 0
    for pid in ["self", *started]:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except (OSError, IndexError):  # it has ended
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class _MemoryWatch(threading.Thread):
    """The most memory that this process and those that it started have had at once, looked at again and again."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0.0
        self._is_over = threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        while not self._is_over.wait(0.05):
            self.peak = max(self.peak, _resident_megabytes())

    def end(self) -> float:
        """Return the peak."""
        self._is_over.set()
        self.join()
        return self.peak


_WAYS = {"before": import_as_before, "import": import_with_command, "now": import_now}


def _run(way: str, folder: Path, path: Path) -> None:
    gc.set_threshold(50_000, 20, 50)  # as the program does
    with Store.open(path) as store:
        base = _resident_megabytes()
        watch = _MemoryWatch()
        watch.start()
        clock, cpu = time.perf_counter(), _cpu_seconds()
        _WAYS[way](store, folder)
        told = {"seconds": time.perf_counter() - clock, "cpu": _cpu_seconds() - cpu}
        told["memory"] = watch.end() - base
        told["messages"] = stats(store)["messages"]
    print(json.dumps(told))


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has started and that have ended."""
    return sum(os.times()[:4])


def _kill_on_the_way(folder: Path, store: Path, after: float) -> None:
    command = [
        sys.executable,
        "-m",
        "bench.store.archive",
        "--run",
        "now",
        "--folder",
        str(folder),
        "--store",
        str(store),
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(after)
        process.send_signal(signal.SIGKILL)


def _rescan(folder: Path, store: Path) -> float:
    with Store.open(store) as opened:
        scan = Scan(opened, [LogFolder("claude-code", folder, ("**/*.jsonl",))])
        scan.run()
        began = time.perf_counter()
        scan.run()
        return time.perf_counter() - began


def main() -> None:
    """Print the figures; exit with 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.store.archive", description=__doc__)
    parser.add_argument("--megabytes", type=float, default=1_000)
    parser.add_argument("--sample", type=float, default=120, help="megabytes on which the ways are compared")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each way")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--run", choices=tuple(_WAYS))
    asked = parser.parse_args()
    if asked.run:
        _run(asked.run, asked.folder, asked.store)
        return
    with tempfile.TemporaryDirectory(prefix="everlong-archive-", dir=asked.folder) as made:
        place = Path(made)
        sample = place / "sample"
        size = write_logs(sample, asked.sample)
        ways: dict[str, list[dict[str, float]]] = {way: [] for way in _WAYS}
        for number in range(asked.rounds):
            for way, runs in ways.items():
                runs.append(measure(sample, way, place / f"{way}-{number}.db"))
        rates = {way: max(size / 1e6 / one["seconds"] for one in runs) for way, runs in ways.items()}
        ratio = rates["now"] / rates["before"]
        counts = {one["messages"] for runs in ways.values() for one in runs}
        print(f"{size / 1e6:.0f} MB in {len(list(sample.iterdir()))} logs, {max(counts):,.0f} messages")
        for way, runs in ways.items():
            cpu = min(one["cpu"] for one in runs)
            told = f"  {way:6} {rates[way]:6.1f} MB/s, {1_000 * cpu / (size / 1e6):5.1f} ms of CPU per MB"
            print(told + f": {rates[way] / rates['before']:.1f} times" if way != "before" else told)
        print(f"  the archive against before: {ratio:.1f} times  {verdict(ratio, RATE, at_least=True)}")
        is_held = ratio >= RATE and len(counts) == 1
        logs = place / "logs"
        size = write_logs(logs, asked.megabytes)
        _kill_on_the_way(logs, place / "killed.db", min(10.0, asked.megabytes / 100))
        went_on = measure(logs, "now", place / "killed.db")
        whole = measure(logs, "now", place / "whole.db")
        is_same = went_on["messages"] == whole["messages"]
        print(f"{size / 1e6:,.0f} MB: {whole['seconds']:.0f} s, {size / 1e6 / whole['seconds']:.1f} MB/s")
        print(f"  memory {whole['memory']:.0f} MB  {verdict(whole['memory'], MEMORY_MB)}")
        print(f"  killed and run again: {went_on['messages']:,.0f} of {whole['messages']:,.0f} messages")
        again = _rescan(logs, place / "whole.db")
        print(f"  unchanged logs: {again:.2f} s  {verdict(again, RESCAN_SECONDS)}")
        is_held = is_held and is_same and whole["memory"] <= MEMORY_MB and again <= RESCAN_SECONDS
    sys.exit(not is_held)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
