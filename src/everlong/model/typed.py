"""The words that a person typed, and the title that a conversation takes from them.

Programs wrap what people type and add to it: reminders, the state of an editor, attached files, the text of a slash
command. Their tags are recognised by name, so HTML or code that a person pastes stays as it is:

    added       the client wrote it; left out
    held        a person's words with a tag around them; taken out of it
    command     a slash command and its arguments, as they were typed

Tags without an end are text. Every text is read once, from left to right, whatever stands in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from everlong.model.content import part_text, parts_of
from everlong.model.message import EPHEMERAL, Message
from everlong.model.traces import SUMMARY_STARTS

__all__ = ["title_from", "typed_words"]

_TITLE_LENGTH = 60
_SHORTEST_CUT = 20
"""A title is cut inside of a word rather than to fewer characters than this."""
_MARGIN = 40
"""A tag that begins a line is indented by fewer characters than this."""


class _Kind(Enum):
    """What a piece of a message is."""

    SAID = auto()
    """Text outside of all known tags."""
    ADDED = auto()
    """Written by the client, wherever it stands."""
    ATTACHED = auto()
    """A file or picture; only where a line begins with a tag that names it."""
    HELD = auto()
    """A person's words; whatever stands beside them is the client's."""
    MAYBE_HELD = auto()
    """As above if nothing stands beside it; people write tags with these names, too."""
    COMMAND = auto()
    """The name of a slash command; the text after it is the command's prompt."""
    ARGUMENTS = auto()
    """The arguments of the slash command before it."""
    LOCAL_INPUT = auto()
    """A line typed for the client's own shell."""
    LOCAL_OUTPUT = auto()
    """About a command that the client ran itself: the text after it is a person's."""


_NAMES: dict[_Kind, str] = {
    _Kind.ADDED: """
        system-reminder system_reminder system_notification system-update user-prompt-submit-hook
        command-message command-contents command-instructions skill_content fork-boilerplate
        task-notification teammate-message cross-session-message new-diagnostics mcp-resource
        ide_opened_file ide_selection
        environment_context environment_details environment_info environments_instructions session_context
        user_instructions INSTRUCTIONS skills_instructions apps_instructions plugins_instructions
        context_window_reminder context_window_guidance current_time_reminder codex_internal_context
        collaboration_mode multi_agent_mode realtime_conversation model_switch personality_spec
        turn_aborted user_action user_shell_command subagent_notification image_resize_notice
        file_content final_file_content folder_content url_content file_mention workspace_diagnostics
        git_working_state terminal_output explicit_instructions hook_context mode_notice
        additional_data attached_files open_and_recently_viewed_files project_layout user_info user_rules
        workspace_info editorContext reminderInstructions userMemory
        """,
    _Kind.ATTACHED: "file image attachment skill",
    _Kind.HELD: "user_query user_message user_input user_command userRequest user-memory-input",
    _Kind.MAYBE_HELD: "task feedback answer prompt query",
    _Kind.COMMAND: "command-name",
    _Kind.ARGUMENTS: "command-args",
    _Kind.LOCAL_INPUT: "bash-input",
    _Kind.LOCAL_OUTPUT: "local-command-caveat local-command-stdout local-command-stderr bash-stdout bash-stderr",
}
_KINDS = {name: kind for kind, names in _NAMES.items() for name in names.split()}
_ANYWHERE = frozenset({_Kind.ADDED, _Kind.LOCAL_OUTPUT})
"""Kinds with names that nobody types by chance; a tag of another kind counts where it begins a line."""
_LEFT_OUT = frozenset({_Kind.ADDED, _Kind.ATTACHED, _Kind.LOCAL_OUTPUT})

# Possessive: a tag that does not end must not be read twice.
_TAG = re.compile(r"<(?P<slash>/?+)(?P<name>[A-Za-z][\w-]*+)(?P<attributes>(?:\s[^<>]*+)?+)>")
_NAMED = re.compile(r"\s(?:name|path|filePath|id)=")

_NOTICES = (
    *SUMMARY_STARTS,
    "Caveat: The messages below were generated",
    "This session is being continued from a previous",
    "Another language model started to solve this problem",
    "The conversation history before this point was compacted",
    "The following is a summary of a branch that this",
    "[ERROR] You did not use a tool",
    "[NOTE] Some previous conversation history",
    "Here are summaries of some files present in my git",
    "Here are some READ ONLY files, provided",
    "I am working with you on code in a git repository",
    "I am not sharing any files that you can edit",
    "I have *added these files to the chat*",
    "I switched to a new code base. Please don't",
    "Don't try and edit any existing code without asking me to",
)
"""How texts begin that clients write in a user's name: summaries, file listings, complaints about an answer."""
_NOTICE = re.compile(
    r"Called the \w{1,40} tool with the following input"
    r"|<path>[^<\n]{0,400}</path>\s{0,4}<type>|<file>\s{0,4}\d{5}\|"
    r"|This is the [\w ]{1,40}\. We are setting up the context"
)
"""The same where a name or a path stands in between."""
_RESULT = re.compile(r"\[[^\]\n]{1,200}\] Result:|\[TASK RESUMPTION\]")
"""How a client begins the result of a tool or a report that it sends as text; a person's words in it have a tag."""
_REPORT = re.compile(r"The user (?:has )?(?:provided|denied)|You seem to be having trouble")
"""How a client introduces a person's words in a tag; people begin sentences like this, too."""
_INSTRUCTIONS = re.compile(r"# AGENTS\.md instructions")
_EDITOR_CONTEXT = re.compile(r"# (?:Context from my IDE|Files mentioned by the user|Selected text)")
_REQUEST = "## My request for Codex:"
_MARKER = re.compile(r"^[ \t]*+\[(?:Request interrupted by user|Image: |Image #)[^\]\n]*+\][ \t]*+$", re.MULTILINE)


def typed_words(message: Message) -> str:
    """Return the words that a person typed in a user message, without what a client wrapped around or added.

    A slash command counts as typed, with its arguments; the prompt that the client puts in its place does not. Empty
    for messages of other roles, and where nothing of a person's is left.
    """
    if message.get("role") != "user" or message.get(EPHEMERAL):
        return ""
    found = _Reading()
    for part in parts_of(message):
        if not part.get(EPHEMERAL):
            found.take_part(part_text(part))
    return found.words()


def title_from(messages: Sequence[Message]) -> str | None:
    """Return a title of at most 60 characters from the newest user message with typed words; None without one.

    Pass the messages of a conversation's opening request: clients send examples, file listings and context first and
    the question last. Of a longer transcript, pass the messages before the first answer.
    """
    for message in reversed(messages):
        if title := _title(typed_words(message)):
            return title
    return None


# -- reading a message -------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """A stretch of a text: either outside of all known tags, or one tag's."""

    kind: _Kind
    words: str
    """The text, or the text inside of the tag."""
    whole: str
    """The same with the tag."""


class _Reading:
    """Adds up the pieces of one message."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._written: list[_Piece] = []
        """What was said, and the tags that may hold a person's words, in order."""
        self._command: list[str] = []
        """The newest command: its name, and its arguments."""
        self._is_prompt = False
        """The text that follows is the prompt of a slash command."""
        self._is_result = False
        """The text that follows is the result of a tool."""

    def take_part(self, text: str) -> None:
        for piece in _pieces(text):
            if piece.kind is _Kind.SAID and _is_notice(piece.words):
                return  # and so is the rest of this part, tags and all
            self._take(piece)

    def words(self) -> str:
        if self._held:
            return _joined(self._held)
        said = next((piece.words for piece in self._written if piece.kind is _Kind.SAID), None)
        tags = [piece for piece in self._written if piece.kind is not _Kind.SAID]
        if said is not None and not (tags and _REPORT.match(said)):
            return _joined([piece.whole for piece in self._written])  # who writes around a tag wrote the tag
        return _joined([_clean(piece.words) for piece in tags]) or " ".join(filter(None, self._command))

    def _take(self, piece: _Piece) -> None:
        kind, words, _ = piece
        if kind is _Kind.COMMAND:
            self._command = [words]
            self._is_prompt = True
        elif kind is _Kind.ARGUMENTS:
            self._command[1:] = [words]
        elif kind is _Kind.LOCAL_INPUT:
            self._command = [words]
        elif kind is _Kind.LOCAL_OUTPUT:
            self._is_prompt = False
        elif self._is_prompt:
            return
        elif kind is _Kind.SAID:
            self._say(words)
        elif kind is _Kind.HELD:
            self._held.append(_clean(words))
        elif kind is _Kind.MAYBE_HELD:
            self._written.append(piece)

    def _say(self, text: str) -> None:
        said = text.lstrip()
        if _RESULT.match(said):
            self._is_result = True
        if self._is_result or _INSTRUCTIONS.match(said):
            return
        if _EDITOR_CONTEXT.match(said) and _REQUEST in said:
            said = said.partition(_REQUEST)[2]
        if said := _MARKER.sub("", said).strip():
            self._written.append(_Piece(_Kind.SAID, said, said))


def _is_notice(text: str) -> bool:
    said = text.lstrip()
    return said.startswith(_NOTICES) or _NOTICE.match(said) is not None


def _pieces(text: str) -> Iterator[_Piece]:
    """Split a text at the tags that clients use."""
    if "<" not in text:
        yield _Piece(_Kind.SAID, text, text)
        return
    tags = [tag for tag in _TAG.finditer(text) if tag["name"] in _KINDS and not tag["attributes"].endswith("/")]
    ends = Counter(tag["name"] for tag in tags if tag["slash"])
    done = place = 0
    while place < len(tags):
        tag = tags[place]
        name, kind = tag["name"], _KINDS[tag["name"]]
        if tag["slash"]:
            ends[name] -= 1
        elif ends[name] and _counts(text, done, tag, kind):
            if between := text[done : tag.start()]:
                yield _Piece(_Kind.SAID, between, between)
            last = _end_of(tags, place)
            ends.subtract(other["name"] for other in tags[place : last + 1] if other["slash"])
            done, place = tags[last].end(), last
            yield _Piece(kind, text[tag.end() : tags[last].start()].strip(), text[tag.start() : done])
        place += 1
    if done < len(text):
        yield _Piece(_Kind.SAID, text[done:], text[done:])


def _counts(text: str, done: int, tag: re.Match[str], kind: _Kind) -> bool:
    """Return whether a tag is a client's and not part of a sentence or of pasted code."""
    if kind in _ANYWHERE:
        return True
    start = max(done, tag.start() - _MARGIN)
    _, line_end, margin = text[start : tag.start()].rpartition("\n")
    begins_line = not margin.strip() and (line_end != "" or start == done)
    return begins_line and (kind is not _Kind.ATTACHED or _NAMED.match(tag["attributes"]) is not None)


def _end_of(tags: Sequence[re.Match[str]], start: int) -> int:
    """Return where the tag at `start` ends; there is an end after it.

    That is the next end of its name, or the one that balances the tags of the same name in between: but words in a
    block may name the block's tag without ending it.
    """
    depth = 0
    last = None
    for place in range(start, len(tags)):
        if tags[place]["name"] != tags[start]["name"]:
            continue
        if tags[place]["slash"]:
            depth -= 1
            last = place
        elif last is not None:
            break
        else:
            depth += 1
        if depth == 0:
            break
    assert last is not None  # noqa: S101 - the caller counted the ends
    return last


def _clean(text: str) -> str:
    """Return a person's words without the blocks that a client added among them."""
    if "<" not in text:
        return text
    return _joined([piece.whole for piece in _pieces(text) if piece.kind not in _LEFT_OUT])


def _joined(words: Sequence[str]) -> str:
    return "\n".join(filter(None, map(str.strip, words)))


# -- titles ------------------------------------------------------------------------------------------------------------


def _title(words: str) -> str:
    """Return words in one line, cut between two of them."""
    seen = "".join(char if char.isprintable() else " " for char in words[: _TITLE_LENGTH * 20])
    line = " ".join(seen.split())
    if line.startswith('"') and line.endswith('"') and line.count('"') == 2:  # some clients quote the whole prompt
        line = line[1:-1].strip()
    if len(line) <= _TITLE_LENGTH:
        return line
    room = line[: _TITLE_LENGTH - 1]
    cut = room.rpartition(" ")[0]
    return f"{cut if len(cut) >= _SHORTEST_CUT else room[:-1]} …"
