"""Every error that Everlong raises on purpose.

    EverlongError
    ├── MessageError        a value that is not a list of chat messages
    ├── TranscriptError     a file that cannot be read as a conversation
    ├── ConfigError         a setting that is unknown, out of range or of the wrong type
    ├── TargetUnreachable   a ``target_tokens`` smaller than the least a conversation can become
    ├── SummarizerError     a summarizer that failed; the compressor falls back and reports it
    ├── NotesError          a note that cannot be added, changed, found or read
    ├── PluginError         a plugin that cannot be found, trusted, read, loaded or used
    ├── StoreError          a failure of the store of conversations
    │   ├── StoreUnavailable    it cannot be opened, reached, read or written: no folder, no server, no permission
    │   ├── StoreFull           there is no room left on the disk
    │   ├── StoreBusy           other processes kept it locked for too long
    │   ├── StoreDamaged        the file is no database, or its contents contradict each other
    │   ├── SchemaMismatch      its tables belong to another program or version
    │   ├── NotStored           a session, branch, node or view that is not there
    │   ├── AmbiguousName       several conversations have that name
    │   └── QueryError          a search that cannot be run: a broken pattern, an unknown mode, a foreign cursor
    ├── ToolError           a tool that failed; the model reads the message, and the turn goes on
    │   └── ToolInterrupted     the user stopped it
    └── ProviderError       a model's API that gave no usable answer
        ├── ContextOverflow        the prompt is longer than the window
        ├── RequestTooLarge        the request is larger than the API takes, whatever the window
        ├── RateLimited            too many requests for now
        ├── Overloaded             the API cannot serve anybody for now
        ├── NetworkFailure         no connection, a time-out, a stream cut off
        ├── MalformedReply         an answer that cannot be read
        ├── AuthenticationFailed   no key, or one that is not accepted
        ├── QuotaExhausted         the account has no credit left
        └── RequestRefused         the API will not take this request, or the model will not answer it

Parts of the package derive a few errors of their own. Each message names the thing, the value, what is allowed and
what to do next.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AmbiguousName",
    "AuthenticationFailed",
    "ConfigError",
    "ContextOverflow",
    "EverlongError",
    "MalformedReply",
    "MessageError",
    "NetworkFailure",
    "NotStored",
    "NotesError",
    "Overloaded",
    "PluginError",
    "ProviderError",
    "QueryError",
    "QuotaExhausted",
    "RateLimited",
    "RequestRefused",
    "RequestTooLarge",
    "SchemaMismatch",
    "StoreBusy",
    "StoreDamaged",
    "StoreError",
    "StoreFull",
    "StoreUnavailable",
    "SummarizerError",
    "TargetUnreachable",
    "ToolError",
    "ToolInterrupted",
    "TranscriptError",
]


class EverlongError(Exception):
    """The root of all errors of this package.

    >>> try:
    ...     ContextCompressor(context_length=16_000).compress([{"text": "no role"}])
    ... except EverlongError as error:
    ...     print(type(error).__name__)
    MessageError
    """


class MessageError(EverlongError):
    """A value is not a list of messages; ``index`` is that of the wrong entry, if it is a single one.

    >>> try:
    ...     ContextCompressor().compress([{"role": "user", "content": "hi"}, "hello"])
    ... except MessageError as error:
    ...     print(error.index)
    1
    """

    def __init__(self, problem: str, index: int | None = None) -> None:
        self.index = index
        where = "the message list" if index is None else f"message {index}"
        super().__init__(f"{where}: {problem}")


class TranscriptError(EverlongError):
    """A file or stream could not be read as a conversation.

    >>> from everlong.wire import read_transcript
    >>> try:
    ...     read_transcript(b"Dear harbour master")
    ... except TranscriptError:
    ...     print("no conversation")
    no conversation
    """


class ConfigError(EverlongError):
    """A setting is unknown, out of range or of the wrong type; ``key`` is its dotted name.

    >>> try:
    ...     ContextCompressor(settings={"threshold": 7})
    ... except ConfigError as error:
    ...     print(error.key)
    compression.threshold
    """

    def __init__(self, message: str, key: str = "") -> None:
        self.key = key
        super().__init__(message)


class TargetUnreachable(EverlongError):  # noqa: N818 - reads as the fact that it states
    """No valid compaction fits ``target`` tokens; ``least`` is the smallest that does.

    >>> try:
    ...     ContextCompressor(16_000).compress(messages, target_tokens=10)
    ... except TargetUnreachable as error:
    ...     print(error.target, error.least > 10)
    10 True
    """

    def __init__(self, target: int, least: int) -> None:
        self.target = target
        self.least = least
        super().__init__(
            f"cannot compact to {target:,} tokens: the system prompt, the latest user message and the summary's "
            f"frame alone need {least:,}; ask for at least {least}"
        )


class SummarizerError(EverlongError):
    """A summarizer gave nothing usable: network, quota, refusal, empty or broken output.

    >>> class Tired:
    ...     name = "tired"
    ...
    ...     def summarize(self, request: SummaryRequest) -> str:
    ...         raise SummarizerError("not today")
    >>> engine = ContextCompressor(16_000, summarizer=Tired())
    >>> _ = engine.compress(messages)
    >>> "not today" in engine.last_report.fallback_reason
    True
    """


class NotesError(EverlongError):
    """A note cannot be added, changed, found or read; the files are as they were."""


class PluginError(EverlongError):
    """A plugin cannot be found, trusted, read, loaded or used; ``traceback`` is the plugin's own, if it raised."""

    def __init__(self, message: str, traceback: str = "") -> None:
        self.traceback = traceback
        super().__init__(message)


class StoreError(EverlongError):
    """The store of conversations cannot do what was asked; its contents are unchanged.

    >>> from pathlib import Path
    >>> _ = Path("note.db").write_text("no database " * 100)
    >>> try:
    ...     Store.open("note.db")
    ... except StoreError as error:
    ...     print(type(error).__name__)
    StoreDamaged
    """


class StoreUnavailable(StoreError):  # noqa: N818 - reads as the fact that it states
    """The store cannot be opened, reached, read or written.

    >>> from pathlib import Path
    >>> Path("folder").mkdir()
    >>> try:
    ...     Store.open("folder")
    ... except StoreUnavailable:
    ...     print("a folder is no store")
    a folder is no store
    """


class StoreFull(StoreError):  # noqa: N818 - as above
    """There is no room left on the store's disk.

    >>> try:
    ...     raise StoreFull("the disk is full")
    ... except StoreError as error:
    ...     print(f"free some room: {error}")
    free some room: the disk is full
    """


class StoreBusy(StoreError):  # noqa: N818 - as above
    """Other processes kept the store locked for longer than we wait.

    >>> try:
    ...     raise StoreBusy("another process held it for a minute")
    ... except StoreError as error:
    ...     print(f"later: {error}")
    later: another process held it for a minute
    """


class StoreDamaged(StoreError):  # noqa: N818 - as above
    """The file is no database, or its contents contradict each other.

    >>> from pathlib import Path
    >>> _ = Path("letter.db").write_text("Dear harbour master, " * 100)
    >>> try:
    ...     Store.open("letter.db")
    ... except StoreDamaged:
    ...     print("no database")
    no database
    """


class SchemaMismatch(StoreError):  # noqa: N818 - as above
    """The tables are another program's, or were made by another version of Everlong.

    >>> import sqlite3
    >>> with sqlite3.connect("other.db") as other:
    ...     _ = other.execute("CREATE TABLE fish (name TEXT)")
    >>> other.close()
    >>> try:
    ...     Store.open("other.db")
    ... except SchemaMismatch:
    ...     print("the file of another program is left alone")
    the file of another program is left alone
    """


class NotStored(StoreError):  # noqa: N818 - as above
    """There is no such session, branch, node or view.

    >>> with Store.open("empty.db") as store:
    ...     try:
    ...         store.conversations.find("nothing")
    ...     except NotStored:
    ...         print("not there")
    not there
    """


class AmbiguousName(StoreError):  # noqa: N818 - as above
    """Several conversations have that title, or an id that begins so.

    >>> with Store.open("two.db") as store:
    ...     _ = [store.sessions.start(title="harbour") for _ in range(2)]
    ...     try:
    ...         store.conversations.find("harbour")
    ...     except AmbiguousName as error:
    ...         print("give more of the id")
    give more of the id
    """


class QueryError(StoreError):
    """A search cannot be run: its pattern is invalid, or its mode, order, filter or cursor is unknown."""


class ToolError(EverlongError):
    """A tool cannot do what a model asked; the message tells the model what to do instead."""


class ToolInterrupted(ToolError):  # noqa: N818 - reads as the fact that it states
    """The user stopped a tool; the message is its output so far."""


class ProviderError(EverlongError):
    """A model's API gave no usable answer; the class says why, and what it makes sense to do next.

    >>> error: ProviderError = RateLimited("slow down", status=429, retry_after=20)
    >>> error.may_retry, error.should_compact, error.retry_after
    (True, False, 20)
    """

    may_retry: ClassVar[bool] = False
    """True if the same request may succeed a little later."""
    should_compact: ClassVar[bool] = False
    """True if a shorter prompt would help."""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.provider = provider
        self.model = model
        self.status = status
        self.retry_after = retry_after
        """Seconds that the API asks to wait; None if it does not say."""
        super().__init__(message)


class ContextOverflow(ProviderError):  # noqa: N818 - these read as the fact that they state
    """Prompt, or prompt and answer, do not fit the window; the numbers are the API's, None if it gave none.

    >>> error = ContextOverflow("too long", prompt_tokens=210_000, limit=200_000)
    >>> error.should_compact, error.prompt_tokens - error.limit
    (True, 10000)
    """

    should_compact = True

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int | None = None,
        prompt_tokens: int | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(message, provider=provider, model=model, status=status)
        self.prompt_tokens = prompt_tokens
        self.limit = limit


class RequestTooLarge(ProviderError):  # noqa: N818
    """The request has more bytes, or more tokens at once, than the API takes.

    >>> RequestTooLarge("more than 32 MB", status=413).should_compact
    True
    """

    should_compact = True


class RateLimited(ProviderError):  # noqa: N818
    """Too many requests or tokens for now.

    >>> RateLimited("slow down", status=429).may_retry
    True
    """

    may_retry = True


class Overloaded(ProviderError):  # noqa: N818
    """The API is overloaded or broken for now.

    >>> Overloaded("busy", retry_after=3.0).retry_after
    3.0
    """

    may_retry = True


class NetworkFailure(ProviderError):  # noqa: N818
    """The API could not be reached, did not answer in time, or the connection broke.

    >>> NetworkFailure("no connection", provider="ollama").may_retry
    True
    """

    may_retry = True


class MalformedReply(ProviderError):  # noqa: N818
    """The API's answer cannot be read.

    >>> MalformedReply("the stream ended in the middle of a tool call", status=200).may_retry
    True
    """

    may_retry = True


class AuthenticationFailed(ProviderError):  # noqa: N818
    """There is no key, it is not accepted, or it may not use this model.

    >>> from everlong.providers import connect
    >>> try:
    ...     connect("anthropic:claude-sonnet-5", env={})
    ... except AuthenticationFailed as error:
    ...     print(error.provider, error.may_retry)
    anthropic False
    """


class QuotaExhausted(ProviderError):  # noqa: N818
    """The account has no credit left; waiting does not help.

    >>> QuotaExhausted("no credit left").may_retry
    False
    """


class RequestRefused(ProviderError):  # noqa: N818
    """The API will not take this request, or the model declined to answer it.

    >>> RequestRefused("unknown parameter", status=400).may_retry
    False
    """
