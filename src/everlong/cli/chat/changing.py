"""Commands that change the conversation, its session or its model."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from everlong.cli.chat.commands import ChatError, Command, Desk
from everlong.model import is_system, text_of

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.context import CompactionReport

__all__ = ["CHANGING"]


def compress(desk: Desk, words: str) -> None:
    """Compact now, with a focus; or say what that would do."""
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
    from everlong.plugins.guard import compressor_of  # noqa: PLC0415 - the prompt is there before this is loaded

    engine = compressor_of(desk.agent.engine)
    if engine is None:
        raise ChatError(f"the engine {desk.agent.engine.name} decides by itself where to cut")
    if not words.isdigit() or int(words) < 1:
        raise ChatError("say how many of the newest messages are to stay: /compress here 10")
    with engine.keeping(int(words)):
        compress(desk, "")
        report = engine.last_report
    if report is not None and report.outcome == "summarized":
        desk.show.line(_kept(report, int(words), engine.threshold_tokens))


def _kept(report: CompactionReport, wanted: int, threshold: int) -> str:
    """What a compaction that was to keep so many of the newest messages kept of them."""
    kept = report.messages_before - report.boundaries.tail_start
    told = f"kept the newest {kept} message{'' if kept == 1 else 's'} as {'it was' if kept == 1 else 'they were'}"
    if report.latest_user_repeated:
        told += ", and your latest request"
    if kept > wanted:
        told += f", not {wanted}: a call is not parted from its results"
    elif kept < wanted:
        told += f", not {wanted}: with more it would be over the threshold of {threshold:,} tokens"
    return told


def _preview(desk: Desk, focus: str) -> None:
    """What a compaction would do: on a copy, without a model, so that it costs nothing."""
    from everlong.caching.editing import worth_editing  # noqa: PLC0415 - as above
    from everlong.caching.rules import model_rules  # noqa: PLC0415 - as above
    from everlong.context import ContextCompressor, ExtractiveSummarizer  # noqa: PLC0415 - as above

    agent = desk.agent
    engine, messages = agent.engine, agent.conversation.messages
    if not isinstance(engine, ContextCompressor):
        raise ChatError(f"the engine {engine.name} cannot say beforehand what it would do")
    twin = ContextCompressor(
        engine.context_length,
        settings=desk.settings.compression,
        summarizer=ExtractiveSummarizer(),
        model=agent.connection.model,
        overhead_tokens=engine.overhead_tokens,
    )
    result = twin.compress(messages, focus_topic=focus or None)
    report = twin.last_report
    before, after = agent.compactor.tokens, twin.estimate_tokens(result)
    if report is None or report.outcome == "unchanged":
        desk.show.line("there is nothing to compact: all of it is recent or protected")
        return
    desk.show.line(f"{before:,} → about {after:,} tokens, {len(messages)} → {len(result)} messages ({report.outcome})")
    kept = {id(message) for message in result}
    # A compaction puts its note into the system prompt, which is another message then and not gone.
    gone = [message for message in messages if id(message) not in kept and not is_system(message)]
    for message in gone[:12]:
        desk.show.line(f"  − {message.get('role'):<9} {' '.join(text_of(message).split())[:90]}", "dim")
    if len(gone) > 12:
        desk.show.line(f"  − and {len(gone) - 12} more", "dim")
    cache = agent.asker.cache
    is_cold = cache is None or cache.choice.strategy != "ledger" or cache.is_cold()
    decision = worth_editing(before - after, after, is_cold=is_cold, is_due=True, model=agent.connection.model)
    rules = model_rules(agent.connection.model)
    desk.show.line(f"cache: {decision.explain()}")
    desk.show.line(
        f"the summary's own call reads {before:,} tokens ({rules.read:g} of the price where they are cached)"
    )


def undo(desk: Desk, words: str) -> None:
    """Take back the last exchange, or the newest compaction if that came later."""
    conversation = desk.agent.conversation
    if words == "compaction" or (not words and _compacted_last(desk.agent)):
        if not conversation.undo_compaction():
            raise ChatError("there is no compaction to undo")
        desk.show.line("the newest compaction is undone; its words stand there again")
        return
    if words:
        raise ChatError("say /undo, or /undo compaction")
    said = conversation.rewind()
    if said is None:
        raise ChatError("nothing was said yet")
    desk.agent.engine.update_from_response({})  # what was reported belongs to what is gone
    desk.show.line(f"taken back, with its answer: {' '.join(text_of(said).split())[:100]}")


def _compacted_last(agent: Agent) -> bool:
    branch, store = agent.conversation.branch, agent.conversation.store
    if branch is None:
        return False
    _, cover = store.view_items(branch)
    done = store.compactions(branch=branch.id)
    entries = store.entries(branch, branch.depth - 1)
    return bool(cover and done and entries and done[-1].at > entries[-1].ts)


def retry(desk: Desk, words: str) -> None:
    """Ask for another answer to the last prompt."""
    del words
    if desk.agent.retry() is None:
        raise ChatError("nothing was said yet")


def branch(desk: Desk, words: str) -> None:
    """Go on in a session of its own, so that this one stays as it is."""
    conversation = desk.agent.conversation
    if conversation.branch is None or conversation.session is None:
        raise ChatError("nothing was said yet")
    old = conversation.session
    conversation.store.sessions.end(old.id, "branch")
    new = conversation.store.sessions.start(
        conversation.branch,
        model=conversation.model,
        system_prompt=conversation.system_prompt,
        title=words or old.title,
        client=old.client,
        folder=old.folder,
        works_for=old.conversation,
        from_depth=0,
    )
    conversation.session = conversation.store.sessions.rewind(new.id, conversation.branch.depth)
    desk.agent.tools.context.session_id = new.id
    desk.show.line(f"this is session {new.id} now; /resume {old.conversation} goes back to where it was")


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


def model(desk: Desk, words: str) -> None:
    """Say which model is talked to, or go on with another one."""
    if not words:
        info = desk.agent.connection.info
        desk.show.line(f"{info.name}: a window of {info.context_length:,} tokens ({info.context_source})")
        return
    from everlong.providers import connect  # noqa: PLC0415 - what it needs is loaded when it is needed

    desk.agent.switch_model(connect(words, desk.settings))
    desk.show.line(f"now with {desk.agent.asker.model}; {desk.agent.caching_line}")


def title(desk: Desk, words: str) -> None:
    """Say or change the conversation's title."""
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    whole = conversation.store.conversations
    if words:
        whole.rename(conversation.session.id, words)
        conversation.session = conversation.store.sessions.get(conversation.session.id)
    one = whole.get(conversation.session.id)
    desk.show.line(f"{one.title or 'no title'} ({one.id})")


def new(desk: Desk, words: str) -> None:
    """End this session and begin another one."""
    del words
    desk.agent.reset()
    desk.show.line(f"a new session: {desk.agent.conversation.session_id}")


def resume(desk: Desk, words: str) -> None:
    """Go on with another conversation, or list the newest ones."""
    store = desk.agent.conversation.store
    if not words:
        for one in store.conversations.newest(15):
            where = f"  {one.folder}" if one.folder else ""
            desk.show.line(
                f"{one.id}  {datetime.fromtimestamp(one.active).astimezone():%Y-%m-%d %H:%M}  "
                f"{one.title or 'no title'}{where}"
            )
        return
    if desk.open_agent is None:
        raise ChatError("this chat cannot change its session")
    found = store.conversations.find(words)
    old = desk.agent
    desk.state.agent = desk.open_agent(found.parts[-1])
    old.close()
    desk.show.where_it_stands(desk.agent.conversation)


def leave(desk: Desk, words: str) -> None:
    """Leave the chat."""
    del words
    desk.state.is_over = True
    desk.state.changed()


CHANGING = [
    Command(
        "compress", "[focus] | --preview | here N", "Compact now; say what that would do; keep N messages.", compress
    ),
    Command("undo", "[compaction]", "Take back the last exchange, or the newest compaction.", undo),
    Command("retry", "", "Ask for another answer to the last prompt.", retry),
    Command("branch", "[title]", "Go on in a session of its own.", branch),
    Command("pin", "[N]", "Keep what you said last (or a hit of /search) word for word.", pin),
    Command("model", "[provider:model]", "Which model; or go on with another.", model),
    Command("title", "[text]", "The conversation's title.", title),
    Command("new", "", "End this session and begin another.", new),
    Command("reset", "", "The same as /new.", new),
    Command("resume", "[id or title]", "Go on with another conversation.", resume),
    Command("quit", "", "Leave; the session can be resumed.", leave),
    Command("exit", "", "The same as /quit.", leave),
]
