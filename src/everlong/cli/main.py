"""The ``everlong`` program: its commands, and what a person sees when something goes wrong.

Data goes to stdout, chatter and errors to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage, 130
interrupted. A traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import os
import sys

import click

from everlong import __version__
from everlong.cli.lazy_group import LazyGroup
from everlong.cli.screen import spelling_out
from everlong.errors import EverlongError

_COMMANDS = {
    "archive": ("everlong.cli.archive.command:archive_command", "Import the logs of other clients as they grow."),
    "auth": ("everlong.cli.auth:auth_group", "Keep the keys of model providers in the system's keyring."),
    "cache-sim": (
        "everlong.cli.cache_sim:cache_sim_command",
        "Show what a conversation costs under each caching strategy.",
    ),
    "channels": ("everlong.cli.channels:channels_group", "Talk to the agent in Telegram and Discord."),
    "chat": ("everlong.cli.chat.command:chat_command", "Talk to a model with tools, past the end of its window."),
    "compress": ("everlong.cli.compress:compress_command", "Compact the conversations of a file."),
    "config": ("everlong.cli.config:config_group", "Show or change settings."),
    "demo": ("everlong.cli.demo:demo_command", "Play a long agent session in a small window."),
    "doctor": ("everlong.cli.doctor:doctor_command", "Check the installation, settings, model and store."),
    "hook": (
        "everlong.cli.hook:hook_command",
        "Called by the hooks of clients: store a session, or tell where work stands.",
    ),
    "inspect": ("everlong.cli.inspect:inspect_command", "Show where the tokens of a conversation go."),
    "mcp": ("everlong.cli.mcp:mcp_command", "Serve stored conversations to other agents (MCP)."),
    "plugins": ("everlong.cli.plugins:plugins_group", "List plugins and choose the context engine."),
    "run": ("everlong.cli.run:run_command", "Work on one prompt with tools until it is done."),
    "serve": ("everlong.cli.serve:serve_command", "Serve the gateway that clients talk to."),
    "sessions": ("everlong.cli.sessions:sessions_group", "Read, search, import and export stored conversations."),
    "setup": ("everlong.cli.setup:setup_command", "Point a client at the gateway."),
    "trust": ("everlong.cli.trust:trust_group", "Say which folders may bring settings and instructions."),
    "usage": ("everlong.cli.usage:usage_command", "Show what models, caching and compactions cost."),
    "why": ("everlong.cli.why:why_command", "Show where something was said, and what has become of it."),
    "wrap": ("everlong.cli.wrap:wrap_command", "Run a program with its model calls through the gateway."),
}
"""The place of each command, and its line in ``everlong --help``."""


class _Program(LazyGroup):
    """The program: without a command it chats, with the options of ``everlong chat``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line."""
        at = next((place for place, word in enumerate(args) if word != "--debug"), len(args))
        is_own = args[at : at + 1] and (not args[at].startswith("-") or args[at] in _OWN_OPTIONS)
        if not is_own and not ctx.resilient_parsing:  # completion looks at half a line
            args = [*args[:at], "chat", *args[at:]]
        return super().parse_args(ctx, args)


_OWN_OPTIONS = {"-h", "--help", "--version"}


@click.group(cls=_Program, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.version_option(__version__, prog_name="everlong")
def cli(debug: bool) -> None:
    """Keep LLM agents going past the end of their context window; without a command, chat."""
    if debug:
        os.environ["EVERLONG_DEBUG"] = "1"


def main(arguments: list[str] | None = None) -> None:
    """Run the program and exit with its code."""
    try:
        with spelling_out():
            _run(arguments)
    except BrokenPipeError:
        # The reader (head, less) has closed the pipe; without this, Python would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(arguments: list[str] | None) -> None:
    try:
        # click returns the exit code of a command that left early, else the command's result, None.
        code = cli.main(args=arguments, prog_name="everlong", standalone_mode=False)
        if code:
            sys.exit(code)
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except click.ClickException as error:
        from everlong.cli.output import fold  # noqa: PLC0415 - only when something goes wrong

        told = fold(f"Error: {error.format_message()}").removeprefix("Error: ")  # click writes this before it
        error.format_message = lambda: told  # type: ignore[method-assign]
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("everlong: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        raise
    except (EverlongError, OSError, MemoryError) as error:
        if os.environ.get("EVERLONG_DEBUG"):
            raise
        from everlong.cli.output import say  # noqa: PLC0415 - as above

        say(_describe(error))
        sys.exit(1)


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
