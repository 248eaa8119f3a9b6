"""Which context engine a configuration asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor, ContextEngine, Summarizer
from everlong.plugins.engines import EngineMaker
from everlong.plugins.manager import Plugins

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = ["EngineMaker", "resolve_engine"]


def resolve_engine(
    settings: Settings,
    context_length: int,
    *,
    model: str = "",
    summarizer: Summarizer | None = None,
    engines: Mapping[str, EngineMaker] | None = None,
    plugins: Plugins | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> ContextEngine:
    """The engine that ``context.engine`` names; the built-in compressor where it names nothing that is there.

    Args:
        settings: the configuration.
        context_length: the model's window.
        model: its name, which chooses how the compressor counts.
        summarizer: writes the compressor's summaries.
        engines: further engines by name; ``compressor`` always means the built-in one.
        plugins: the plugins that were loaded; by default those of the settings, as seen from the working directory.
        warn: told where a name leads to nothing.
    """
    wanted = settings.context.engine
    make = None if wanted == "compressor" else (engines or {}).get(wanted)
    if make is not None:
        engine = _made(make, context_length)
        if engine.name != wanted:
            warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {engine.name!r}")
        return engine
    if wanted != "compressor":
        if plugins is None:
            plugins = Plugins(settings, warn=warn)
            plugins.load()
        plugged = plugins.engine(context_length)
        if plugged is not None:
            return plugged
    return ContextCompressor(context_length, settings=settings.compression, summarizer=summarizer, model=model)


def _made(make: EngineMaker, context_length: int) -> ContextEngine:
    takes = inspect.signature(make).parameters
    engine = make(context_length=context_length) if "context_length" in takes else make()
    if engine.context_length != context_length:
        engine.update_model("", context_length)
    return engine
