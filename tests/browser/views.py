"""The views of the inspector: the address of each, and words that it has to show."""

from __future__ import annotations

from typing import NamedTuple

from bench.inspector_story import PORT, TITLE, Story


class View(NamedTuple):
    """A view; ``{c}`` in its path is the conversation, ``{m}`` the message in which the port was named."""

    path: str
    shows: str


VIEWS: dict[str, View] = {
    "list": View("/inspector/", TITLE),
    "search": View("/inspector/search?q=port+number", "Summarized away"),
    "message": View("/inspector/m/{m}", PORT),
    "now": View("{c}", "What the model gets now"),
    "timeline": View("{c}/timeline", "Requests, newest first"),
    "transcript": View("{c}/transcript?page=1", PORT),
    "compactions": View("{c}/compactions", "Compaction 2"),
    "compaction": View("{c}/compactions/1", "Compaction 1 of"),
    "tree": View("{c}/tree", "Sub-agents and forks"),
    "cost": View("/inspector/cost?age=all", "Provider caching"),
    "problem": View("/inspector/c/nobody", "Back to all conversations"),
}


def path_of(view: str, story: Story) -> str:
    """Return the address of a view of the story."""
    node = story.store.conversations.node_at(story.ident, story.said_turn)
    assert node is not None
    return VIEWS[view].path.format(c=story.link, m=node.hex())
