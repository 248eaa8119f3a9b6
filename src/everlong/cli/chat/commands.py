"""The slash commands of a chat: the desk that they work at, and those that only a terminal has.

The chat imports them before it shows its prompt, so a command imports what is heavy when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent.commands.compaction import compress, history, summary, undo
from everlong.agent.commands.conversation import model, new, resume, retry, rules, title
from everlong.agent.commands.lookups import context, memory, search, usage
from everlong.agent.commands.registry import GO_ON, KEEP, LEAVE, LOOK, ChatError, Command, Registry, pick
from everlong.cli.output import counted

if TYPE_CHECKING:
    from everlong.agent import Agent
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState
    from everlong.config import Settings


@dataclass
class ChatDesk:
    """Everything that a command of the terminal's chat works with."""

    state: ChatState
    show: Show
    settings: Settings
    registry: Registry
    found: list[bytes] = field(default_factory=list)
    """The messages of the last /search."""
    open_agent: Callable[[str | None], Agent] | None = None
    """Opens the agent on another session, or on a new one."""

    scope: None = None
    """Every conversation may be found and resumed."""

    @property
    def agent(self) -> Agent:
        """The agent, which is open before any command runs."""
        if self.state.agent is None:
            raise ChatError("the chat has not started yet")
        return self.state.agent

    def switch(self, session: str) -> None:
        """Go on with another session, and show its last exchange."""
        if self.open_agent is None:
            raise ChatError("this chat cannot change its session")
        old = self.agent
        self.state.agent = self.open_agent(session)
        old.close()
        self.show.last_exchange(self.agent.conversation)

    def run(self, line: str) -> None:
        """Run a slash command."""
        self.registry.run(self, line)

    def prompt(self, text: str) -> str | list[dict[str, Any]]:
        """Return a prompt with the files that it names."""
        from everlong.cli.chat.attachments import attach_files  # noqa: PLC0415 - the prompt comes before this is loaded

        return attach_files(text, self.agent.tools.context.workspace.root, self.show.quiet)


def tools(desk: ChatDesk, words: str) -> None:
    """List the tool calls of this chat and the tools on offer; with a number, open the result of a call."""
    if words:
        record = pick(desk.show.tools, words)
        desk.show.line(f"{record.summary} → {record.outcome}, {record.seconds:.1f} s", "bold")
        desk.show.line(record.text)
        return
    for number, record in enumerate(desk.show.tools, 1):
        desk.show.line(f"[{number}] {record.summary} → {record.outcome}")
    desk.show.line("on offer: " + ", ".join(one.name for one in desk.agent.tools.toolbox))


def leave(desk: ChatDesk, words: str) -> None:
    """Leave the chat."""
    del words
    desk.state.is_over = True
    desk.state.changed()


def show_help(desk: ChatDesk, words: str) -> None:
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
    desk.show.line("@FILE gives the model a file.", "dim")
    desk.show.line(
        "Alt-Enter or Ctrl-J begins a new line, Ctrl-X Ctrl-E opens your editor, Tab completes, "
        "Ctrl-C stops, Ctrl-D leaves.",
        "dim",
    )


def export(desk: ChatDesk, words: str) -> None:
    """Write the conversation to a file: .md, .json or .jsonl."""
    from everlong.cli.sessions_transfer import export_to  # noqa: PLC0415 - the prompt comes before this is loaded

    conversation = desk.agent.conversation
    if conversation.session is None:
        raise ChatError("nothing was said yet")
    path = Path(words or "conversation.md").expanduser()
    if path.exists():
        raise ChatError(f"{path} is there already; name another file: /export FILE")
    whole = conversation.store.conversations.get(conversation.session.id)
    count = export_to(conversation.store, whole, path)
    desk.show.line(f"wrote {counted(count, 'message')} to {path}")


COMMANDS = [
    Command("context", "", "Where the window goes: system, tools, memory, summary, tail, free.", context, LOOK),
    Command("history", "[N]", "The compactions so far; with a number, one of them and what it covered.", history, LOOK),
    Command("summary", "[N]", "The newest summary, or that of compaction N.", summary, LOOK),
    Command("search", "WORDS | N", "Find what was said, ever; with a number, open a hit.", search, LOOK),
    Command("tools", "[N]", "The tool calls so far; with a number, the whole result of one.", tools, LOOK),
    Command("usage", "[all]", "What was paid for, and what caching and compactions did to it.", usage, LOOK),
    Command("memory", "", "What is remembered from session to session.", memory, LOOK),
    Command("compress", "[focus]", "Compact now; the summary puts the focus first.", compress, KEEP),
    Command("compact", "", "The same as /compress.", compress, KEEP),
    Command("undo", "[compaction]", "Take back the last exchange, or the newest compaction.", undo, KEEP),
    Command("rules", "[add TEXT | remove N]", "The rules you laid down; add one, or remove one.", rules, KEEP),
    Command("retry", "", "Ask for another answer to the last prompt.", retry, GO_ON),
    Command("model", "[provider:model]", "Which model; or go on with another.", model, GO_ON),
    Command("title", "[text]", "The conversation's title.", title, GO_ON),
    Command("resume", "[id or title]", "Go on with another conversation.", resume, GO_ON),
    Command("new", "", "End this session and begin another.", new, GO_ON),
    Command("clear", "", "The same as /new.", new, GO_ON),
    Command("reset", "", "The same as /new.", new, GO_ON),
    Command("export", "[FILE]", "Write the conversation to FILE: .md, .json or .jsonl.", export, LEAVE),
    Command("help", "", "This list.", show_help, LEAVE),
    Command("quit", "", "Leave; the session can be resumed.", leave, LEAVE),
    Command("exit", "", "The same as /quit.", leave, LEAVE),
]
