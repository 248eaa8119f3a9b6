"""Token counts: exact if a vocabulary is bundled, else estimated, and calibrated by an API's reports.

Knows messages and text, no network and no client; importing it loads nothing but the standard library.
"""

from __future__ import annotations

from everlong.tokens.calibration import Calibration
from everlong.tokens.counters import VOCABULARIES, ExactCounter, TokenCounter, counter_for, vocabulary_for
from everlong.tokens.estimate import EstimatingCounter
from everlong.tokens.messages import REPLY_PRIMING, MessageCounter
from everlong.tokens.prices import (
    Prices,
    ThresholdSums,
    Workload,
    cost_per_call,
    threshold_sums,
)

__all__ = [
    "REPLY_PRIMING",
    "VOCABULARIES",
    "Calibration",
    "EstimatingCounter",
    "ExactCounter",
    "MessageCounter",
    "Prices",
    "ThresholdSums",
    "TokenCounter",
    "Workload",
    "cost_per_call",
    "counter_for",
    "threshold_sums",
    "vocabulary_for",
]
