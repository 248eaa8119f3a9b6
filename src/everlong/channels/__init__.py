"""Channels: the agent in Telegram and Discord.

A `Platform` speaks with one service through its library. The rest of this folder does not know which one: it stores
what people write, runs the agent's turns, and delivers each answer once.
"""
