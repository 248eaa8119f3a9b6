"""``python -m everlong.testing``: a stand-in model on loopback, for trying a client without a key.

It speaks both APIs, repeats each question, runs a command if told to, and lists the questions as a summary.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence

from everlong.model import SUMMARY_STARTS
from everlong.testing.server import Answer, Ask, Call, ModelServer

__all__ = ["main"]

_REPEATED_CHARS = 80
_SHELLS = {"run_command", "bash", "Bash"}
"""Tools that run a command, of Everlong, pi and Claude Code."""
_KEPT_REQUESTS = 20
"""Requests whose bodies stay in memory; a server in a shell may run for days."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C and return the exit code."""
    options = _parser().parse_args(arguments)
    server = ModelServer(repeat_question, port=options.port, window=options.window, remember=_KEPT_REQUESTS)
    try:
        with server:
            sys.stdout.write(_describe(server))
            sys.stdout.flush()
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except (OSError, OverflowError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        sys.stderr.write(f"python -m everlong.testing: port {options.port} cannot be used ({why}); see --port\n")
        return 1
    return 0


def repeat_question(ask: Ask) -> Answer | str:
    """Answer with the beginning of the question, a call of the shell for ``run: ls``, or a summary."""
    if ask.results:
        return f"The tool said: {_beginning(ask.results[-1][1])}"
    order, _, command = ask.last_user.strip().partition(":")
    shell = next((name for name in ask.tools if name in _SHELLS), None)
    if shell and command and order.lower() == "run":
        return Answer(calls=[Call(shell, {"command": command.strip()})])
    if "\n## Goal\n" in ask.system + ask.last_user:
        said = [turn.text for turn in ask.turns if turn.role == "user" and turn.text][:-1]
        earlier = [text for text in said if not text.startswith(SUMMARY_STARTS)] or ["a part of the conversation"]
        done = "".join(f"- {_beginning(text)}\n" for text in earlier)
        return f"## Progress\n### Done\n{done}"
    return f"You said: {_beginning(ask.last_user)}"


def _beginning(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _REPEATED_CHARS else f"{words[:_REPEATED_CHARS].rstrip()}…"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m everlong.testing",
        description="Run a stand-in model on this machine. It needs no key, speaks the APIs of Anthropic and OpenAI, "
        "repeats the beginning of every question, and runs a command if told to. Ctrl-C ends it.",
    )
    parser.add_argument("--port", type=int, default=0, metavar="N", help="the port to listen on (default: a free one)")
    parser.add_argument(
        "--window",
        type=int,
        default=200_000,
        metavar="TOKENS",
        help="refuse prompts that do not fit into this many tokens (default: 200000)",
    )
    return parser


def _describe(server: ModelServer) -> str:
    return (
        f"A stand-in model with a window of {server.window:,} tokens answers at\n"
        f"  {server.url}     for clients of Anthropic's API\n"
        f"  {server.openai_url}  for clients of OpenAI's API\n"
        "\n"
        "Set these where your client runs; any key will do:\n"
        f"  export ANTHROPIC_BASE_URL={server.url} ANTHROPIC_API_KEY=any\n"
        f"  export OPENAI_BASE_URL={server.openai_url} OPENAI_API_KEY=any\n"
        "\n"
        "Then try, in that shell:\n"
        '  everlong                   and type "run: ls", to be asked first\n'
        '  everlong run -m openai:gpt-5 "Hello"\n'
        "  everlong wrap -- claude\n"
        f"  everlong serve --upstream {server.url}\n"
        "With --window 12000 the window is small, and a compaction comes soon.\n"
        "\n"
        "Ctrl-C ends it.\n"
    )


if __name__ == "__main__":
    sys.exit(main())
