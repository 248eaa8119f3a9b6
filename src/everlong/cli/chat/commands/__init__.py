"""The slash commands of a chat.

`COMMANDS` lists them all; each is a function of the `Desk` and the words after its name. The chat imports them before
it shows its prompt, so a command imports what is heavy when it runs.
"""

from everlong.agent.commands.compaction import compress, history, pin, summary, undo
from everlong.agent.commands.conversation import branch, model, new, resume, retry, rules, title
from everlong.agent.commands.lookups import context, memory, search, usage
from everlong.agent.commands.registry import (
    GO_ON,
    KEEP,
    LEAVE,
    LOOK,
    ChatError,
    Command,
    Registry,
    register_plugin_commands,
)
from everlong.cli.chat.commands.desk import ChatDesk, copy, export, leave, show_help, tools

__all__ = ["COMMANDS", "ChatDesk", "ChatError", "Command", "Registry", "register_plugin_commands"]

COMMANDS = [
    Command("context", "", "Where the window goes: system, tools, memory, summary, pinned, tail, free.", context, LOOK),
    Command("history", "[N]", "The compactions so far; with a number, one of them and what it covered.", history, LOOK),
    Command("summary", "[N]", "The newest summary, or that of compaction N.", summary, LOOK),
    Command("search", "WORDS | N", "Find what was said, ever; with a number, open a hit.", search, LOOK),
    Command("tools", "[N]", "The tool calls so far; with a number, the whole result of one.", tools, LOOK),
    Command("usage", "[all]", "What was paid for, and what caching and compactions did to it.", usage, LOOK),
    Command("memory", "", "What is remembered from session to session.", memory, LOOK),
    Command(
        "compress",
        "[focus] | --preview",
        "Compact now; or say what that would do.",
        compress,
        KEEP,
    ),
    Command("compact", "", "The same as /compress.", compress, KEEP),
    Command("undo", "[compaction]", "Take back the last exchange, or the newest compaction.", undo, KEEP),
    Command("pin", "[N]", "Keep what you said last (or a hit of /search) word for word.", pin, KEEP),
    Command("rules", "[add TEXT | remove N]", "The rules you laid down; add one, or remove one.", rules, KEEP),
    Command("retry", "", "Ask for another answer to the last prompt.", retry, GO_ON),
    Command("model", "[provider:model]", "Which model; or go on with another.", model, GO_ON),
    Command("branch", "[title]", "Go on in a session of its own.", branch, GO_ON),
    Command("title", "[text]", "The conversation's title.", title, GO_ON),
    Command("resume", "[id or title]", "Go on with another conversation.", resume, GO_ON),
    Command("new", "", "End this session and begin another.", new, GO_ON),
    Command("clear", "", "The same as /new.", new, GO_ON),
    Command("reset", "", "The same as /new.", new, GO_ON),
    Command("copy", "", "Copy the last answer to the clipboard.", copy, LEAVE),
    Command("export", "[FILE]", "Write the conversation to FILE: .md, .html, .json or .jsonl.", export, LEAVE),
    Command("help", "", "This list.", show_help, LEAVE),
    Command("quit", "", "Leave; the session can be resumed.", leave, LEAVE),
    Command("exit", "", "The same as /quit.", leave, LEAVE),
]
