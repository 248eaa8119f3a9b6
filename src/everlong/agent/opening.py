"""The opening of an agent: its system prompt, and its parts put together as the configuration says."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlong.agent.agent import Agent, AgentParts
from everlong.agent.approval import Approvals, Approver, refuse_everything
from everlong.agent.conversation import AgentConversation
from everlong.agent.engines import EngineMaker, resolve_engine
from everlong.agent.events import AgentEvent, Notice, unheard
from everlong.agent.loop import Limits
from everlong.agent.model_calls import Asker, SideCalls
from everlong.agent.tools import builtin_tools
from everlong.agent.tools.context import ToolContext
from everlong.agent.tools.history import foreign_file
from everlong.agent.tools.sandbox import Confinement
from everlong.agent.tools.tool import Tool, engine_tools, without_clashes
from everlong.agent.tools.toolbox import Toolbox, ToolSet
from everlong.agent.tools.workspace import Workspace
from everlong.caching import PromptCache
from everlong.config.paths import INSTRUCTION_FILES, data_home, workspace_folder
from everlong.config.trust import is_folder_trusted
from everlong.errors import AuthenticationFailed, ConfigError, StoreError, ToolError
from everlong.lossless import LosslessEngine
from everlong.memory import MemoryManager
from everlong.plugins.guard import compressors_in
from everlong.plugins.host import Host
from everlong.plugins.manager import Plugins
from everlong.providers.auxiliary import completer, summarizer_for
from everlong.providers.connection import Connection, connect
from everlong.providers.embeddings import usable_embedder
from everlong.store import open_store
from everlong.store.sessions import new_session_id
from everlong.store.sqlite import SQLite
from everlong.tokens import counter_for

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.context import ContextEngine, Summarizer
    from everlong.model import Message
    from everlong.providers.base import CallOptions, Provider, Reply
    from everlong.store import Store

__all__ = ["INSTRUCTION_FILES", "AgentOptions", "open_agent", "project_instructions", "system_prompt"]

_IMPORT = re.compile(r"(?<![\w`@/.])@([\w./-]*\w)")
_CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_MOST_IMPORTS_DEEP = 4
_READ_CHARS_PER_TOKEN = 16
"""Characters per token of the budget that are read of a file, at most."""

_INSTRUCTIONS_TOKENS = 4_000
"""Tokens of the project's own instructions that go into the system prompt."""
_ROLE = """\
You are an agent who works for the user with the tools you are given. Do what was asked, all of it and nothing else; \
look before you change something, and check afterwards that it works. When something fails, say so plainly. Answer in \
the user's language, in few words.

Long conversations are compacted: earlier turns are then replaced by a summary, and nothing is lost. What you need in \
its own words you get back with the tool `recall` (this conversation) or `search_sessions` (earlier ones). A summary \
is background; only messages after it are requests. Keep a todo list with `update_todo` for work of several steps."""


@dataclass(frozen=True)
class AgentOptions:
    """Options of an agent besides its configuration."""

    root: Path = field(default_factory=Path.cwd)
    """The folder that it works in."""
    allowed: Sequence[Path] = ()
    """Further folders that its file tools may touch."""
    approver: Approver = field(default_factory=lambda: refuse_everything("nobody is there to approve it"))
    """Decides on calls that write or run something."""
    tools: Iterable[Tool] | None = None
    """The tools; the built-in ones by default."""
    extra_tools: Sequence[Tool] = ()
    """Tools besides these; one with the name of another takes its place."""
    limits: Limits | None = None
    """The most that one prompt may take; by default what the settings say."""
    resume: str | None = None
    """The session to go on with, by id, title or the beginning of an id."""
    system_prompt: str | None = None
    """Replaces the usual system prompt."""
    surroundings: str = ""
    """Told to the agent in its usual system prompt: where it talks, and with whom."""
    platform: str | None = None
    """The session's origin; becomes its source."""
    title: str | None = None
    engines: Mapping[str, EngineMaker] | None = None
    """Context engines by name, besides the built-in one."""
    trusts_root: bool | None = None
    """True to obey the folder's AGENTS.md and CLAUDE.md, False to ignore them; None goes by the trusted folders."""
    log_folder: Path | None = field(default_factory=lambda: data_home() / "logs")
    """The folder for the JSON log of each session; None for no log."""


def open_agent(
    settings: Settings,
    model: str | Connection | None = None,
    options: AgentOptions | None = None,
    *,
    store: Store | None = None,
    listen: Callable[[AgentEvent], None] = unheard,
) -> Agent:
    """Return an agent that is ready to be given a prompt.

    Args:
        settings: the configuration.
        model: ``provider:model``, or a connection; by default what ``agent.model`` says.
        options: everything else about the agent.
        store: where the conversation is kept; by default what the settings say.
        listen: told everything that happens.

    Raises:
        ConfigError: no model is named, or a setting cannot be used.
        NotStored: there is no session of the name that is to be resumed.
    """
    options = options or AgentOptions()
    if store is None:
        embedder = usable_embedder(settings, lambda text: listen(Notice(text)))
        store = open_store(settings.store, embedder=embedder)
    previous = store.conversations.find(options.resume) if options.resume is not None else None
    if previous is not None and (foreign := foreign_file(previous)):
        listen(Notice(f"the conversation that goes on is {foreign}: what it says in your name may be somebody else's"))
    model = model or settings.agent.model or (previous.model if previous else None)
    if model is None:
        raise ConfigError(
            "no model is named; say --model PROVIDER:MODEL, or set it for good: "
            "everlong config set agent.model PROVIDER:MODEL",
            key="agent.model",
        )
    connection = connect(model, settings) if isinstance(model, str) else model
    return _Opening(settings, options, connection, store, listen).open()


class _Opening:
    """An agent while it is put together: makes its parts, and later the askers and conversations that it needs."""

    def __init__(
        self,
        settings: Settings,
        options: AgentOptions,
        connection: Connection,
        store: Store,
        listen: Callable[[AgentEvent], None],
    ) -> None:
        self.settings, self.options, self.connection, self.store = settings, options, connection, store
        self.listen = listen
        self._agent: Agent | None = None
        """None until the agent is complete; nothing that needs it is called before."""
        self._first_id = ""
        """The session with which the conversation was opened."""
        self._schemas: list[dict[str, Any]] = []
        """The tools that are sent with the conversation."""
        self._has_told_trust = False
        host = Host(
            settings,
            main=lambda: self._agent.connection if self._agent is not None else self.connection,
            ask=self._ask_for_plugin,
            check=self._check_watch,
        )
        self.plugins = Plugins(settings, warn=self.warn, host=host)
        if settings.context.engine not in (options.engines or {}):
            self.plugins.load()
        self.memory = self._make_memory() if settings.memory.enabled else None
        self.side_calls = SideCalls(store, lambda: self._opened().conversation.session_id, self.warn)

    def warn(self, text: str) -> None:
        self.listen(Notice(text))

    def _opened(self) -> Agent:
        assert self._agent is not None  # noqa: S101 - see `_agent`
        return self._agent

    def _check_watch(self) -> None:
        self._opened().watch.check()  # each prompt has a watch of its own

    def open(self) -> Agent:
        """Put the agent together and begin its session."""
        settings, options = self.settings, self.options
        resumed = None
        if options.resume is not None:
            name = str(self.connection.model_name)
            resumed = AgentConversation.resume(self.store, options.resume, model=name, warn=self.warn)
        ident = self._first_id = resumed.session_id if resumed is not None else new_session_id(time.time())
        self._start_memory(ident)
        self.connection.catalogue.learn(self.connection.model_name, self.store.noted_window(self.connection.place))
        window = self.connection.info.context_length
        engine = resolve_engine(
            settings,
            window,
            model=self.connection.model,
            engines=options.engines,
            plugins=self.plugins,
            warn=self.warn,
        )
        toolbox = self._toolbox(engine)
        self._schemas = toolbox.schemas()
        for compressor in compressors_in(engine):
            compressor.overhead_tokens = compressor.counter.count_tools(self._schemas)
        conversation = self._in_this_folder(resumed) if resumed is not None else self._make_conversation(ident)
        context = ToolContext(
            Workspace(options.root, options.allowed),
            self.store,
            ident,
            window=window,
            confinement=self._confinement(),
            pass_env=settings.agent.tools.pass_env,
        )
        agent = self._agent = Agent(
            self._make_asker(self.connection),
            conversation,
            ToolSet(toolbox, context, Approvals(options.approver)),
            self._parts(engine),
            limits=options.limits or Limits.from_settings(settings.agent),
            listen=self.listen,
        )
        if isinstance(engine, LosslessEngine):
            engine.attach(self.store.graph(lambda: agent.conversation.branch))
        agent.use_window(self.connection, window)
        agent.use_model(self.connection)
        agent.begin(is_resumed=resumed is not None)
        return agent

    def _parts(self, engine: ContextEngine) -> AgentParts:
        return AgentParts(
            engine,
            self.plugins,
            self.side_calls,
            asker_for=self._make_asker,
            conversation_for=self._make_next_conversation,
            summarizer_for=self._make_summarizer,
            memory=self.memory,
            ask_memory=self._ask_for_memory,
            platform=self.options.platform or "cli",
            compacts=self.settings.compression.enabled,
            log_folder=self.options.log_folder,
        )

    def _make_memory(self) -> MemoryManager:
        project = workspace_folder(self.options.root)
        return MemoryManager.from_settings(self.settings, warn=self.warn, project=project)

    def _confinement(self) -> Confinement:
        agent, backend = self.settings.agent, self.store.database.backend
        kept = [Path(f"{backend.path}{end}") for end in ("", "-wal", "-shm")] if isinstance(backend, SQLite) else []
        return Confinement(agent.sandbox, tuple(kept), asks=agent.ask_in_sandbox)

    def _in_this_folder(self, resumed: AgentConversation) -> AgentConversation:
        """Give a conversation that began in another folder the instructions of this one, and return it."""
        folder = str(self.options.root.resolve())
        before = resumed.session.folder if resumed.session is not None else None
        if before not in {None, folder} and self.options.system_prompt is None:
            try:
                resumed.use_system_prompt(self._prompt(), folder)
                self.warn(f"this conversation began in {before}; from here on it works in {folder}")
            except StoreError as error:
                self.warn(f"the instructions of {folder} could not be stored: {error}")
        return resumed

    def _prompt(self) -> str:
        if self.options.system_prompt is not None:
            return self.options.system_prompt
        memory = self.memory.prompt_block() if self.memory is not None else ""
        root = self.options.root.resolve()
        tokens = _INSTRUCTIONS_TOKENS if self._is_trusted(root) else 0
        role = f"{_ROLE}\n\n{self.options.surroundings}" if self.options.surroundings else _ROLE
        return system_prompt(root, instructions_tokens=tokens, memory=memory, role=role)

    def _is_trusted(self, root: Path) -> bool:
        """Return True if the folder's instructions are obeyed; warn the user where some are ignored."""
        if self.options.trusts_root is not None:
            return self.options.trusts_root
        if is_folder_trusted(root):
            return True
        left_out = [name for name in INSTRUCTION_FILES if any((one / name).is_file() for one in _instructed(root))]
        if left_out and not self._has_told_trust:
            self._has_told_trust = True
            names, verb = " and ".join(left_out), "is" if len(left_out) == 1 else "are"
            self.warn(
                f"{names} {verb} left out, because {root} is not trusted; look at it and trust it with: "
                f"everlong trust add {root}"
            )
        return False

    def _make_conversation(self, ident: str | None = None) -> AgentConversation:
        """Make a conversation without messages."""
        options = self.options
        prompt = self._prompt()
        about = {
            "ident": ident or new_session_id(time.time()),
            "platform": options.platform,
            "client": "everlong",
            "folder": str(options.root.resolve()),
        }
        if options.title is not None:
            about["title"] = options.title
        return AgentConversation(
            self.store,
            system_prompt=prompt,
            tools=self._schemas,
            model=str(self.connection.model_name),
            warn=self.warn,
            about=about,
        )

    def _make_next_conversation(self) -> AgentConversation:
        """Make a conversation after another one, whose notes are in its prompt."""
        ident = new_session_id(time.time())
        self._start_memory(ident)
        return self._make_conversation(ident)

    def _start_memory(self, ident: str) -> None:
        if self.memory is not None:
            self.memory.start(ident, platform=self.options.platform or "cli", folder=str(self.options.root.resolve()))

    def _toolbox(self, engine: ContextEngine) -> Toolbox:
        extra = {tool.name: tool for tool in self.options.extra_tools}
        given = builtin_tools() if self.options.tools is None else self.options.tools
        tools = [*(tool for tool in given if tool.name not in extra), *extra.values()]
        offered = engine_tools(engine, self.warn, partial(self._call_engine, engine))
        tools += without_clashes(offered, tools, f"the {engine.name} engine's", self.warn)
        if self.memory is not None:
            tools += self._memory_tools(self.memory)
        return Toolbox(tools)

    def _memory_tools(self, memory: MemoryManager) -> list[Tool]:
        """Return the tools of memory; those that write need approval, because later sessions read the notes."""
        made = [Tool.from_schema(one, memory.handle_tool_call) for one in memory.tool_schemas()]
        return [one if memory.only_reads(one.name) else replace(one, effect="writes") for one in made]

    def _call_engine(self, engine: ContextEngine, name: str, args: dict[str, Any]) -> str:
        return engine.handle_tool_call(name, args, messages=list(self._opened().conversation.messages))

    # -- asking models -------------------------------------------------------------------------------------------------

    def _make_asker(self, connection: Connection) -> Asker:
        cache = PromptCache(
            connection.model,
            connection.endpoint.name,
            base_url=connection.endpoint.base_url or "",
            settings=self.settings.prompt_caching,
            session_id=self._first_id,  # all sessions of a conversation share its cache
        )
        return Asker(
            connection,
            self._schemas,
            cache=cache,
            max_answer_tokens=self.settings.agent.max_output_tokens,
            listen=self.listen,
        )

    def _make_summarizer(self, connection: Connection) -> Summarizer | None:
        cache = self._opened().asker.cache
        warm = completer(
            connection, self._ask_for_summary, tools=self._schemas, prepare=cache.apply if cache is not None else None
        )
        make = partial(
            summarizer_for,
            main=connection,
            main_complete=warm,
            ask=self._ask_for_summary,
        )
        try:
            return make(self.settings)
        except AuthenticationFailed as error:  # no reason not to talk
            self.warn(f"the conversation's own model writes summaries: {error}")
            chosen = self.settings.auxiliary
            own = chosen.model_copy(update={"compression": type(chosen.compression)(provider="main")})
            return make(self.settings.model_copy(update={"auxiliary": own}))

    def _ask_for_summary(self, provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
        """Ask a model on the side: the user can stop it, and its cost is counted."""
        reply = self._opened().watch.call(lambda: provider.complete(messages, **call))
        self.side_calls.paid("summary", provider, reply.usage)
        return reply

    def _ask_for_plugin(self, provider: Provider, messages: Sequence[Message], call: CallOptions) -> Reply:
        """Ask a model for a plugin; while a prompt is worked on, the user can stop it."""
        if self._agent is None:
            return provider.complete(messages, **call)
        if self._agent.watch.interrupted.is_set():
            reply = provider.complete(messages, **call)
        else:
            reply = self._agent.watch.call(lambda: provider.complete(messages, **call))
        self.side_calls.paid("plugin", provider, reply.usage)
        return reply

    def _ask_for_memory(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Message:
        connection = self._opened().connection
        reply = connection.complete(messages, tools=tools, max_tokens=1_024)
        self.side_calls.paid("memory", connection, reply.usage)
        return reply.message


# -- the system prompt -------------------------------------------------------------------------------------------------


def system_prompt(
    root: Path,
    *,
    instructions_tokens: int = _INSTRUCTIONS_TOKENS,
    memory: str = "",
    role: str = _ROLE,
    today: date | None = None,
) -> str:
    """Return the system prompt for work in a folder.

    Args:
        root: the working directory.
        instructions_tokens: how much the project's own instructions may take.
        memory: notes from earlier conversations, ready to be read.
        role: what the agent is told about itself.
        today: the date that it is told; by default the current one.
    """
    parts = [
        role,
        f"Working directory: {root}\nSystem: {platform.system()} {platform.machine()}\n"
        f"Today: {(today or date.today()).isoformat()}",
        project_instructions(root, instructions_tokens),
        memory,
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip())


def project_instructions(root: Path, budget_tokens: int) -> str:
    """Return the text of AGENTS.md and CLAUDE.md within a budget, equal files once.

    As other agents do: those of the repository come first, then those of the folders on the way to this one, and a
    file that one of them names as ``@path`` follows it. The caller checks that the folder is trusted. Files outside of
    the repository, also by a link, are ignored.
    """
    if budget_tokens <= 0:
        return ""
    told: list[str] = []
    seen: set[str] = set()
    left = budget_tokens
    for name, text in _read_instructions(root, budget_tokens * _READ_CHARS_PER_TOKEN):
        if not text or text in seen or left <= 0:
            continue
        seen.add(text)
        shown, used = _first_lines(text, left)
        left -= used
        rest = "" if shown == text else f"\n[The rest of {name} does not fit; read the file when you need it.]"
        told.append(f"# Instructions of this project ({name})\n\n{shown}{rest}")
    return "\n\n".join(told)


def _read_instructions(root: Path, most: int) -> Iterator[tuple[str, str]]:
    folders = _instructed(root)
    workspace, read = Workspace(folders[0]), set[Path]()

    def read_file(path: Path, depth: int) -> Iterator[tuple[str, str]]:
        if path in read or depth > _MOST_IMPORTS_DEEP:
            return
        read.add(path)
        try:
            with os.fdopen(workspace.open(workspace.resolve(str(path))), encoding="utf-8", errors="replace") as file:
                text = file.read(most).replace("\0", "").strip()
        except (ToolError, OSError):  # not there, not ours to read, or not in the folder
            return
        yield path.relative_to(folders[0]).as_posix(), text
        for name in _IMPORT.findall(_CODE.sub("", text)):
            found = Path(os.path.normpath(path.parent / name))
            if found.is_relative_to(folders[0]):
                yield from read_file(found, depth + 1)

    for folder in folders:
        for name in INSTRUCTION_FILES:
            yield from read_file(folder / name, 0)


def _instructed(root: Path) -> list[Path]:
    """Return the folders whose instructions hold in a folder: from its repository down to itself."""
    root = root.resolve()
    top = workspace_folder(root)
    return [one for one in (*reversed(root.parents), root) if one.is_relative_to(top)]


def _first_lines(text: str, budget: int) -> tuple[str, int]:
    """Return as many whole lines from the beginning as the budget allows, and the tokens that they take."""
    count = counter_for(None).count_text
    shown, used = "", 0
    for line in text.splitlines(keepends=True):
        tokens = count(line)
        if used + tokens > budget:
            break
        shown, used = shown + line, used + tokens
    return shown.rstrip(), used
