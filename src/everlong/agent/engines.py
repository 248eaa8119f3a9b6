"""Which context engine a configuration asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor, ContextEngine, Summarizer

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = ["EngineMaker", "resolve_engine"]

EngineMaker = Callable[..., ContextEngine]
"""Makes an engine; called with ``context_length`` where it takes that, else with nothing."""


def resolve_engine(
    settings: Settings,
    context_length: int,
    *,
    model: str = "",
    summarizer: Summarizer | None = None,
    engines: Mapping[str, EngineMaker] | None = None,
    warn: Callable[[str], None] = lambda _: None,
) -> ContextEngine:
    """The engine that ``context.engine`` names; the built-in compressor where it names nothing that is there.

    Args:
        settings: the configuration.
        context_length: the model's window.
        model: its name, which chooses how the compressor counts.
        summarizer: writes the compressor's summaries.
        engines: further engines by name; ``compressor`` always means the built-in one.
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
        known = ", ".join(sorted({"compressor", *(engines or {})}))
        warn(f"context.engine is {wanted!r}, and there is no engine of that name (known: {known}); compressor is used")
    return ContextCompressor(context_length, settings=settings.compression, summarizer=summarizer, model=model)


def _made(make: EngineMaker, context_length: int) -> ContextEngine:
    takes = inspect.signature(make).parameters
    engine = make(context_length=context_length) if "context_length" in takes else make()
    if engine.context_length != context_length:
        engine.update_model("", context_length)
    return engine
