"""Several summarizers as one: the first whose summary is good, or the best of all.

Summaries are judged and scored as the engine does it, against the request alone. One that failed is left alone for a
while, as long as another is there. Asks one after the other; knows nothing of what the members are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from everlong.context.grounds import LeftAlone
from everlong.context.summarize import MendingSummarizer, Summarizer, SummaryRequest, Weakness, yardstick_for
from everlong.context.summary.judge import judged
from everlong.errors import ConfigError, SummarizerError

Choice = Literal["first_good", "best"]


class SummarizerChain:
    """Asks its members in order.

    ``first_good`` takes the first summary with nothing wrong with it, else the best there was; ``best`` asks all and
    takes the best. A member that raised is left alone for ``cooldown_seconds`` while others are there.
    """

    def __init__(
        self,
        members: Sequence[Summarizer],
        choose: Choice = "first_good",
        *,
        cooldown_seconds: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not members:
            raise ConfigError("a chain of summarizers needs at least one", key="members")
        if choose not in ("first_good", "best"):
            raise ConfigError(f'choose must be "first_good" or "best", got {choose!r}', key="choose")
        self._members = list(members)
        self._choose = choose
        self._cooldown = cooldown_seconds
        self._clock = clock
        self._resting: dict[int, float] = {}
        self._reasons: dict[int, str] = {}
        self._winner: Summarizer | None = None
        self._order = list(range(len(self._members)))

    @property
    def name(self) -> str:
        """The name of whoever wrote the last summary; before the first, those of all."""
        return self._winner.name if self._winner else " | ".join(member.name for member in self._members)

    def summarize(self, request: SummaryRequest) -> str:
        """The chosen summary; raises where no member has one, and says why for each."""
        self._winner = None
        yardstick = yardstick_for(request)
        complaints: list[str] = []
        best: tuple[float, str, Summarizer] | None = None
        for place in self._awake():
            member = self._members[place]
            try:
                text = member.summarize(request)
                draft = judged(text, yardstick, request.budget_tokens, request.count)
            except SummarizerError as error:
                complaints.append(f"{member.name}: {error}")
                continue
            except Exception as error:  # noqa: BLE001 - foreign code; the next member is asked and the reason kept
                self._resting[place] = self._clock() + self._cooldown
                self._reasons[place] = f"{type(error).__name__}: {error}"
                complaints.append(f"{member.name}: {self._reasons[place]}")
                continue
            written = draft.document.render()
            score, problems = yardstick.score(written), draft.problems + yardstick.draft_faults(written)
            # The text itself goes on, so that whoever asked the chain sees what was wrong with it.
            if best is None or score - 0.1 * len(problems) > best[0]:
                best = (score - 0.1 * len(problems), text, member)
            if self._choose == "first_good" and not problems:
                best = (score, text, member)
                break
        if best is None:
            raise SummarizerError("; ".join(complaints))
        self._winner = best[2]
        return best[1]

    def mend(self, request: SummaryRequest, draft: str, weakness: Weakness) -> str:
        """A second draft by whoever wrote the first."""
        if not isinstance(self._winner, MendingSummarizer):
            raise SummarizerError(f"{self.name} cannot mend its summary")
        return self._winner.mend(request, draft, weakness)

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The members that failed and are not asked now."""
        now = self._clock()
        within = [one for member in self._members if isinstance(member, SummarizerChain) for one in member.left_alone]
        return [
            LeftAlone(self._members[place].name, self._reasons[place], until - now, self._cooldown)
            for place, until in self._resting.items()
            if until > now
        ] + within

    def ask_last(self) -> str | None:
        """Ask whoever wrote the last summary after all others from now on; return who is asked first then.

        None where nobody wrote one, or there is nobody else.
        """
        if self._winner is None or len(self._members) < 2:
            return None
        place = next(place for place, member in enumerate(self._members) if member is self._winner)
        # Who rests is known by place, so the order is kept apart from the places.
        self._order = [*(other for other in self._order if other != place), place]
        self._winner = None
        return self._members[self._order[0]].name

    def _awake(self) -> list[int]:
        """The members to ask: those that did not fail lately, or all where every one did."""
        now = self._clock()
        awake = [place for place in self._order if self._resting.get(place, now) <= now]
        return awake or self._order
