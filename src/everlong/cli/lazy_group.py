"""A group of commands that imports a command's module only when that command is called.

``everlong --help`` therefore loads nothing but click. A command's own ``--help`` loads its module, so modules import
heavy packages at their top only if every command in them needs these.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is called; an unknown one is refused with the nearest name."""
        if args[0] not in self.list_commands(ctx) and not ctx.resilient_parsing:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a name that was not found

            near = get_close_matches(args[0], self.list_commands(ctx), 1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

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
