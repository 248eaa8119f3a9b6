"""The plugins of a gateway: what they are told before and after compactions, and what their memory wants kept.

Plugins are loaded anew for each tenant, so that nothing a plugin keeps of one reaches another. Blocks; called from
worker threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from everlong.gateway.summaries import names_model
from everlong.memory import MemoryManager
from everlong.plugins.manager import BUILT_IN, Plugins

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.memory import MemoryProvider
    from everlong.model import Message

__all__ = ["PLATFORM", "GatewayPlugins", "TenantPlugins"]

PLATFORM = "gateway"
"""What plugins are told of where a conversation comes from."""

_log = logging.getLogger("everlong.gateway")
_MOST_TOLD = 1_000


class TenantPlugins:
    """The plugins of one tenant.

    Args:
        settings: the program's settings.
        tenant: whose conversations they hear of.
        in_use: the memory providers of other tenants, which this one may not have.
        warn: told what goes wrong.
    """

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
        offered = [(one.plugin, one.provider) for one in self.plugins.registered.memory]
        manager = MemoryManager.from_settings(settings, warn=self._warn, offered=offered, has_notes=False)
        self.provider = next(iter(manager.providers), None)
        if any(one is self.provider for one in in_use):
            self._warn(
                f"the memory provider {settings.memory.provider!r} is one object for all, and tenants share no memory; "
                f"{self._tenant!r} goes on without it"
            )
            self.provider = None
        return None if self.provider is None else manager

    def before_compaction(self, session: str | None, messages: Sequence[Message], **facts: Any) -> dict[str, str]:
        """Tell everybody that a conversation is about to be compacted.

        Returns ``memory_context`` for the engine, where the memory provider wants something kept.
        """
        session = session or ""
        self.plugins.registered.hooks.fire("pre_compress", **facts, session_id=session, platform=PLATFORM)
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

    def after_compaction(self, **facts: Any) -> None:
        """Tell everybody what came of a compaction."""
        self.plugins.registered.hooks.fire("post_compress", **facts, platform=PLATFORM)

    def close(self) -> None:
        """Let go of the memory provider and of models."""
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
        """Whether the settings name any plugin."""
        settings = self.settings
        wants_memory = settings.memory.enabled and settings.memory.provider is not None
        return settings.context.engine != BUILT_IN or bool(settings.plugins.enabled) or wants_memory

    def of(self, tenant: str) -> TenantPlugins:
        """Return the plugins of a tenant; they are loaded when they are first needed."""
        with self._lock:
            found = self._tenants.get(tenant)
            if found is None:
                in_use = [one.provider for one in self._tenants.values() if one.provider is not None]
                found = self._tenants[tenant] = TenantPlugins(self.settings, tenant, in_use, self.warn)
            return found

    def warn(self, text: str) -> None:
        """Log what a plugin did wrong, each thing once."""
        if text not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(text)
            _log.warning("%s", text)

    def close(self) -> None:
        """Let go of everything."""
        for one in self._tenants.values():
            one.close()


def _own_models_only(settings: Settings) -> Settings:
    """Return settings by which a plugin that asks for a model gets one that was chosen for the gateway, or none.

    In a chat it would get a cheap model of any provider that there is a key for. The conversations here are those of
    clients, and go to nobody that they were not meant for.
    """
    if names_model(settings):
        return settings
    own = settings.gateway.summaries
    chosen = {"provider": "main"} if own in {"own", "extractive"} else {"model": own}
    compression = settings.auxiliary.compression.model_copy(update=chosen)
    auxiliary = settings.auxiliary.model_copy(update={"compression": compression})
    return settings.model_copy(
        update={"auxiliary": auxiliary, "agent": settings.agent.model_copy(update={"model": None})}
    )
