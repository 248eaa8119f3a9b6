"""Commands that look something up: what was said, what tools gave, what it cost, what is remembered."""

from __future__ import annotations

from datetime import datetime

from everlong.cli.chat.commands.registry import GO_ON, KEEP, LEAVE, LOOK, ChatError, Desk, pick


def search(desk: Desk, words: str) -> None:
    """Find what was said in this or any conversation; with a number, open what was found."""
    store = desk.agent.conversation.store
    if not words:
        raise ChatError("say what to look for: /search WORDS; then /search NUMBER opens a hit")
    if words.isdigit() and desk.found:
        page = store.read(pick(desk.found, words))
        desk.show.text(page.text)
        return
    hits = [hit for hit in store.search(words, limit=10).hits if hit.node is not None]
    desk.found = [hit.node for hit in hits if hit.node is not None]
    for number, hit in enumerate(hits, 1):
        when = datetime.fromtimestamp(hit.at).astimezone()
        where = hit.title or hit.session or "in no conversation"
        where += f" ({hit.status})" if hit.status else ""
        desk.show.line(f"{number}  {when:%Y-%m-%d %H:%M}  {hit.speaker or hit.role}, {where}", "bold")
        desk.show.line(f"   {' '.join(hit.snippet.text.split())}")
    if not hits:
        desk.show.line("nothing was found")


def tools(desk: Desk, words: str) -> None:
    """List the tool calls of this chat and the tools on offer; with a number, open the result of a call."""
    if words:
        record = pick(desk.show.tools, words)
        desk.show.line(f"{record.summary} → {record.outcome}, {record.seconds:.1f} s", "bold")
        desk.show.text(record.text)
        return
    for number, record in enumerate(desk.show.tools, 1):
        desk.show.line(f"[{number}] {record.summary} → {record.outcome}")
    desk.show.line("on offer: " + ", ".join(one.name for one in desk.agent.tools.toolbox))


def usage(desk: Desk, words: str) -> None:
    """Show what this conversation cost, or all conversations, as the providers reported it."""
    from everlong.agent.accounting import account  # noqa: PLC0415 - only where it is asked for
    from everlong.cli.usage import print_books  # noqa: PLC0415 - as above

    if words not in {"", "all"}:
        raise ChatError("say /usage, or /usage all")
    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    first = None if words else conversation.store.conversations.get(conversation.session.id).parts[0]
    print_books(account(conversation.store, desk.settings, by="model", session=first), desk.show.console)


def memory(desk: Desk, words: str) -> None:
    """Show what is remembered from session to session."""
    del words
    manager = desk.agent.memory
    text = manager.prompt_block() if manager is not None else ""
    desk.show.text(text or "nothing is remembered yet")


def show_help(desk: Desk, words: str) -> None:
    """List the commands, group by group."""
    from rich.table import Table  # noqa: PLC0415 - the prompt comes before this is loaded
    from rich.text import Text  # noqa: PLC0415 - as above

    del words
    table = Table(box=None, pad_edge=False, show_header=False)
    commands = desk.registry.commands.values()
    for group in dict.fromkeys([LOOK, KEEP, GO_ON, LEAVE, *(one.group for one in commands)]):
        listed = [one for one in commands if one.group == group]
        if listed:
            table.add_row(Text(group, style="bold"), "")
        for command in listed:
            table.add_row(Text(f"/{command.name} {command.takes}"), command.about)
    desk.show.console.print(table, highlight=False)
    desk.show.line("@FILE gives the model a file, !COMMAND runs a command of yours.", "dim")
    desk.show.line(
        "Alt-Enter or Ctrl-J begins a new line, Ctrl-X Ctrl-E opens your editor, Tab completes, "
        "Ctrl-C stops, Ctrl-D leaves.",
        "dim",
    )
