"""Context engines and plugins in a gateway: one engine per conversation, from its first request until it expires."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from everlong.agent.engines import guarded_engine
from everlong.agent.tools.hidden_tools import tools_to_hide
from everlong.context import ContextCompressor, ContextEngine
from everlong.errors import EverlongError, PluginError, StoreError
from everlong.memory import MemoryManager
from everlong.plugins.engines import is_engine, make_engine
from everlong.plugins.guard import GuardedEngine
from everlong.plugins.host import Host, home as plugin_home
from everlong.plugins.manager import BUILT_IN, Plugins, chooses_lossless
from everlong.store.compaction import see

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.gateway.conversations import LiveConversation
    from everlong.memory import MemoryProvider
    from everlong.model import Message
    from everlong.store import Branch, Store

__all__ = ["PLATFORM", "Engines", "GatewayPlugins", "HostedEngine", "TenantPlugins"]

PLATFORM = "gateway"
"""The platform that plugins are told."""

_log = logging.getLogger("everlong.gateway")
_MOST_TOLD = 1_000


_EXPIRY_SECONDS = 86_400.0
"""Seconds of silence after which a conversation's engine is told that its session is over."""


class TenantPlugins:
    """The plugins of one tenant, which may not have the memory providers that are ``in_use`` by others."""

    def __init__(
        self, settings: Settings, tenant: str, in_use: Sequence[MemoryProvider], warn: Callable[[str], None]
    ) -> None:
        self.plugins = Plugins(settings, warn=warn)
        self.plugins.load()
        self.provider: MemoryProvider | None = None
        """Its memory provider."""
        self._tenant = tenant
        self._warn = warn
        self._memory = self._opened(settings, in_use) if settings.memory.enabled and settings.memory.provider else None
        self._session = ""
        self._lock = threading.Lock()

    def _opened(self, settings: Settings, in_use: Sequence[MemoryProvider]) -> MemoryManager | None:
        manager = MemoryManager.from_settings(settings, warn=self._warn, has_notes=False)
        self.provider = next(iter(manager.providers), None)
        if any(one is self.provider for one in in_use):
            self._warn(
                f"the memory provider {settings.memory.provider!r} is one object for all, and tenants share no memory; "
                f"{self._tenant!r} goes on without it"
            )
            self.provider = None
        return None if self.provider is None else manager

    def before_compaction(self, session: str | None, messages: Sequence[Message]) -> dict[str, str]:
        """Return ``memory_context`` for the engine, if the memory provider wants something kept."""
        session = session or ""
        if self._memory is None:
            return {}
        with self._lock:
            if not self._session:
                self._memory.start(session, platform=PLATFORM, tenant=self._tenant)
            elif session != self._session:
                self._memory.switch(session, reason="another conversation")
            self._session = session
            kept = self._memory.before_compaction(messages)
        return {"memory_context": kept} if kept else {}

    def close(self) -> None:
        """Close the memory provider and the models."""
        if self._memory is not None:
            self._memory.close()
        self.plugins.close()


class GatewayPlugins:
    """The plugins of all tenants of a gateway."""

    def __init__(self, settings: Settings) -> None:
        self.settings = _own_models_only(settings)
        self._tenants: dict[str, TenantPlugins] = {}
        self._lock = threading.Lock()
        self._told: set[str] = set()

    @property
    def are_wanted(self) -> bool:
        """True if the settings name any plugin."""
        settings = self.settings
        wants_memory = settings.memory.enabled and settings.memory.provider is not None
        wants_engine = settings.context.engine != BUILT_IN and not self.wants_lossless
        return wants_engine or wants_memory

    @cached_property
    def wants_lossless(self) -> bool:
        """True if the settings name the lossless engine that comes with Everlong; a plugin of that name comes first."""
        return chooses_lossless(self.settings)

    def of(self, tenant: str) -> TenantPlugins:
        """Return the plugins of a tenant; they are loaded when they are first needed."""
        with self._lock:
            found = self._tenants.get(tenant)
            if found is None:
                in_use = [one.provider for one in self._tenants.values() if one.provider is not None]
                found = self._tenants[tenant] = TenantPlugins(self.settings, tenant, in_use, self.warn)
            return found

    def warn(self, text: str) -> None:
        """Log a mistake of a plugin, each one once."""
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            _log.warning("%s", text)

    def close(self) -> None:
        """Close the plugins of all tenants."""
        for one in self._tenants.values():
            one.close()


def _own_models_only(settings: Settings) -> Settings:
    """Return settings by which a plugin that asks for a model gets one that was chosen for the gateway, or none.

    In a chat it would get a cheap model of any provider that there is a key for. The conversations here are those of
    clients, and go to nobody that they were not meant for.
    """
    if settings.auxiliary.compression.names_model:
        return settings
    own = settings.gateway.summaries
    chosen = {"provider": "main"} if own in {"own", "built-in"} else {"model": own}
    compression = settings.auxiliary.compression.model_copy(update=chosen)
    auxiliary = settings.auxiliary.model_copy(update={"compression": compression})
    return settings.model_copy(
        update={"auxiliary": auxiliary, "agent": settings.agent.model_copy(update={"model": None})}
    )


_MOST_ENGINES = 256
"""Engines alive at a time; beyond that, the one that was silent longest is ended early. Each has a thread."""


class _EngineKey(NamedTuple):
    tenant: str
    conversation: str


class HostedEngine:
    """The engine of one conversation."""

    def __init__(self, engine: GuardedEngine, store: Store, conversation: str, warn: Callable[[str], None]) -> None:
        self.engine = engine
        self.conversation = conversation
        """The id of its first session."""
        self.session = ""
        """The session that it goes on in."""
        self.branch: Branch | None = None
        self.used_at = 0.0
        self.tools = tools_to_hide(engine, warn)
        """The tools that it offers to the model; always the same, because a changed prompt is not cached."""
        self._store = store
        self._model = ("", 0)
        self._lock = threading.RLock()

    # -- a session's life ----------------------------------------------------------------------------------------------

    def goes_on(self, session: str, branch: Branch, model: str, window: int, provider: str) -> None:
        """Tell the engine where the conversation is now: its session, its place in the store, its model."""
        self.branch = branch
        if (session, model, window) == (self.session, *self._model):
            return  # without waiting for a compaction that is under way
        with self._lock:
            if self._model != (model, window):
                self._model = (model, window)
                self.engine.update_model(model, window, provider=provider)
            if session == self.session:
                return
            parent, self.session = self.session, session
            facts: dict[str, Any] = {}
            if parent:
                facts = {"parent_session_id": parent, "reason": "compression"}
                facts |= {"old_session_id": parent, "boundary_reason": "compression"}  # what other hosts call the same
            self.engine.on_session_start(
                session,
                **facts,
                platform=PLATFORM,
                model=model,
                context_length=window,
                conversation_id=self.conversation,
                hermes_home=str(plugin_home()),
            )

    def end(self) -> None:
        """Tell the engine that the conversation has ended; it is of no use afterwards."""
        with self._lock:
            messages: list[Message] = []
            try:
                if self.branch is not None:
                    messages = see(self._store, self.branch).messages
            except StoreError as error:
                _log.warning("a context engine is not told how its conversation ended: %s", type(error).__name__)
            self.engine.on_session_end(self.session, messages)
            self.engine.close()

    # -- turns ---------------------------------------------------------------------------------------------------------

    def is_due_before(self, messages: Sequence[Message], tokens: int) -> bool:
        """Ask whether a request about to be sent should be compacted first."""
        with self._lock:
            given = list(messages)
            is_due = self.engine.should_compress_preflight(given)  # some engines take in the conversation here
            return (is_due or self.engine.should_compress(tokens)) and self.engine.has_content_to_compress(given)

    def is_due_after(self, usage: Mapping[str, Any]) -> bool:
        """Tell what an answer used, and ask whether the conversation should be compacted now."""
        with self._lock:
            self.engine.update_from_response(dict(usage))
            if not self.engine.should_compress() or self.branch is None:
                return False
            return self.engine.has_content_to_compress(see(self._store, self.branch).messages)

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the engine's answer to a call of one of its tools."""
        with self._lock:
            messages = see(self._store, self.branch).messages if self.branch is not None else []
            return self.engine.handle_tool_call(name, dict(arguments), messages=messages)

    def __enter__(self) -> GuardedEngine:
        """Lock the engine: in a ``with`` block nobody else asks it."""
        self._lock.acquire()
        return self.engine

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Engines:
    """The engines of a gateway's conversations."""

    def __init__(
        self, settings: Settings, plugins: GatewayPlugins, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = settings.context.engine
        self.is_on = self.name != BUILT_IN and not plugins.wants_lossless
        """True if the user chose an engine that is not built in."""
        self._settings = settings
        self._plugins = plugins
        self._clock = clock
        self._alive: OrderedDict[_EngineKey, HostedEngine | None] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def of(
        self, store: Store, conversation: LiveConversation, model: str, window: int, provider: str
    ) -> HostedEngine | None:
        """Return the engine of a conversation; None for a title or a probe, or if the engine fails.

        One that was not there begins; one that is told of another session goes on in it.
        """
        if conversation.session is None:
            return None
        session = store.sessions.get(conversation.session)
        if session.kind == "side":
            return None
        key = _EngineKey(store.tenant, session.conversation)
        with self._lock:
            found, is_known = self._alive.get(key), key in self._alive
        if not is_known:
            with self._making:
                found = self._begun(key, store, window, model)
        if found is None:
            return None
        found.used_at = self._clock()
        with self._lock:
            if key in self._alive:
                self._alive.move_to_end(key)
        found.goes_on(conversation.session, conversation.branch, model, window, provider)
        return found

    def expire(self) -> int:
        """End the engines of conversations that were silent for too long; return how many."""
        oldest = self._clock() - _EXPIRY_SECONDS
        with self._lock:
            idle = [key for key, one in self._alive.items() if one is not None and one.used_at <= oldest]
            gone = [self._alive.pop(key) for key in idle]
        return _ended(gone)

    def close(self) -> None:
        """End all engines."""
        with self._lock:
            gone = list(self._alive.values())
            self._alive.clear()
        _ended(gone)

    # -- making --------------------------------------------------------------------------------------------------------

    def _begun(self, key: _EngineKey, store: Store, window: int, model: str) -> HostedEngine | None:
        with self._lock:
            if key in self._alive:
                return self._alive[key]
        engine = self._made(key.tenant, window, model)
        hosted = None if engine is None else HostedEngine(engine, store, key.conversation, self._plugins.warn)
        if hosted is not None:
            hosted.used_at = self._clock()
        with self._lock:
            self._alive[key] = hosted
            excess = len(self._alive) - _MOST_ENGINES
            gone = [self._alive.popitem(last=False)[1] for _ in range(max(0, excess))]
        _ended(gone)
        return hosted

    def _made(self, tenant: str, window: int, model: str) -> GuardedEngine | None:
        settings = self._plugins.settings

        def built_in() -> ContextCompressor:
            return ContextCompressor(window, settings=settings.compression, model=model)

        return guarded_engine(
            partial(self._fresh, tenant, window),
            built_in,
            window,
            warn=self._plugins.warn,
            host=Host(settings),
            wanted=self.name,
        )

    def _fresh(self, tenant: str, window: int) -> ContextEngine | None:
        """Return an engine that no other conversation has, from the plugin's offer."""
        plugins = self._plugins.of(tenant).plugins
        offer = plugins.offer
        if offer is not None and is_engine(offer.offered):  # one object: a plugin that registers anew makes another
            plugins = Plugins(self._plugins.settings, warn=self._plugins.warn)
            plugins.load()
        engine = plugins.engine(window)
        with self._lock:
            in_use = [one.engine for one in self._alive.values() if one is not None]
        if engine is None or not any(one.inner is engine for one in in_use):
            return engine
        try:
            return make_engine(type(engine), window, self.name)
        except PluginError as error:
            self._plugins.warn(f"context.engine is {self.name!r}, and each conversation needs one of its own: {error}")
            return None


def _ended(gone: Sequence[HostedEngine | None]) -> int:
    ended = [one for one in gone if one is not None]
    for one in ended:
        try:
            one.end()
        except EverlongError as error:
            _log.warning("a context engine could not be ended: %s", type(error).__name__)
    return len(ended)
