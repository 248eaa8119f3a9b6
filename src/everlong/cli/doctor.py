"""``everlong doctor``: looks at everything that has to be right, and says what is not and what to do about it.

The checks are in ``doctor_*.py``, by subject. Whatever is broken, this command ends with a list and no traceback.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import click

from everlong.cli.doctor_checks import DoctorSituation, Finding, fail
from everlong.cli.screen import styled
from everlong.context.summary.redaction import redacted

if TYPE_CHECKING:
    from everlong.cli.doctor_checks import State

__all__ = ["doctor_command"]

Check = Callable[[DoctorSituation], Iterable[Finding]]

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_WIDTH = 16


@click.command("doctor")
@click.option("--call", is_flag=True, help="Also talk to servers: one real call of a token to the model, the clock …")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(call: bool, as_json: bool) -> None:
    """Check the installation, the configuration, the model and the store; leaves with 1 if anything fails.

    Nothing is changed, and without --call nothing is sent anywhere.
    """
    situation = DoctorSituation(call)
    found: list[Finding] = []
    for check in _checks():
        for finding in _done(check, situation):
            found.append(finding)
            if not as_json:
                _put(finding)
    if situation.connection is not None:
        situation.connection.close()
    failures = sum(finding.state == "fail" for finding in found)
    if as_json:
        click.echo(json.dumps({"ok": not failures, "checks": [one._asdict() for one in found]}, indent=2))
    else:
        warnings = sum(finding.state == "warn" for finding in found)
        click.echo(f"everlong: {len(found)} checks, {failures} failed, {warnings} with a warning", err=True)
    if failures:
        raise click.exceptions.Exit(1)


def _checks() -> Iterator[Check]:
    from everlong.cli import doctor_checks as checks  # noqa: PLC0415 - keeps `everlong --help` quick

    yield from (checks.check_python, checks.check_packages, checks.check_config, checks.check_folder)
    yield from (checks.check_sandbox, checks.check_terminal)
    yield from (checks.check_keys, checks.check_model, checks.check_call, checks.check_clock)
    yield from (checks.check_summaries, checks.check_gateway, checks.check_local)
    yield from (checks.check_store, checks.check_disk, checks.check_logs, checks.check_memory, checks.check_engine)
    yield checks.check_plugins


def _done(check: Check, situation: DoctorSituation) -> Iterator[Finding]:
    """What a check finds, without secrets; one that breaks has found something too."""
    try:
        for one in check(situation):
            yield one._replace(text=_line(redacted(one.text)), advice=_line(redacted(one.advice)))
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything, and the other checks go on
        name = check.__name__.removeprefix("check_").replace("_", " ")
        said = _line(redacted(f"{type(error).__name__}: {error}"))
        yield fail(name, f"this could not be looked at ({said})", "mend or reinstall what the error names")


def _line(text: str) -> str:
    return " ".join(text.split())


def _put(finding: Finding) -> None:
    state = styled(f"{finding.state:<4}", fg=_COLOURS[finding.state], bold=finding.state != "ok")
    click.echo(f"{state}  {_shown(f'{finding.name:<{_WIDTH}}{finding.text}')}")
    if finding.advice:
        click.echo(f"{'':{6 + _WIDTH}}{_shown(f'→ {finding.advice}')}")


def _shown(text: str) -> str:
    """A text as far as standard output can show it."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return os.fsdecode(text.encode("ascii", "backslashreplace"))
