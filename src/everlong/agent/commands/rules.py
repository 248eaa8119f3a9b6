"""``/rules``: the user's standing rules."""

from __future__ import annotations

from everlong.agent.commands.registry import ChatError, Desk, pick

_RULES_USAGE = "say /rules, /rules add TEXT, or /rules remove N"


def rules(desk: Desk, words: str) -> None:
    """List the rules in force, add one, or remove one by its number."""
    what, _, rest = words.partition(" ")
    rest = rest.strip()
    if not words:
        _list_rules(desk)
    elif what == "add" and rest:
        desk.agent.edit_rules(added=[rest])
        desk.show.line(f"in force from now on: {' '.join(rest.split())}")
    elif what == "remove" and rest:
        if not desk.agent.rules.lines:
            raise ChatError("there are no rules to remove")
        rule = pick(desk.agent.rules.lines, rest, "; /rules lists them")
        desk.agent.edit_rules(removed=[rule.text])
        desk.show.line(f"no longer in force: {rule.text}")
    else:
        raise ChatError(_RULES_USAGE)


def _list_rules(desk: Desk) -> None:
    found = desk.agent.rules
    if not found.lines and not found.older:
        desk.show.line("no rules yet: say what always or never holds, or /rules add TEXT")
    for number, rule in enumerate(found.lines, 1):
        desk.show.line(f"{number}  {rule.text}  (turn {rule.turn})")
    if found.older:
        many = len(found.older)
        desk.show.line(
            f"{many} older rule{'' if many == 1 else 's'} had no room after the summary: {', '.join(found.older)}",
            "dim",
        )
