"""Standing rules of the user: found in people's turns and carried word for word until they are taken back."""

from everlong.context.rules.detection import found_rules
from everlong.context.rules.prose import FoundRule
from everlong.context.rules.standing_rules import (
    EDIT_ANSWER,
    Rule,
    StandingRules,
    edit_message,
    read_block,
    read_edit,
    standing_rules,
    without_lifted,
)

__all__ = [
    "EDIT_ANSWER",
    "FoundRule",
    "Rule",
    "StandingRules",
    "edit_message",
    "found_rules",
    "read_block",
    "read_edit",
    "standing_rules",
    "without_lifted",
]
