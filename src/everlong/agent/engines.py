"""Which context engine a configuration asks for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from everlong.context import ContextCompressor, ContextEngine, Summarizer
from everlong.plugins.foreign.host_state import Host, running_in
from everlong.plugins.guard import GuardedEngine, adopt
from everlong.plugins.running import Failed, Overrun, Runner

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
    host: Host | None = None,
) -> ContextEngine:
    """The engine that ``context.engine`` names; the built-in compressor where it names nothing that is there.

    Args:
        settings: the configuration.
        context_length: the model's window.
        model: its name, which chooses how the compressor counts.
        summarizer: writes the compressor's summaries.
        engines: further engines by name; ``compressor`` always means the built-in one.
        warn: told where a name leads to nothing, and of what an engine does wrong.
        host: what an engine is given where it asks for settings and models.
    """

    def built_in() -> ContextCompressor:
        return ContextCompressor(context_length, settings=settings.compression, summarizer=summarizer, model=model)

    wanted = settings.context.engine
    make = None if wanted == "compressor" else (engines or {}).get(wanted)
    if make is not None:
        guarded = guarded_engine(
            make, built_in, context_length, seconds=settings.context.engine_seconds, warn=warn, host=host, wanted=wanted
        )
        return guarded or built_in()
    if wanted != "compressor":
        known = ", ".join(sorted({"compressor", *(engines or {})}))
        warn(f"context.engine is {wanted!r}, and there is no engine of that name (known: {known}); compressor is used")
    return built_in()


def guarded_engine(
    make: EngineMaker,
    fallback: Callable[[], ContextEngine],
    context_length: int,
    *,
    seconds: float,
    warn: Callable[[str], None],
    host: Host | None = None,
    wanted: str,
) -> ContextEngine | None:
    """An engine that is not built in, made and kept where it can do no harm; None, with a warning, where it fails."""
    runner = Runner(f"everlong-engine-{wanted}", seconds)
    try:
        engine = runner.call(lambda: _made(make, context_length, host))
    except (Failed, Overrun) as failed:
        warn(f"context.engine is {wanted!r}, and that engine cannot be started ({failed}); compressor is used")
        return None
    guarded = GuardedEngine(engine, fallback, warn=warn, host=host, runner=runner)
    if guarded.name != wanted:
        warn(f"context.engine is {wanted!r}, and the engine of that name calls itself {guarded.name!r}")
    if guarded.context_length != context_length:
        guarded.update_model("", context_length)
    return guarded


def _made(make: EngineMaker, context_length: int, host: Host | None) -> ContextEngine:
    takes = inspect.signature(make).parameters
    with running_in(host):
        return adopt(make(context_length=context_length) if "context_length" in takes else make())
