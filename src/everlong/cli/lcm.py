"""``everlong lcm``: the group of commands for the graphs of summaries that the lossless engine keeps.

``lcm_read.py`` has show, tree, grep, expand and stats; ``lcm_upkeep.py`` has build and doctor.
"""

from __future__ import annotations

import click

from everlong.cli.chosen_store import store_option, tenant_options
from everlong.cli.lazy_group import LazyGroup

_READ, _UPKEEP = (f"everlong.cli.lcm_{name}" for name in ("read", "upkeep"))
_COMMANDS = {
    "build": (f"{_UPKEEP}:build", "Summarize all messages of a conversation that no summary covers."),
    "doctor": (f"{_UPKEEP}:doctor", "Check that every message can be reached."),
    "expand": (f"{_READ}:expand", "Open summaries or messages by their ids."),
    "grep": (f"{_READ}:grep", "Search everything that was said, as the model does."),
    "show": (f"{_READ}:show", "List the summaries that the context stands on."),
    "stats": (f"{_READ}:stats", "Show the figures of a graph."),
    "tree": (f"{_READ}:tree", "Draw the graph of a conversation."),
}
"""The place of each command, and its line in ``everlong lcm --help``."""


@click.group("lcm", cls=LazyGroup, lazy=_COMMANDS)
@store_option(hidden=False)
@tenant_options(hidden=False)
def lcm_group() -> None:
    """Look into the graphs of summaries that the lossless engine (`context.engine: lcm`) keeps."""
