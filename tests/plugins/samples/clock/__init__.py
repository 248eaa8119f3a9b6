"""A general plugin: a command, two tools, hooks, and a memory provider, but no engine."""

from __future__ import annotations

import json
from typing import Any

from everlong.memory import MemoryProvider

HEARD: list[tuple[str, dict[str, Any]]] = []


class Tides(MemoryProvider):
    """Remembers the tide."""

    @property
    def name(self) -> str:
        """Another name than the plugin's."""
        return "tides"

    def system_prompt_block(self) -> str:
        """What is known."""
        return "High water is at noon."


def high_water(day: str) -> str:
    """Tell when the water is high.

    Args:
        day: The day.
    """
    return f"On {day} at noon."


def register(ctx: Any) -> None:
    """Make everything known."""

    def note(event: str) -> Any:
        return lambda **facts: HEARD.append((event, facts))

    def command(words: str) -> str:
        (ctx.data_dir / "asked.txt").write_text(words, encoding="utf-8")
        return f"{ctx.config.get('zone', 'UTC')}: {words or 'now'}"

    ctx.register_command("tide", command, description="Tell the tide", args_hint="[WHEN]", emoji="x")
    ctx.register_command("broken", lambda words: 1 / 0)
    ctx.register_command("help", command)
    ctx.register_tool(high_water, effect="reads")
    ctx.register_tool(
        name="low_water",
        toolset="tides",
        schema={"name": "low_water", "description": "Low water.", "parameters": {"type": "object", "properties": {}}},
        handler=lambda args, **more: json.dumps({"at": "six", "knows": sorted(more)}),
        check_fn=lambda: True,
        description="Low water",
        emoji="x",
    )
    ctx.register_tool(name="spring_tide", schema={}, handler=lambda args: "never", check_fn=lambda: False)
    for event in ("on_session_start", "post_tool_call", "post_llm_call", "pre_compress", "post_compress"):
        ctx.register_hook(event, note(event))
    ctx.register_memory_provider(Tides())
    ctx.logger.debug("registered")
