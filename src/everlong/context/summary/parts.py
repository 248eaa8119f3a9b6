"""Many completions of one summary: a bounded number at a time, each tried twice, what is finished kept.

Takes prompts and gives back answers in the same order. A prompt that fails twice ends the run, but the answers that
are there stay, by a hash of their prompt, so that the next attempt goes on instead of starting over. Knows nothing of
what the prompts say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import NamedTuple, Protocol

from everlong.errors import SummarizerError
from everlong.model import Message

_MOST_KEPT = 8_192


class Complete(Protocol):
    """Completes a chat; raises on failure."""

    def __call__(self, messages: list[Message], max_tokens: int) -> str:
        """The model's answer, at most ``max_tokens`` long."""
        ...


class SummaryProgress(NamedTuple):
    """How far a summary in parts has come."""

    level: int
    """0 while the turns are read, then the level of folding."""
    done: int
    total: int
    """Of this level."""


class Task(NamedTuple):
    """One prompt and the room for its answer."""

    messages: list[Message]
    max_tokens: int

    @property
    def key(self) -> str:
        """A hash of everything that the answer depends on."""
        asked = json.dumps([self.messages, self.max_tokens], sort_keys=True, default=str)
        return hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()


class PartsRunner:
    """Runs tasks over one completion function."""

    def __init__(
        self,
        complete: Complete,
        check: Callable[[object], str],
        concurrency: int,
        progress: Callable[[SummaryProgress], None] | None,
    ) -> None:
        self._complete = complete
        self._check = check
        self._concurrency = concurrency
        self._progress = progress
        self._kept: dict[str, str] = {}

    def run(self, tasks: Sequence[Task], level: int) -> list[str]:
        """The answer to each task; raises once one has failed twice."""
        keys = [task.key for task in tasks]
        waiting = [place for place, key in enumerate(keys) if key not in self._kept]
        self._tell(level, len(tasks) - len(waiting), len(tasks))
        if self._concurrency == 1 or len(waiting) < 2:
            for done, place in enumerate(waiting, len(tasks) - len(waiting) + 1):
                self._keep(keys[place], self._named(tasks, place, self._answer))
                self._tell(level, done, len(tasks))
        else:
            self._run_together(tasks, keys, waiting, level)
        return [self._kept[key] for key in keys]

    def forget(self) -> None:
        """Drop what was kept: the summary it was for is written."""
        self._kept.clear()

    def _run_together(self, tasks: Sequence[Task], keys: list[str], waiting: list[int], level: int) -> None:
        running: dict[Future[str], int] = {}
        failure: SummarizerError | None = None
        done, queue = len(tasks) - len(waiting), iter(waiting)
        with ThreadPoolExecutor(self._concurrency, thread_name_prefix="everlong-summary") as pool:
            while True:
                while failure is None and len(running) < self._concurrency:
                    place = next(queue, None)
                    if place is None:
                        break
                    running[pool.submit(self._answer, tasks[place])] = place
                if not running:
                    break
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    place = running.pop(future)
                    try:
                        self._keep(keys[place], self._named(tasks, place, lambda _, f=future: f.result()))  # type: ignore[misc]
                    except SummarizerError as error:
                        failure = failure or error
                        continue
                    done += 1
                    self._tell(level, done, len(tasks))
        if failure is not None:
            raise failure

    def _answer(self, task: Task) -> str:
        try:
            return self._check(self._complete(task.messages, task.max_tokens))
        except Exception:  # noqa: BLE001 - whatever it was, once more; the second failure is raised
            return self._check(self._complete(task.messages, task.max_tokens))

    def _named(self, tasks: Sequence[Task], place: int, answer: Callable[[Task], str]) -> str:
        """An answer; a failure says which part it was."""
        try:
            return answer(tasks[place])
        except Exception as error:
            if len(tasks) == 1:
                raise
            raise SummarizerError(
                f"part {place + 1} of {len(tasks)} failed twice, and {len(self._kept)} finished ones are kept for the "
                f"next attempt: {type(error).__name__}: {error}"
            ) from error

    def _keep(self, key: str, answer: str) -> None:
        if len(self._kept) >= _MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = answer

    def _tell(self, level: int, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(SummaryProgress(level, done, total))
