"""The slash commands of a chat.

`COMMANDS` lists them all; each is a function of the `Desk` and the words after its name. The chat imports them before
it shows its prompt, so a command imports what is heavy when it runs.
"""

from everlong.cli.chat.commands.compacting import compress, pin, undo
from everlong.cli.chat.commands.conversation import branch, leave, model, new, resume, retry, title
from everlong.cli.chat.commands.history import history
from everlong.cli.chat.commands.looking import memory, search, show_help, tools, usage
from everlong.cli.chat.commands.registry import ChatError, Command, Desk, Registry, register_plugin_commands
from everlong.cli.chat.commands.rules import rules
from everlong.cli.chat.commands.window import context

__all__ = ["COMMANDS", "ChatError", "Command", "Desk", "Registry", "register_plugin_commands"]

COMMANDS = [
    Command("context", "", "Where the window goes: system, tools, memory, summary, pinned, tail, free.", context),
    Command("history", "[N]", "The compactions so far; with a number, one of them and what it covered.", history),
    Command("search", "WORDS | N", "Find what was said, ever; with a number, open a hit.", search),
    Command("tools", "[N]", "The tool calls so far; with a number, the whole result of one.", tools),
    Command("help", "", "This list.", show_help),
    Command("usage", "[all]", "What was paid for, and what caching and compactions did to it.", usage),
    Command("memory", "", "What is remembered from session to session.", memory),
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
    Command("rules", "[add TEXT | remove N]", "The rules you laid down; add one, or remove one.", rules),
]
