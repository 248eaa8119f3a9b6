"""The ``everlong`` program: its commands, and what a person sees when something goes wrong.

Data goes to stdout, chatter and errors to stderr. Exit codes: 0 success, 1 failure, 2 wrong usage, 130
interrupted. A traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from everlong import __version__
from everlong.cli.screen import spelling_out
from everlong.errors import EverlongError


class HintingGroup(click.Group):
    """A click group that refuses an unknown command with the nearest name, or with all names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; an unknown one is refused."""
        if args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a name that was not found

            known = self.list_commands(ctx)
            near = get_close_matches(args[0], known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(HintingGroup):
    """A click group whose commands are named by ``module:attribute``, each with its line in the help."""

    def __init__(self, *arguments: Any, lazy: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, sorted."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported now if it is lazy; None if there is no command of that name."""
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click calls it so
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name][1]) for name in sorted(self.lazy)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that begin so, without importing any command."""
        found = [
            CompletionItem(name, help=self.lazy[name][1]) for name in sorted(self.lazy) if name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


_COMMANDS = {
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
    except (EverlongError, OSError, MemoryError, RecursionError) as error:
        if os.environ.get("EVERLONG_DEBUG"):
            raise
        from everlong.cli.output import say  # noqa: PLC0415 - as above

        say(_describe(error))
        sys.exit(1)


def _describe(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
