"""Whatever a summarizer returns, a compaction must not be worse for it: the engine is handed scripted answers in turn.

Compares each with the compaction that the engine makes by itself, at the same cut and share: what it keeps, the score
that the engine gives its result, and whether the report names what was wrong. Bars: no score below the engine's own,
recall at most .01 below it on coding transcripts, every fault named, nothing invented.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bench.measure import verdict
from bench.retention.data import CUTS, cuts
from bench.retention.facts import Transcript
from bench.retention.methods import WINDOW, body_tokens, compacted_by
from bench.retention.scripts import BLAMED_FOR, GIVEAWAYS, SCRIPTS, Script
from bench.retention.summary import mean_of
from bench.retention.texts import Text
from bench.retention.trials import Trial, Work, measured
from everlong.context import ContextCompressor

PLAIN = "extractive"
LOSS_ALLOWED = 0.01
SCORE_ALLOWED = 0.15
"""A model's summary stays as it is, also where the built-in one would score a little higher."""
_LONGEST_REASON = 60


class Outcome(NamedTuple):
    """One kind of script at one share over one kind of conversations, beside the engine alone."""

    kind: str
    share: float
    script: str
    compactions: int
    recall: float | None
    recall_alone: float | None
    least_gain: float
    """The lowest difference between the score with the script and without."""
    unnamed: int
    """Compactions whose report does not name what was wrong, or blames a good summary."""
    leaked: int
    """Results with words that must not stand in any."""
    reasons: tuple[tuple[str, int], ...]


def try_scripted(work: Work) -> list[Trial]:
    """Return every trial of one conversation: the engine alone, then every script with the same engine."""
    transcript = Transcript(work.conversation.messages)
    trials: list[Trial] = []
    for cut in cuts(work.conversation.messages, CUTS):
        prefix = work.conversation.messages[:cut]
        facts = transcript.facts_after(cut, work.common)
        strange = [word for word in GIVEAWAYS if word not in Text(prefix).whole]
        for share in work.shares:
            script = Script()
            engine = ContextCompressor(WINDOW, summarizer=script, settings={"failure_cooldown_seconds": 0})
            for kind in (PLAIN, *SCRIPTS):
                script.kind = kind
                made_by = ContextCompressor(WINDOW) if kind == PLAIN else engine
                context = compacted_by(made_by, prefix, int(share * body_tokens(prefix)))
                trial = measured(work, transcript, facts, cut, context)
                trial.method, trial.share = kind, share
                report = made_by.last_report
                if context is not None and report is not None and report.quality is not None:
                    trial.score, trial.blamed = report.quality.score, list(report.quality.problems)
                    trial.problems += [f"says {word}" for word in strange if word in Text(context).whole]
                trials.append(trial)
    return trials


def outcomes(trials: Sequence[Trial]) -> list[Outcome]:
    """Return the outcome of each script, by kind of conversation and share."""
    alone = {_place(trial): trial for trial in trials if trial.method == PLAIN and trial.reached}
    groups: dict[tuple[str, float, str], list[Trial]] = {}
    for trial in trials:
        if trial.method != PLAIN and trial.reached and _place(trial) in alone:
            groups.setdefault((trial.kind, trial.share, trial.method), []).append(trial)
    order = {name: place for place, name in enumerate(SCRIPTS)}
    keys = sorted(groups, key=lambda key: (key[0], key[1], order[key[2]]))
    return [_outcome(key, groups[key], [alone[_place(trial)] for trial in groups[key]]) for key in keys]


def _place(trial: Trial) -> tuple[str, int, float]:
    return trial.conversation, trial.cut, trial.share


def _outcome(key: tuple[str, float, str], mine: Sequence[Trial], alone: Sequence[Trial]) -> Outcome:
    recall, recall_alone = mean_of(mine, "recall"), mean_of(alone, "recall")
    gains = [
        trial.score - other.score
        for trial, other in zip(mine, alone, strict=True)
        if trial.score is not None and other.score is not None
    ]
    summarized = [trial for trial in mine if trial.score is not None]
    reasons = Counter(reason.partition(":")[0][:_LONGEST_REASON] for trial in mine for reason in trial.blamed)
    return Outcome(
        *key,
        compactions=len(mine),
        recall=recall.value if recall else None,
        recall_alone=recall_alone.value if recall_alone else None,
        least_gain=min(gains, default=0.0),
        unnamed=sum(not _is_named(key[2], trial.blamed) for trial in summarized),
        leaked=sum(any(problem.startswith("says ") for problem in trial.problems) for trial in mine),
        reasons=tuple(reasons.most_common(3)),
    )


def _is_named(script: str, blamed: Sequence[str]) -> bool:
    if script not in BLAMED_FOR:
        return not any(fault in reason for reason in blamed for fault in BLAMED_FOR.values())
    return any(BLAMED_FOR[script] in reason for reason in blamed)


def is_held(outcome: Outcome) -> bool:
    """Return whether every bar holds; the one on recall is for coding transcripts, the others have too few facts."""
    loss = (outcome.recall_alone or 0.0) - (outcome.recall or 0.0)
    sound = outcome.least_gain >= -SCORE_ALLOWED and not outcome.unnamed and not outcome.leaked
    return sound and (outcome.kind != "coding" or loss <= LOSS_ALLOWED)


def print_outcomes(found: Sequence[Outcome]) -> None:
    """Print the table."""
    print("A scripted summarizer beside the engine alone, at the same cuts and shares:\n")
    print(
        f"{'kind':<12} {'share':>5} {'script':<10} {'cuts':>5} {'FRR':>6} {'delta':>7} {'least score gain':>16} "
        f"{'unnamed':>7} {'leaked':>6}          named in the reports"
    )
    for outcome in found:
        recall, alone = outcome.recall, outcome.recall_alone
        shown = f"{'–':>6} {'–':>7}" if recall is None or alone is None else f"{recall:>6.3f} {recall - alone:>+7.3f}"
        reasons = "; ".join(f"{reason} ({count})" for reason, count in outcome.reasons)
        print(
            f"{outcome.kind:<12} {outcome.share:>5.2f} {outcome.script:<10} {outcome.compactions:>5,} {shown} "
            f"{outcome.least_gain:>+16.2f} {outcome.unnamed:>7,} {outcome.leaked:>6,}  "
            f"{verdict(is_held(outcome), 1, at_least=True):<6}  {reasons}"
        )
    print()
