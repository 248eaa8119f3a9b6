"""What an engine can do wrong, and what is done about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["CONSEQUENCES", "Fault", "FaultKind"]

FaultKind = Literal["raised", "time", "type", "list", "repaired", "growth", "full"]
"""It raised; it took too long; it returned a wrong type; no usable list; a list that had to be mended; a longer one;
one that leaves the window full."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that an engine did wrong, and where."""

    kind: FaultKind
    method: str
    text: str
    traceback: str = ""


CONSEQUENCES: dict[FaultKind, str] = {
    "raised": "the conversation goes on, with the built-in compressor in its place where one is needed",
    "time": "it is off for the rest of this session, and the built-in compressor takes over",
    "type": "the built-in compressor's answer counts instead",
    "list": "the built-in compressor did it instead",
    "growth": "the built-in compressor did it instead",
    "full": "the built-in compressor did it instead",
    "repaired": "that was mended",
}
"""How the warning about each kind ends."""
