"""``everlong completion``: the script with which a shell completes commands and options.

The script asks the program itself what fits, so it never has to be made anew after an upgrade.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

__all__ = ["COMPLETION_VARIABLE", "completion_command"]

COMPLETION_VARIABLE = "_EVERLONG_COMPLETE"
"""The environment variable by which a shell's script asks the program what fits."""

_SHELLS = ("bash", "zsh", "fish")
_USE = """\
\b
  bash   echo 'eval "$(everlong completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(everlong completion zsh)"' >> ~/.zshrc
  fish   everlong completion fish > ~/.config/fish/completions/everlong.fish
"""


@click.command("completion", epilog=_USE)
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def completion_command(context: click.Context, shell: str | None) -> None:
    """Print the completion script of a shell; without SHELL, of the one in $SHELL."""
    name = shell or _own_shell()
    found = get_completion_class(name)
    if found is None:  # click knows all three; another version may not
        raise click.ClickException(f"this version of click has no completion for {name}")
    root = context.find_root()
    maker = found(root.command, {}, "everlong", COMPLETION_VARIABLE)
    # Not `source`: for bash it starts one to ask for its version, which may not be on the path here.
    click.echo(maker.source_template % maker.source_vars())


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        told = f"$SHELL is {name}" if name else "$SHELL is not set"
        raise click.UsageError(f"{told}; name one of {', '.join(_SHELLS)}")
    return name
