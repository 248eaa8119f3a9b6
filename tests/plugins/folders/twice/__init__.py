"""Registers two engines."""

from agent.context_compressor import ContextCompressor


class First(ContextCompressor):
    name = "twice"


class Second(ContextCompressor):
    name = "another"


def register(ctx):
    ctx.register_context_engine(First(quiet_mode=True, config_context_length=8_000))
    ctx.register_context_engine(Second(quiet_mode=True, config_context_length=8_000))
