"""The ``everlong`` program: its commands, and what a person sees when something goes wrong.

Data goes to stdout, chatter and errors to stderr. Exit codes: 0 well, 1 the work could not be done, 2 a wrong call,
130 interrupted. A traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import os
import sys

import click

from everlong.cli.auth import auth_group
from everlong.cli.cache_sim import cache_sim_command
from everlong.cli.chat.command import chat_command
from everlong.cli.compress import compress_command
from everlong.cli.config import config_group
from everlong.cli.demo import demo_command
from everlong.cli.doctor import doctor_command
from everlong.cli.inspect import inspect_command
from everlong.cli.plugins import plugins_group
from everlong.cli.run import run_command
from everlong.cli.screen import spelling_out
from everlong.cli.serve import serve_command
from everlong.cli.sessions import sessions_group
from everlong.cli.setup import setup_command
from everlong.cli.trust import trust_group
from everlong.cli.usage import usage_command
from everlong.cli.wrap import wrap_command
from everlong.errors import EverlongError


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, invoke_without_command=True)
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.version_option(package_name="everlong", prog_name="everlong")
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Keep LLM agents going past the end of their context window; without a command, chat."""
    if debug:
        os.environ["EVERLONG_DEBUG"] = "1"
    if context.invoked_subcommand is None:
        context.invoke(chat_command)


cli.add_command(auth_group)
cli.add_command(cache_sim_command)
cli.add_command(chat_command)
cli.add_command(compress_command)
cli.add_command(config_group)
cli.add_command(demo_command)
cli.add_command(doctor_command)
cli.add_command(inspect_command)
cli.add_command(plugins_group)
cli.add_command(run_command)
cli.add_command(serve_command)
cli.add_command(sessions_group)
cli.add_command(setup_command)
cli.add_command(trust_group)
cli.add_command(usage_command)
cli.add_command(wrap_command)


def main(arguments: list[str] | None = None) -> None:
    """Run the program and leave with its exit code."""
    try:
        with spelling_out():
            _run(arguments)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _run(arguments: list[str] | None) -> None:
    try:
        # Click hands back the code that a command left with, else what the command returned: nothing.
        code = cli.main(args=arguments, prog_name="everlong", standalone_mode=False)
        if code:
            sys.exit(code)
    except click.exceptions.Exit as request:
        sys.exit(request.exit_code)
    except click.ClickException as error:
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
        click.echo(f"everlong: {_sentence(error)}", err=True)
        sys.exit(1)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
