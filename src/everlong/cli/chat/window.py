"""Where a context window goes, part by part, in tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from everlong.context.literals import is_summary
from everlong.model import is_system, text_of
from everlong.plugins.guard import compressors_in
from everlong.store.viewing import PINNED
from everlong.tokens import MessageCounter, counter_for

if TYPE_CHECKING:
    from everlong.agent import Agent

__all__ = ["WindowPart", "window_parts"]


class WindowPart(NamedTuple):
    """One part of the window."""

    name: str
    tokens: int
    messages: int
    style: str


def window_parts(agent: Agent) -> list[WindowPart]:
    """The parts of the window, in the order in which they are sent; they add up to it."""
    engine, conversation = agent.engine, agent.conversation
    counting = compressors_in(engine)
    counter = counting[0].counter if counting else MessageCounter(counter_for(None))
    memory_text = agent.memory.prompt_block() if agent.memory is not None else ""
    tools = counter.count_tools(agent.tools.toolbox.schemas())
    memory = counter.count_text(memory_text) if memory_text and memory_text in conversation.system_prompt else 0
    system = summary = pinned = tail = summaries = rest = 0
    for message, tokens in zip(conversation.messages, counter.counts(conversation.messages), strict=True):
        if is_system(message):
            system += tokens
        elif is_summary(message):
            told = text_of(message).partition(PINNED)[2]
            pins = counter.count_text(told) if told else 0
            summary, pinned, summaries = summary + tokens - pins, pinned + pins, summaries + 1
        else:
            tail, rest = tail + tokens, rest + 1
    counted = tools + system + summary + pinned + tail
    used = max(counted, agent.compactor.tokens)
    parts = [
        WindowPart("system", system - memory, 0, "blue"),
        WindowPart("tools", tools, 0, "cyan"),
        WindowPart("memory", memory, 0, "magenta"),
        WindowPart("summary", summary, summaries, "yellow"),
        WindowPart("pinned", pinned, 0, "red"),
        WindowPart("tail", tail + used - counted, rest, "green"),
    ]
    return [*parts, WindowPart("free", max(0, engine.context_length - used), 0, "dim")]
