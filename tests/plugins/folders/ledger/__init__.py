"""An engine as they are written for another host: its own SQLite file, tools, a slash command, hooks."""

import logging

from .engine import LedgerEngine

logger = logging.getLogger(__name__)


def register(ctx):
    from hermes_cli.config import load_config
    from hermes_constants import get_hermes_home

    section = load_config().get("ledger", {})
    engine = LedgerEngine(hermes_home=str(get_hermes_home()), keep=int(section.get("keep", 6)))
    ctx.register_context_engine(engine)

    def handle(words):
        return f"ledger: {engine.store.count()} messages, {engine.compression_count} compactions {words}".strip()

    if callable(getattr(ctx, "register_command", None)):
        ctx.register_command("ledger", handle, description="What the ledger holds")
    if callable(getattr(ctx, "register_hook", None)):
        ctx.register_hook("pre_llm_call", lambda **facts: {"context": "Look into the ledger first."})
    try:
        from hermes_cli.plugins import get_plugin_manager

        get_plugin_manager()._hooks.setdefault("post_llm_call", []).append(engine.note_turn)
    except Exception as error:
        logger.debug("no manager: %s", error)
