"""Runs ``everlong wrap -- claude`` on the model server and prints the line at its end, which README.md shows.

Claude Code (``make clients CLIENTS=claude-code``) reads 45 files of 4,900 tokens in a window of 200,000; the model is
scripted, and costs what Claude Sonnet 4.5 does.

    python -m bench.clients.wrapped
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

from bench.clients.install import command_of
from bench.clients.programs import PROGRAMS
from bench.clients.script import plan_of_one_prompt
from bench.clients.session import open_desk

WINDOW, FILES, TOKENS = 200_000, 45, 4_900
PRICES = {"input_price": 3, "output_price": 15, "cache_read_price": 0.3, "cache_write_price": 3.75}


def main() -> None:
    """Print what ``everlong wrap`` says at the end of the session, and what ``everlong usage`` counts."""
    program, plan = PROGRAMS["claude-code"], plan_of_one_prompt(FILES, TOKENS)
    with open_desk(program, [plan], through_gateway=False, window=WINDOW) as desk:
        place, home, programs = desk.place(plan), desk.root / "everlong", desk.root / "bin"
        home.mkdir()
        settings = {"models": {program.model: {"context_length": WINDOW, **PRICES}}}
        (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")
        programs.mkdir()
        claude, own = programs / "claude", command_of(program.name)
        claude.write_text(f'#!/bin/sh\nexec {shlex.join(own)} "$@"\n', encoding="utf-8")
        claude.chmod(0o755)
        env = program.environment(place) | {"EVERLONG_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
        env["PATH"] = f"{programs}:{env['PATH']}"
        everlong = str(Path(sys.executable).parent / "everlong")
        said = program.command(place, plan.prompt(0), resumes=False)[len(own) :]
        for words in (["wrap", "--port", "0", "--", "claude", *said], ["usage"]):
            subprocess.run([everlong, *words], cwd=place.folder, env=env, stdin=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main()
