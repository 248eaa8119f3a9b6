"""The programs that send stateless requests: which one it is, where it works, and what it asks on the side.

Reads what clients tell about themselves in headers, system prompts and first messages. All of it is a hint for people
who look at their sessions: whoever sends a request may write anything here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from everlong.model import Message, is_system, text_of, typed_words

__all__ = ["client_of", "folder_in", "looks_aside"]

# -- the program -------------------------------------------------------------------------------------------------------

_LONGEST_NAME = 40
_PRODUCT = re.compile(r"[^\s/(),;]+")

_PRODUCTS = {
    "claude-cli": "claude-code",
    "claude-code": "claude-code",
    "opencode": "opencode",
    "pi": "pi",
    "aider": "aider",
    "cline": "cline",
    "roocode": "roo",
    "roo-code": "roo",
    "kilocode": "kilo",
    "kilo-code": "kilo",
    "githubcopilotchat": "copilot",
    "geminicli": "gemini-cli",
    "qwencode": "qwen-code",
    "litellm": "litellm",
    "ai-sdk": "ai-sdk",
    "agents": "openai-agents",
    "curl": "curl",
    "python-requests": "python-requests",
    "python-httpx": "python-httpx",
    "mozilla": "browser",
}
"""Names by the first product of the ``User-Agent``, in lower case."""
_FAMILIES = (
    (re.compile(r"codex(?![a-z])"), "codex"),
    (re.compile(r"(?:async)?(?:azure)?openai$"), "openai-sdk"),
    (re.compile(r"(?:async)?anthropic(?:bedrock|vertex|foundry)?$"), "anthropic-sdk"),
    (re.compile(r"python$"), "python"),
)
"""The same for products with several spellings."""
_LIBRARIES = frozenset({"openai-sdk", "anthropic-sdk", "openai-agents", "ai-sdk", "litellm", "python", "browser"})
"""Names that say what a program is made with; another header may say which program it is."""
_TITLES = {
    "aider": "aider",
    "cline": "cline",
    "roo code": "roo",
    "kilo code": "kilo",
    "opencode": "opencode",
    "pi": "pi",
}
_SITES = {
    "aider.chat": "aider",
    "cline.bot": "cline",
    "roocode.com": "roo",
    "roo-cline": "roo",
    "kilocode.ai": "kilo",
    "opencode.ai": "opencode",
}


def client_of(headers: Mapping[str, str]) -> str | None:
    """Return the short name of the program that sent a request; None where its headers do not tell.

    Known programs have one name in all their versions. For others it is the first product of the ``User-Agent``, at
    most 40 printable characters. A program that uses an SDK without naming itself is known by the SDK.
    """
    told = {name.lower(): value for name, value in headers.items()}
    if told.get("x-claude-code-session-id"):
        return "claude-code"
    origin = _known(told.get("originator", ""))
    if origin is not None:
        return origin
    found = _product(told.get("user-agent", ""))
    if found is None or found in _LIBRARIES:
        return _app(told) or found
    return found


def _product(agent: str) -> str | None:
    product = _PRODUCT.match(agent.strip())
    if product is None:
        return None
    known = _known(product[0])
    if known == "python" and "aiohttp/" in agent:
        return "aiohttp"
    return known or "".join(filter(str.isprintable, product[0]))[:_LONGEST_NAME] or None


def _known(product: str) -> str | None:
    name = product.lower()
    return _PRODUCTS.get(name) or next((known for family, known in _FAMILIES if family.match(name)), None)


def _app(told: Mapping[str, str]) -> str | None:
    """Return the program by the headers that routers of models have for it."""
    title = _TITLES.get(told.get("x-title", "").strip().lower())
    site = told.get("http-referer", "").lower()
    return title or next((name for part, name in _SITES.items() if part in site), None)


# -- its folder --------------------------------------------------------------------------------------------------------

_SEEN_CHARACTERS = 200_000
_LONGEST_PATH = 300
_LONGEST_LEAD = 80
_FOLDER_MARKS = ("irectory", "Workspace Path:")
"""A line that tells a folder has one of these; they are found faster than a pattern is."""
_FOLDER = re.compile(
    r"[ \t]*(?:(?:[-*•]|\d{1,2}[.)])[ \t]*)?(?:\*\*)?"
    r"(?:(?:(?:primary |current )?working directory|workspace path)(?:\*\*)?:(?:\*\*)?(?P<told>.+)"
    r"|# current (?:working|workspace) directory \((?P<listed>.+)\) files[ \t]*)",
    re.IGNORECASE,
)
_TAGGED = re.compile(rf"<cwd>(?P<told>[^<\n]{{1,{_LONGEST_PATH + 20}}})</cwd>")
_ABSOLUTE = re.compile(r"/|[A-Za-z]:[\\/]|\\\\[^\\]")


def folder_in(system_text: str, messages: Sequence[Message]) -> str | None:
    """Return the working directory that a client tells in its system prompt or first messages; None without one.

    An absolute path of POSIX or Windows, at most 300 characters. Looks at the system prompt and the messages before the
    first answer, together 200,000 characters; a line that a person typed does not count.
    """
    if (path := _folder(system_text[:_SEEN_CHARACTERS])) is not None:
        return path
    left = _SEEN_CHARACTERS - len(system_text)
    for message in messages:
        if left <= 0 or message.get("role") == "assistant":
            break
        if message.get("role") == "user" or is_system(message):
            text = text_of(message)[:left]
            left -= len(text)
            if (path := _folder(text, message)) is not None:
                return path
    return None


def _folder(text: str, message: Message | None = None) -> str | None:
    typed: str | None = "" if message is None or is_system(message) else None
    for line, told in _told_folders(text):
        path = told.strip().strip("`'\"").strip()
        if len(path) > _LONGEST_PATH or not path.isprintable() or not _ABSOLUTE.match(path):
            continue
        if typed is None and message is not None:
            typed = typed_words(message)
        if not typed or line.strip() not in typed:
            return path
    return None


def _told_folders(text: str) -> Iterator[tuple[str, str]]:
    """Return what may be a folder, with the line or tag that tells it."""
    for tag in _TAGGED.finditer(text):
        yield tag[0], tag["told"]
    for line in _marked_lines(text):
        if found := _FOLDER.fullmatch(line.rstrip("\r")):
            yield line, found["told"] or found["listed"]


def _marked_lines(text: str) -> Iterator[str]:
    """Return the lines that may tell a folder, if they are no longer than such a line can be."""
    for mark in _FOLDER_MARKS:
        at = text.find(mark)
        while at >= 0:
            start = text.rfind("\n", max(0, at - _LONGEST_LEAD), at) + 1
            limit = at + _LONGEST_PATH + _LONGEST_LEAD
            end = text.find("\n", at, limit)
            end = min(limit, len(text)) if end < 0 else end
            if start or at <= _LONGEST_LEAD:
                yield text[start:end]
            at = text.find(mark, end)


# -- what it asks on the side ------------------------------------------------------------------------------------------

_TINY = 16
_SYSTEM_HEAD = 1_000
_USER_HEAD = 400

_GAP = r"[^.!?\n]{0,120}?"
_ASKS = r"\b(?:generat|writ|creat|provid|suggest|giv|mak|produc|return|output|extract|com(?:e|ing) up)\w*\b"
_FEW_WORDS = r"\b(?:[1-9]|1[0-2])(?:\s?(?:-|–|to|or)\s?\d{1,2})?[ -]words?\b|\b(?:\d{2}|100)[ -]char(?:acter)?s\b"
_TALK = (
    r"\b(?:this|the|the following|the above|the current) (?:coding |chat )?(?:conversation|session|chat|thread)\b"
    r"|\ba conversation\b|\bchat history\b"
)
"""A conversation, as a system prompt speaks of it."""
_SENT_TALK = (
    r"\b(?:this|the following|the above|the current) (?:coding |chat )?(?:conversation|session|chat|thread)\b"
    r"|\bchat history\b|\bthe conversation(?: history| so far| above| below)?\s*(?:[:.,\n]|$)"
)
"""The same in a user's message, where it must be the one that is sent along."""


def _asking_for_a_label(talk: str) -> re.Pattern[str]:
    title = rf"(?:title|headline|label)\b{_GAP}(?:{talk})|(?:name|topic) (?:for|of) (?:{talk})"
    return re.compile(
        rf"{_ASKS}{_GAP}\b(?:{title})"
        rf"|\b(?:based on|for|from|given) (?:{talk}){_GAP}{_ASKS}{_GAP}\b(?:title|headline|label|name|topic)\b"
        rf"|\b(?:summari[sz]|descri)\w*\b{_GAP}(?:{talk}){_GAP}(?:{_FEW_WORDS})",
        re.IGNORECASE,
    )


_SYSTEM_ASKS = _asking_for_a_label(_TALK)
_USER_ASKS = _asking_for_a_label(_SENT_TALK)
_LABELLER = re.compile(
    r"\b(?:you are|act as) (?:a|an|the) [\w ,-]{0,40}\b(?:title|topic)[ -](?:generator|detector|extractor|writer)\b"
    r"|\bindicates? a new (?:conversation )?topic\b",
    re.IGNORECASE,
)
_ASKING_ROLES = frozenset({"user", "system", "developer"})


def looks_aside(*, has_tools: bool, max_tokens: int, system_text: str, messages: Sequence[Message]) -> bool:
    """Return whether a request looks like a side request of a client, and not like a conversation.

    A side request brings no tools, has no assistant message, and does one of these:

    - It allows an answer of 1 to 16 tokens only (0 means that it does not say), as a probe of a quota does.
    - Its system prompt asks within the first 1,000 characters for the title, name or topic of a conversation, or for a
      summary of one in so many words.
    - Its last user message begins with such a request about the very conversation that it sends along.

    Everything else is a conversation, even if it has one turn only: "Write a title for my blog post" is one.

    Args:
        has_tools: the request offers tools to the model.
        max_tokens: the most tokens that the answer may have; 0 where the request does not say.
        system_text: the words of the system prompt.
        messages: all messages of the request.
    """
    if has_tools or any(message.get("role") not in _ASKING_ROLES for message in messages):
        return False
    asked = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    if asked is None:
        return False
    if 0 < max_tokens <= _TINY:
        return True
    system = system_text or "\n".join(text_of(message) for message in messages if is_system(message))
    head = system[:_SYSTEM_HEAD]
    if _LABELLER.search(head) or _SYSTEM_ASKS.search(head):
        return True
    return _USER_ASKS.search(text_of(asked).lstrip()[:_USER_HEAD]) is not None
