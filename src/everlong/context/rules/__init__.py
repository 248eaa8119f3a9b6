"""Standing rules of the user: quotations of what a person typed, carried word for word until they are taken back."""

from everlong.context.rules.standing_rules import (
    EDIT_ANSWER,
    Rule,
    StandingRules,
    edit_message,
    read_block,
    standing_rules,
)
from everlong.context.rules.wording import found_rules

__all__ = ["EDIT_ANSWER", "Rule", "StandingRules", "edit_message", "found_rules", "read_block", "standing_rules"]
