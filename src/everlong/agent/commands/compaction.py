"""Commands that compact, or say what that would do, or take it back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import everlong.context
from everlong.agent.commands.registry import ChatError, Desk
from everlong.agent.text import counted
from everlong.model import is_system, text_of

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.caching.rules import ModelRules
    from everlong.context import CompactionReport

_MOST_GONE = 12
"""Messages that a preview lists."""


def compress(desk: Desk, words: str) -> None:
    """Compact now, perhaps with a focus; or preview what that would do."""
    if words.startswith("--preview"):
        _preview(desk, words.removeprefix("--preview").strip())
        return
    if words.split()[:1] == ["here"]:
        _compress_here(desk, words.removeprefix("here").strip())
        return
    done = desk.agent.compress(words or None)
    if done.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")


def _compress_here(desk: Desk, words: str) -> None:
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - the prompt comes before this is loaded

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        raise ChatError(f"the engine {desk.agent.engine.name} decides by itself where to cut")
    if not words.isdigit() or int(words) < 1:
        raise ChatError("say how many of the newest messages are to stay: /compress here 10")
    with engine.keeping(int(words)):
        compress(desk, "")
        report = engine.last_report
    if report is not None and report.outcome == "summarized":
        desk.show.line(_describe_kept(report, int(words), engine.threshold_tokens))


def _describe_kept(report: CompactionReport, wanted: int, threshold: int) -> str:
    """Say how many of the newest messages a compaction kept, and why not the number that was wanted."""
    kept = report.messages_before - report.boundaries.tail_start
    told = f"kept the newest {counted(kept, 'message')} as {'it was' if kept == 1 else 'they were'}"
    if report.latest_user_repeated:
        told += ", and your latest request"
    if kept > wanted:
        told += f", not {wanted}: a call is not parted from its results"
    elif kept < wanted:
        told += f", not {wanted}: with more it would be over the threshold of {threshold:,} tokens"
    return told


def _preview(desk: Desk, focus: str) -> None:
    """Show what a compaction would do, on a copy and without a model, so that it costs nothing."""
    from everlong.caching.rules import model_rules  # noqa: PLC0415 - the prompt comes before this is loaded
    from everlong.lossless import LosslessEngine  # noqa: PLC0415 - as above

    agent = desk.agent
    engine, messages = agent.engine, agent.conversation.messages
    if not isinstance(engine, everlong.context.ContextCompressor):
        raise ChatError(f"the engine {engine.name} cannot say beforehand what it would do")
    options: dict[str, Any] = {
        "settings": desk.settings.compression,
        "summarizer": everlong.context.ExtractiveSummarizer(),
        "model": agent.connection.model,
        "overhead_tokens": engine.overhead_tokens,
    }
    twin = (
        LosslessEngine(engine.context_length, **options)
        if isinstance(engine, LosslessEngine)
        else everlong.context.ContextCompressor(engine.context_length, **options)
    )
    result = twin.compress(messages, focus_topic=focus or None)
    report = twin.last_report
    before, after = agent.compactor.tokens, twin.estimate_tokens(result)
    if report is None or report.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")
        return
    sizes = f"{before:,} → about {after:,} tokens, {len(messages):,} → {counted(len(result), 'message')}"
    desk.show.line(f"it would make {sizes}; these would be summarized or shortened:")
    kept = {id(message) for message in result}
    # A compaction puts its note into the system prompt, which is another message then and not gone.
    gone = [message for message in messages if id(message) not in kept and not is_system(message)]
    for message in gone[:_MOST_GONE]:
        desk.show.line(f"  − {message.get('role'):<9} {' '.join(text_of(message).split())[:90]}", "dim")
    if len(gone) > _MOST_GONE:
        desk.show.line(f"  − and {len(gone) - _MOST_GONE} more", "dim")
    cache = agent.asker.cache
    is_cold = cache is None or cache.choice.strategy != "ledger" or cache.is_cold()
    rules = None if is_cold else model_rules(agent.connection.model)
    prices = agent.connection.info.prices
    for line in _describe_cost(before, after, rules, None if prices is None else float(prices.input)):
        desk.show.line(line)


def _describe_cost(before: int, after: int, rules: ModelRules | None, price: float | None) -> Iterator[str]:
    """Yield what a compaction would cost and save; in US dollars where the price of a million tokens is known.

    ``rules`` are those of the model's cache; None if the provider holds nothing of the conversation.
    """

    def amount(fresh: float) -> str:
        return f"{fresh:,.0f} tokens" if price is None else f"${fresh * price / 1e6:.4f} ({fresh:,.0f} tokens)"

    yield f"cost: a model that writes the summary reads {amount(before)}"
    if rules is None:
        yield f"cache: nothing is cached now, so nothing is lost; requests have {before - after:,} tokens less"
        return
    cost, saving = (rules.write["5m"] - rules.read) * after, rules.read * (before - after)
    calls = max(1, math.ceil(cost / saving)) if saving > 0 else 1
    yield (
        f"cache: {after:,} tokens are cached anew, {amount(cost)} more at once; "
        f"each later request saves {amount(saving)}, so it pays after {counted(calls, 'request')}"
    )


def undo(desk: Desk, words: str) -> None:
    """Take back the last exchange, or the newest compaction if that came later."""
    conversation = desk.agent.conversation
    if words == "compaction" or (not words and _is_compacted_last(desk.agent)):
        if not conversation.undo_compaction():
            raise ChatError("there is no compaction to undo")
        desk.show.line("the newest compaction is undone; its words stand there again")
        tokens, threshold = desk.agent.compactor.tokens, desk.agent.engine.threshold_tokens
        if tokens >= threshold:
            told = f"{tokens:,} tokens are over the threshold of {threshold:,}, so the next prompt compacts again"
            desk.show.line(f"{told}; a model with a larger window (/model) would keep them", "dim")
        return
    if words:
        raise ChatError("say /undo, or /undo compaction")
    said = conversation.rewind()
    if said is None:
        raise ChatError("nothing was said yet")
    desk.agent.engine.update_from_response({})  # the last usage report counted the messages that are gone
    desk.show.line(f"taken back, with its answer: {' '.join(text_of(said).split())[:100]}")


def _is_compacted_last(agent: Agent) -> bool:
    branch, store = agent.conversation.branch, agent.conversation.store
    if branch is None:
        return False
    _, cover = store.view_items(branch)
    done = store.compactions(branch=branch.id)
    entries = store.entries(branch, branch.depth - 1)
    return bool(cover and done and entries and done[-1].at > entries[-1].ts)


def pin(desk: Desk, words: str) -> None:
    """Keep a message in its own words through every compaction: the last thing you said, or one that was found."""
    conversation = desk.agent.conversation
    if conversation.branch is None:
        raise ChatError("nothing was said yet")
    if words:
        if not words.isdigit() or not 1 <= int(words) <= len(desk.found):
            raise ChatError("say /pin for the last thing you said, or /pin N for a hit of the last /search")
        node = desk.found[int(words) - 1]
    else:
        users = [e for e in conversation.store.entries(conversation.branch) if e.message.get("role") == "user" and e.id]
        if not users or users[-1].id is None:
            raise ChatError("nothing was said yet")
        node = users[-1].id
    conversation.store.pin(node)
    desk.show.line("pinned: it is told in its own words after every compaction")
