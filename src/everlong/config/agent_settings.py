"""Settings of the agent: its model, its limits, and what its tools may take."""

from __future__ import annotations

from typing import Literal

from everlong.config.fields import Flag, Name, Names, Price, Section, Whole, setting

__all__ = ["AgentSettings", "AgentToolsSettings"]


class AgentToolsSettings(Section):
    """What the agent's tools are given."""

    pass_env: Names = setting(
        [],
        "a list of names, in which * stands for any letters",
        "Further environment variables that commands see; keys, tokens and passwords do not pass otherwise.",
    )


class AgentSettings(Section):
    """The agent of ``everlong run`` and ``everlong chat``; limits are for one prompt, from question to answer."""

    model: Name | None = setting(
        None, "provider:model, or null", "The model that the agent talks to where the command line names none."
    )
    max_output_tokens: Whole | None = setting(
        None,
        "a whole number from 1 to 1,000,000,000, or null",
        "The most tokens of one answer; null for 16,384, and never more than a quarter of the window.",
        ge=1,
    )
    max_steps: Whole | None = setting(
        200, "a whole number from 1 to 1,000,000,000, or null", "The most answers of the model to one prompt.", ge=1
    )
    max_tokens: Whole | None = setting(
        None,
        "a whole number from 1 to 1,000,000,000, or null",
        "The most tokens, read and written, that one prompt may use.",
        ge=1,
    )
    max_cost: Price | None = setting(
        None, "a number from 0, or null", "The most US dollars that one prompt may cost, where prices are known."
    )
    max_seconds: Whole | None = setting(
        None, "a whole number from 1 to 1,000,000,000, or null", "The most seconds that one prompt may take.", ge=1
    )
    command_seconds: Whole = setting(
        120, "a whole number from 1 to 1,000,000,000", "How long a tool may run if a call does not say.", ge=1
    )
    tool_output_chars: Whole = setting(
        12_000,
        "a whole number from 1,000 to 1,000,000,000",
        "How much of a tool's output the model sees at once; the whole is kept, to be read in pages.",
        ge=1_000,
    )
    instructions_tokens: Whole = setting(
        4_000,
        "a whole number from 0 to 1,000,000,000",
        "How much of AGENTS.md or CLAUDE.md goes into the system prompt; 0 for nothing.",
        ge=0,
    )
    idle_compaction: Flag = setting(
        default=False,
        allowed="true or false",
        description="Whether a conversation near its threshold is compacted in a pause, while the cache is warm.",
    )
    sandbox: Literal["auto", "on", "off"] = setting(
        "auto",
        "auto, on or off",
        "Whether commands run in the system's sandbox: where there is one, always (else they are refused), or never.",
    )
    ask_in_sandbox: Flag = setting(
        default=True,
        allowed="true or false",
        description="Whether commands in the sandbox are asked about too; those that want the network always are.",
    )
    tools: AgentToolsSettings = AgentToolsSettings()
