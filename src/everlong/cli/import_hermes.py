"""``everlong import hermes``: the conversations, the notes and the settings of a user of Hermes Agent.

Nothing of Hermes is changed. What is here already stays as it is: conversations are added once, notes that are known
are not added again, and a setting that the user's own file makes is not overwritten.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from everlong.cli.chosen_store import index_pending, open_chosen_store, print_json, store_option
from everlong.cli.output import counted, json_option, progress_bar, say
from everlong.config.paths import user_config_path
from everlong.config.yaml_file import parse_document
from everlong.errors import ConfigError, EverlongError, NotesError

__all__ = ["import_group"]

_DELIMITER = "\n§\n"
_NOTES = {"MEMORY.md": "memory", "USER.md": "user"}
_COMPRESSION = ("enabled", "threshold", "target_ratio", "protect_last_n", "protect_first_n")
_AUXILIARY = ("provider", "model", "base_url")
_ENGINES = {"compressor": "compressor", "lcm": "lcm", "lossless": "lcm"}


@dataclass(slots=True)
class _Plan:
    """What there is to import, and what became of it."""

    sessions: int = 0
    conversations: int = 0
    messages: int = 0
    notes: list[tuple[str, str]] = field(default_factory=list)
    """Notes, each with the file that it is for."""
    settings: dict[str, str] = field(default_factory=dict)
    """Settings by their dotted names."""
    remarks: list[str] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)


@click.group("import")
def import_group() -> None:
    """Move in from another program."""


@import_group.command("hermes")
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of Hermes.  [default: HERMES_HOME, or ~/.hermes]",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
@json_option
@store_option
def hermes_command(home: Path | None, dry_run: bool, as_json: bool) -> None:
    """Import sessions with their lineage, memory files, and the settings of engine, compression and summary model.

    Importing again adds only what is new. Settings that your own configuration makes stay as they are.
    """
    named = os.environ.get("HERMES_HOME", "").strip()
    folder = home or (Path(named).expanduser() if named else Path.home() / ".hermes")
    if not folder.is_dir():
        raise ConfigError(f"there is no Hermes at {folder}; name its folder with --home")
    plan = _Plan()
    _plan_sessions(folder / "state.db", plan)
    _plan_notes(folder / "memories", plan)
    _plan_settings(folder / "config.yaml", plan)
    if not dry_run:
        _import_sessions(folder / "state.db", plan)
        _import_notes(plan)
        _import_settings(plan)
    _report(plan, folder, is_dry=dry_run, as_json=as_json)


def _plan_sessions(path: Path, plan: _Plan) -> None:
    from everlong.cli.archive.databases import hermes_lineages  # noqa: PLC0415 - keeps `--help` quick
    from everlong.cli.archive.formats import format_of_log, open_database  # noqa: PLC0415 - as above

    if not path.exists():
        plan.remarks.append(f"{path} is not there, so there are no sessions")
        return
    if format_of_log(path) != "hermes":
        raise ConfigError(f"{path} is no database of Hermes; name its folder with --home")
    try:
        with closing(open_database(path)) as connection:
            connection.row_factory = sqlite3.Row
            rows = connection.execute("SELECT * FROM sessions ORDER BY started_at, id").fetchall()
            plan.messages = connection.execute("SELECT COUNT(*) FROM messages").fetchone()[0]
    except sqlite3.Error as error:
        raise ConfigError(f"{path} cannot be read: {error}; end Hermes and try again") from error
    plan.sessions = len(rows)
    plan.conversations = sum(1 for _ in hermes_lineages({row["id"]: dict(row) for row in rows}))


def _plan_notes(folder: Path, plan: _Plan) -> None:
    for name, target in _NOTES.items():
        try:
            text = (folder / name).read_text("utf-8", errors="replace")
        except OSError:
            continue
        plan.notes += [(target, note.strip()) for note in text.split(_DELIMITER) if note.strip()]


def _plan_settings(path: Path, plan: _Plan) -> None:
    try:
        told: Any = parse_document(path.read_text("utf-8"), str(path)).values
    except OSError:
        return
    except (ConfigError, UnicodeDecodeError) as error:
        plan.remarks.append(f"{path} cannot be read, so no settings were taken: {' '.join(str(error).split())}")
        return
    config = told if isinstance(told, dict) else {}
    engine = _value(config, "context", "engine")
    if isinstance(engine, str):
        if engine in _ENGINES:
            plan.settings["context.engine"] = _ENGINES[engine]
        else:
            plan.remarks.append(
                f"context.engine is {engine!r} in Hermes: install that engine as a plugin, then set context.engine"
            )
    for name in _COMPRESSION:
        value = _value(config, "compression", name)
        if isinstance(value, bool | int | float):
            plan.settings[f"compression.{name}"] = str(value).lower() if isinstance(value, bool) else str(value)
    for name in _AUXILIARY:
        value = _value(config, "auxiliary", "compression", name)
        if isinstance(value, str) and value.strip():
            plan.settings[f"auxiliary.compression.{name}"] = value.strip()
    if isinstance(_value(config, "auxiliary", "compression", "api_key"), str):
        plan.remarks.append("keys are not taken over; `everlong auth set` keeps them in the system's keyring")


def _value(config: Any, *steps: str) -> Any:
    for step in steps:
        config = config.get(step) if isinstance(config, dict) else None
    return config


def _import_sessions(path: Path, plan: _Plan) -> None:
    if not plan.sessions:
        return
    from everlong.cli.archive.log_import import LogImport  # noqa: PLC0415 - keeps `--help` quick

    with open_chosen_store(new=True) as store, progress_bar("importing"):
        found = LogImport(store, is_own=lambda _: True).add(path, form="hermes")
        plan.outcomes = {} if found is None else dict(found.outcomes)
        index_pending(store)


def _import_notes(plan: _Plan) -> None:
    from everlong.memory.notes import NotesMemory  # noqa: PLC0415 - keeps `--help` quick

    memory = NotesMemory()
    added = 0
    for target, note in plan.notes:
        try:
            memory.add(target, note)  # type: ignore[arg-type]
        except NotesError as error:
            if "already" not in str(error):
                plan.remarks.append(f"a note was left out: {' '.join(str(error).split())}")
        else:
            added += 1
    plan.outcomes["notes"] = added


def _import_settings(plan: _Plan) -> None:
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `--help` quick
    from everlong.config.edit import set_value  # noqa: PLC0415 - as above

    path = user_config_path()
    loaded = load_settings()
    origins = loaded.origins
    written = 0
    for name, value in plan.settings.items():
        origin = origins.get(name)
        if origin is not None and origin.kind != "default":
            if str(_current(loaded.settings, name)).lower() != value.lower():
                plan.remarks.append(f"{name} is set already and stays; Hermes has {value}")
            continue
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            set_value(path, name, value)
        except EverlongError as error:
            plan.remarks.append(f"{name} was left out: {' '.join(str(error).split())}")
        else:
            written += 1
    plan.outcomes["settings"] = written


def _current(settings: Any, name: str) -> Any:
    """Return the value of a setting by its dotted name."""
    for step in name.split("."):
        settings = getattr(settings, step)
    return settings


def _report(plan: _Plan, folder: Path, *, is_dry: bool, as_json: bool) -> None:
    if as_json:
        notes = [{"file": target, "note": note} for target, note in plan.notes]
        told = {"sessions": plan.sessions, "conversations": plan.conversations, "messages": plan.messages}
        told_more = {"settings": plan.settings, "done": plan.outcomes, "remarks": plan.remarks}
        print_json({"home": str(folder), "is_dry_run": is_dry, **told, "notes": notes, **told_more})
        return
    for line in _lines(plan, is_dry=is_dry):
        say(line)


def _lines(plan: _Plan, *, is_dry: bool) -> Iterator[str]:
    there = f"{counted(plan.sessions, 'session')} ({counted(plan.conversations, 'conversation')}, "
    there += f"{counted(plan.messages, 'message')}), {counted(len(plan.notes), 'note')}, "
    there += counted(len(plan.settings), "setting")
    yield f"{'would import' if is_dry else 'found'} {there}"
    if is_dry:
        yield from (f"  note for {target}: {' '.join(note.split())[:100]}" for target, note in plan.notes)
        yield from (f"  {name}: {value}" for name, value in plan.settings.items())
    else:
        done = plan.outcomes
        sessions = ", ".join(f"{done.get(name, 0):,} {name}" for name in ("new", "grown", "known"))
        more = f"notes added: {done.get('notes', 0):,}; settings written: {done.get('settings', 0):,}"
        yield f"sessions: {sessions}; {more}"
    yield from plan.remarks
