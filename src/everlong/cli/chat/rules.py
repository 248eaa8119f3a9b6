"""``/rules``: the standing rules of the user, shown with their numbers, added and removed.

An edit is a message of the conversation like any other. So it is stored at once, is in force from the next request on,
goes through compactions with the rest, is there again in a resumed session, and can be taken back with ``/undo``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from everlong.cli.chat.commands import ChatError, Command, Desk

if TYPE_CHECKING:
    from everlong.context.rules import Rule

__all__ = ["RULES"]

_HOW = "say /rules, /rules add TEXT, or /rules remove N"


def rules(desk: Desk, words: str) -> None:
    """List the rules in force, add one, or remove one by its number."""
    what, _, rest = words.partition(" ")
    rest = rest.strip()
    if not words:
        _list(desk)
    elif what == "add" and rest:
        desk.agent.edit_rules(added=[rest])
        desk.show.line(f"in force from now on: {' '.join(rest.split())}")
    elif what == "remove" and rest:
        rule = _numbered(desk.agent.rules.lines, rest)
        desk.agent.edit_rules(removed=[rule.text])
        desk.show.line(f"no longer in force: {rule.text}")
    else:
        raise ChatError(_HOW)


def _list(desk: Desk) -> None:
    found = desk.agent.rules
    if not found.lines and not found.older:
        desk.show.line("no rules yet: say what always or never holds, or /rules add TEXT")
    for number, rule in enumerate(found.lines, 1):
        origin = "project instructions" if rule.source == "project" else "you"
        kind = "a preference, " if rule.kind == "preference" else ""
        desk.show.line(f"{number}  {rule.text}  ({kind}{origin}, turn {rule.turn})")
    if found.older:
        many = len(found.older)
        desk.show.line(
            f"{many} older rule{'' if many == 1 else 's'} had no room after the summary: {', '.join(found.older)}",
            "dim",
        )


def _numbered(lines: tuple[Rule, ...], words: str) -> Rule:
    if not lines:
        raise ChatError("there are no rules to remove")
    if not words.isdigit() or not 1 <= int(words) <= len(lines):
        raise ChatError(f"{words!r} is no number from 1 to {len(lines)}; /rules lists them")
    return lines[int(words) - 1]


RULES = [Command("rules", "[add TEXT | remove N]", "The rules you laid down; add one, or remove one.", rules)]
