"""``everlong doctor``: runs all checks of ``doctor_checks.py`` and prints what they find.

Whatever is broken, the command ends with a list and no traceback.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from everlong.cli.doctor_checks import CHECKS, DoctorSituation, Finding, fail
from everlong.cli.screen import styled
from everlong.redaction import redact

if TYPE_CHECKING:
    from everlong.cli.doctor_checks import Check, State

__all__ = ["doctor_command"]

_COLOURS: dict[State, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
_WIDTH = 18


@click.command("doctor")
@click.option(
    "--call",
    is_flag=True,
    help="Also contact servers: one real call of one token to the model, its clock, local servers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor_command(call: bool, as_json: bool) -> None:
    """Check the installation, the configuration, the model and the store; exit with 1 if anything fails.

    Nothing is changed, and without --call nothing is sent anywhere.
    """
    situation = DoctorSituation(call)
    found: list[Finding] = []
    for check in CHECKS:
        for finding in _run_check(check, situation):
            found.append(finding)
            if not as_json:
                _print_finding(finding)
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


def _run_check(check: Check, situation: DoctorSituation) -> Iterator[Finding]:
    """Yield the findings of a check, without secrets; a check that breaks is a finding too."""
    try:
        for one in check(situation):
            yield one._replace(text=_line(redact(one.text)), advice=_line(redact(one.advice)))
    except Exception as error:  # noqa: BLE001 - a broken package may raise anything, and the other checks go on
        name = check.__name__.removeprefix("check_").replace("_", " ")
        said = _line(redact(f"{type(error).__name__}: {error}"))
        yield fail(name, f"this check failed ({said})", "repair or reinstall what the error names")


def _line(text: str) -> str:
    return " ".join(text.split())


def _print_finding(finding: Finding) -> None:
    state = styled(f"{finding.state:<4}", fg=_COLOURS[finding.state], bold=finding.state != "ok")
    click.echo(f"{state}  {_printable(f'{finding.name:<{_WIDTH}}{finding.text}')}")
    if finding.advice:
        click.echo(f"{'':{6 + _WIDTH}}{_printable(f'→ {finding.advice}')}")


def _printable(text: str) -> str:
    """Return a text with escapes for the characters that standard output cannot show."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return os.fsdecode(text.encode("ascii", "backslashreplace"))
