"""The context engine that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor, ContextEngine
from everlong.lossless import LosslessEngine
from everlong.plugins.engines import EngineMaker, adopt, call_maker
from everlong.plugins.guard import GuardedEngine
from everlong.plugins.host import Host, running_in
from everlong.plugins.manager import BUILT_IN_LOSSLESS, LOSSLESS, Plugins
from everlong.plugins.running import Failed, Overrun, Runner

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = ["EngineMaker", "resolve_engine"]


def resolve_engine(
    settings: Settings,
    context_length: int,
    *,
    model: str = "",
    engines: Mapping[str, EngineMaker] | None = None,
    plugins: Plugins | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> ContextEngine:
    """Return the engine that ``context.engine`` names; the built-in compressor where there is none of that name.

    Args:
        settings: the configuration.
        context_length: the model's window.
        model: its name, which chooses how the compressor counts.
        engines: further engines by name; ``compressor`` always means the built-in one.
        plugins: the plugins that were loaded; by default those of the settings, as seen from the working directory.
        warn: told of a name without an engine, and of an engine's faults.
    """

    def built_in() -> ContextCompressor:
        return ContextCompressor(context_length, settings=settings.compression, model=model)

    wanted = settings.context.engine

    def guarded(make: Callable[..., ContextEngine | None]) -> ContextEngine | None:
        host = plugins.host if plugins is not None else Host(settings)
        return _guarded_engine(make, built_in, context_length, warn=warn, host=host, wanted=wanted)

    def lossless() -> LosslessEngine:
        return LosslessEngine(context_length, settings=settings.compression, model=model)

    if wanted == BUILT_IN_LOSSLESS:
        return lossless()
    make = None if wanted == "compressor" else (engines or {}).get(wanted)
    if make is not None:
        engine = guarded(make)
        if engine is not None and engine.name != wanted:
            warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {engine.name!r}")
        return engine or built_in()
    if wanted != "compressor":
        if plugins is None:
            plugins = Plugins(settings, warn=warn)
            plugins.load()
        if plugins.wants_lossless:
            return lossless()
        made = guarded(partial(plugins.engine, context_length))
        return made or (lossless() if wanted == LOSSLESS else built_in())
    return built_in()


def _guarded_engine(
    make: Callable[..., ContextEngine | None],
    fallback: Callable[[], ContextEngine],
    context_length: int,
    *,
    warn: Callable[[str], None],
    host: Host,
    wanted: str,
) -> GuardedEngine | None:
    """Make an engine that is not built in, behind a guard; return None, with a warning, where that fails."""
    runner = Runner(f"everlong-engine-{wanted}")
    try:
        engine = runner.call(lambda: _make(make, context_length, host))
    except (Failed, Overrun) as failed:
        why = f"that engine cannot be started ({failed})"
        warn(f"context.engine is {wanted!r}, and {why}; the built-in compressor is used")
        return None
    return None if engine is None else GuardedEngine(engine, fallback, warn=warn, host=host, runner=runner)


def _make(make: Callable[..., ContextEngine | None], context_length: int, host: Host) -> ContextEngine | None:
    with running_in(host):
        made = call_maker(make, context_length)
        return None if made is None else adopt(made)
