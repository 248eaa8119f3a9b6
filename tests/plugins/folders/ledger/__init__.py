"""An engine as they are written for another host: its own SQLite file, tools, a slash command, a hook."""

from .engine import LedgerEngine


def register(ctx):
    from hermes_cli.config import load_config
    from hermes_constants import get_hermes_home

    section = load_config().get("ledger", {})
    engine = LedgerEngine(hermes_home=str(get_hermes_home()), keep=int(section.get("keep", 6)))
    ctx.register_context_engine(engine)

    if callable(getattr(ctx, "register_command", None)):
        ctx.register_command("ledger", print, description="What the ledger holds")
    if callable(getattr(ctx, "register_hook", None)):
        ctx.register_hook("pre_llm_call", lambda **facts: {"context": "Look into the ledger first."})
