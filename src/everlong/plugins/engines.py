"""Context engines of plugins: the class that a module exports, and the engine made of it.

An engine is any object with the required methods, whether or not it has Everlong's base class. Whatever a plugin's own
code raises becomes a `PluginError` with its traceback.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias, cast

from everlong.context import ContextEngine
from everlong.errors import PluginError
from everlong.memory.provider import describe_error

__all__ = [
    "REQUIRED",
    "EngineMaker",
    "adopt",
    "call_maker",
    "engine_class",
    "is_engine",
    "make_engine",
    "missing_methods",
]

EngineMaker: TypeAlias = Callable[..., ContextEngine]
"""Makes an engine; called with ``context_length`` where it takes that, else with nothing."""

REQUIRED = ("name", "update_from_response", "should_compress", "compress")
"""Methods that every engine must have."""


def missing_methods(offered: object) -> list[str]:
    """Return the required methods that an engine, or a class of engines, lacks."""
    abstract: frozenset[str] = getattr(offered, "__abstractmethods__", frozenset())
    holder = offered if inspect.isclass(offered) else type(offered)  # looked up on the class, so that no property runs
    own = getattr(offered, "__dict__", {})
    return [name for name in REQUIRED if name in abstract or not (hasattr(holder, name) or name in own)]


def is_engine(offered: object) -> bool:
    """Return whether an object can be used as an engine."""
    return not inspect.isclass(offered) and not missing_methods(offered)


def adopt(engine: object) -> ContextEngine:
    """Return the object as an engine, whatever its base class; raises a `PluginError` that names what it lacks."""
    missing = missing_methods(engine)
    if missing:
        raise PluginError(
            f"{type(engine).__name__} is no context engine: it lacks {', '.join(missing)}; an engine has "
            f"{', '.join(REQUIRED)}"
        )
    return engine  # type: ignore[return-value]  # the guard looks before it calls any other method


def engine_class(module: ModuleType, wanted: str) -> type[ContextEngine] | None:
    """Return the engine class that a module exports; None where it exports none.

    Raises:
        PluginError: it exports several, and neither ``__all__`` nor a name tells which is meant.
    """
    listed = [str(name) for name in getattr(module, "__all__", ())]
    names = listed or [name for name in vars(module) if not name.startswith("_")]
    found: dict[str, type] = {}
    for name in names:
        one = getattr(module, name, None)
        if inspect.isclass(one) and _is_exported_engine(one, module) and one not in found.values():
            found[name] = one
    every = list(found.values())
    classes = [one for one in every if not any(other is not one and issubclass(other, one) for other in every)]
    if len(classes) > 1:
        classes = [one for one in classes if getattr(one, "name", None) == wanted] or classes
    if len(classes) > 1:
        raise PluginError(
            f"the plugin {wanted!r} exports several context engines ({', '.join(one.__name__ for one in classes)}); "
            "its __init__.py must name one of them in __all__, or register one: "
            "def register(ctx): ctx.register_context_engine(…)"
        )
    return cast("type[ContextEngine]", classes[0]) if classes else None


def make_engine(offered: Any, context_length: int, plugin: str) -> ContextEngine:
    """Return the engine that a plugin offers as a class, as a function that makes it, or as the engine itself.

    Raises:
        PluginError: it cannot be made, or is no engine.
    """
    try:
        engine = adopt(offered if is_engine(offered) else call_maker(offered, context_length))
        if getattr(engine, "context_length", None) != context_length:
            if callable(getattr(engine, "update_model", None)):
                engine.update_model("", context_length)
            else:
                engine.context_length = context_length
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"the engine of the plugin {plugin!r} cannot be made: {describe_error(error)}",
            traceback="".join(traceback.format_exception(error)),
        ) from error
    return engine


def call_maker(make: Any, context_length: int) -> Any:
    """Call what makes an engine, with the window if it takes that; return anything else as it is."""
    if not callable(make):
        return make
    try:
        takes = inspect.signature(make).parameters
    except (TypeError, ValueError):  # a class of an extension module has no signature
        return make()
    return make(context_length=context_length) if "context_length" in takes else make()


def _is_exported_engine(one: type, module: ModuleType) -> bool:
    """Return whether a class is the plugin's own engine, and not one that it imported to build on."""
    if one.__module__.partition(".")[0] == "everlong":
        return False
    is_its_own = one.__module__.partition(".")[0] == module.__name__.partition(".")[0]
    return issubclass(one, ContextEngine) or (is_its_own and not missing_methods(one))
