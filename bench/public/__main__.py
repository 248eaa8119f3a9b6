"""Run the public benchmark, and write docs/benchmark.md with its pictures from the results.

    python -m bench.public [--data FOLDER]… [--parts keeping,chats,…] [--write] [--jobs N]
    python -m bench.public --page

Without a folder of conversations it uses those that come with the project. The first run installs the other packages
into environments of their own in ``.bench-peers/``. ``--parts`` runs some parts and keeps the stored results of the
others; ``--page`` only writes the page and the pictures anew from the stored results.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.public.chats import measure_chats
from bench.public.cost import measure_cache, measure_cpu
from bench.public.gateways import cpu_seconds, measure_gateways
from bench.public.keeping import measure_keeping
from bench.public.page import RESULTS, ROOT, render, write_page
from bench.public.peers import METHODS
from bench.public.retrieval import measure_retrieval
from bench.public.stub import VERSION

PARTS = ("keeping", "chats", "cpu", "cache", "retrieval", "gateways")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the page or write it."""
    options = _options(arguments)
    stored: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    if options.page:
        if not stored:
            print(f"public: there are no results in {RESULTS}; run it with --write first", file=sys.stderr)
            return 1
        write_page(stored)
        return 0
    for folder in options.data:
        if not folder.is_dir():
            print(f"public: there is no folder {folder}; --data takes folders of *.jsonl files", file=sys.stderr)
            return 2
    if not options.data:
        print("public: no --data; only the conversations of the project itself are used", file=sys.stderr)
    results = {name: value for name, value in stored.items() if name in PARTS and name not in options.parts}
    for name in options.parts:
        print(f"public: {name}", file=sys.stderr, flush=True)
        start, cpu, stamp = time.monotonic(), _cpu_seconds(), _stamp()
        measured = _measure(name, options)
        stamp["most"], stamp["stub"] = options.most, VERSION
        stamp["seconds"], stamp["cpu_seconds"] = round(time.monotonic() - start), round(_cpu_seconds() - cpu)
        results[name] = {**stamp, **measured}
        if options.keep:
            options.keep.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    results = {"machine": _machine(), **{name: results[name] for name in PARTS if name in results}}
    if options.write:
        if missing := [name for name in PARTS if name not in results]:
            print(f"public: the page lacks {', '.join(missing)}: there are no results of them", file=sys.stderr)
        write_page(results)
    else:
        print(render(results))
    return 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.public", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, action="append", default=[], help="a folder of *.jsonl conversations")
    parser.add_argument("--parts", type=_parts, default=PARTS, help=f"of {', '.join(PARTS)}; all without it")
    parser.add_argument("--methods", type=_methods, default=[one.name for one in METHODS], help="some of the packages")
    parser.add_argument("--write", action="store_true", help="write docs/benchmark.md, its pictures and results")
    parser.add_argument("--page", action="store_true", help="write page and pictures anew from the stored results")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write the results so far after every part")
    parser.add_argument("--share", type=float, default=1.0, help="of the requests to gateways")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="conversations of each kind; 0 for all")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args(arguments)


def _measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    data, methods, jobs, most = options.data, options.methods, options.jobs, options.most
    runs: dict[str, Callable[[], dict[str, Any]]] = {
        "keeping": lambda: measure_keeping(data, methods, jobs, most),
        "chats": lambda: measure_chats(data, methods, jobs, most),
        "cpu": lambda: measure_cpu(methods),
        "cache": lambda: measure_cache(data, methods, jobs, most),
        "retrieval": lambda: measure_retrieval(data, most),
        "gateways": lambda: measure_gateways(options.share),
    }
    return runs[name]()


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all that it has started: those that ended, and those that run."""
    times = os.times()
    running = cpu_seconds(os.getpid()) if Path("/proc/self/stat").exists() else times.user + times.system
    return running + times.children_user + times.children_system


def _stamp() -> dict[str, Any]:
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=10", "HEAD:src"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False)
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"date": day, "tree": told.stdout.strip() if told.returncode == 0 else ""}


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "everlong": importlib.metadata.version("everlong"),
    }


def _parts(text: str) -> tuple[str, ...]:
    chosen = text.split(",")
    if unknown := [part for part in chosen if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in chosen)


def _methods(text: str) -> list[str]:
    known = [method.name for method in METHODS]
    chosen = [name.strip() for name in text.split(";")]
    if unknown := [name for name in chosen if name not in known]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {'; '.join(known)}")
    return [name for name in known if name in chosen]


if __name__ == "__main__":
    sys.exit(main())
