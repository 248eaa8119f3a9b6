"""Calls that cannot stop their caller: each in a thread of its provider's own, with a time limit, failures as warnings.

A provider is foreign code that may talk to a server: it can raise, hang, or answer with something else than promised.
Its calls run one after another in one daemon thread, so that it may keep what is bound to a thread, such as a SQLite
connection. One that does not answer in time is not asked again in this session, and not in the next either as long as
that call has not come back; so there is never more than one thread. Knows nothing of what the calls are for.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from everlong.context.summary.redaction import redacted
from everlong.context.text import clip, one_line
from everlong.memory.provider import MemoryProvider

T = TypeVar("T")
Warn = Callable[[str], None]


class TookTooLong(Exception):  # noqa: N818 - reads as the fact that it states; never leaves this package
    """A call did not return within its time."""


def _finished(done: threading.Event, seconds: float) -> bool:
    """Whether something is done within its time; tests put another measure of time in its place."""
    return done.wait(seconds)


class _ProviderCall(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.done = threading.Event()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - also sys.exit() in a provider must only end the call
            self.error = error
        finally:
            self.done.set()


class MemoryWorker:
    """Runs work in one daemon thread, one piece at a time, and waits for each only so long."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.Lock()
        self._jobs: queue.SimpleQueue[_ProviderCall[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._late: _ProviderCall[Any] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a call that took too long is still running."""
        return self._late is not None and not self._late.done.is_set()

    def run(self, work: Callable[[], T], seconds: float) -> T:
        """What ``work`` returns; raises what it raises, and `TookTooLong`."""
        with self._turn:
            if self.is_stuck:
                raise TookTooLong
            if self._thread is None:
                self._thread = threading.Thread(target=_work_off, args=(self._jobs,), name=self._name, daemon=True)
                self._thread.start()
                # Whoever forgets to close a worker must not leave a thread behind for each session.
                weakref.finalize(self, self._jobs.put, None).atexit = False
            job = _ProviderCall(work)
            self._jobs.put(job)
            if not _finished(job.done, seconds):
                self._late = job
                raise TookTooLong
        if isinstance(job.error, Exception):
            raise job.error
        if job.error is not None:
            raise RuntimeError(f"{type(job.error).__name__} was raised") from job.error
        return job.result  # type: ignore[return-value]  # there was no error, so there is a result

    def close(self) -> None:
        """Let the thread end when its work is done; a later call starts another one."""
        with self._turn:
            if self._thread is not None and not self.is_stuck:
                self._jobs.put(None)
                self._thread = None


def _work_off(jobs: queue.SimpleQueue[_ProviderCall[Any] | None]) -> None:
    while (job := jobs.get()) is not None:
        job.run()
        del job  # or the last call's messages would be kept until the next


class CallOutcome(NamedTuple):
    """What a call came to: a value, or what went wrong."""

    value: Any = None
    problem: str = ""


class Contained:
    """One provider, asked in a way that cannot raise or hang."""

    def __init__(self, provider: MemoryProvider, seconds: float, warn: Warn) -> None:
        self.provider = provider
        self._seconds = seconds
        self._warn = warn
        self._warned: set[str] = set()
        self._out_because = ""
        self._worker = MemoryWorker(f"everlong-memory-{type(provider).__name__}")
        self.label = repr(type(provider).__name__)
        self.label = repr(self._name())

    def overrides(self, method: str) -> bool:
        """Whether the provider does anything of its own in a method."""
        own = getattr(type(self.provider), method, None)
        return own is not getattr(MemoryProvider, method) or method in getattr(self.provider, "__dict__", {})

    @property
    def is_asked(self) -> bool:
        """Whether the provider takes part in this session."""
        return not self._out_because

    def begin_session(self) -> None:
        """A new session: what happened in the last one is forgotten, unless the provider still hangs in it."""
        self._warned.clear()
        self._out_because = ""
        if self._worker.is_stuck:
            self.leave_out("is still busy with a call of the last session")

    def leave_out(self, reason: str) -> None:
        """Do not ask the provider again in this session, and say why."""
        self._out_because = f"memory provider {self.label} {reason}; it is left alone until the next session"
        self.complain(self._out_because)

    def complain(self, problem: str) -> None:
        """Warn about something, once in a session."""
        if problem not in self._warned:
            self._warned.add(problem)
            self._warn(problem)

    def call(self, method: str, *args: Any, **facts: Any) -> CallOutcome:
        """Call a method of the provider; what goes wrong is warned about and told in the outcome."""
        if not self.is_asked:
            return CallOutcome(problem=self._out_because)
        return self._call(method, args, facts)

    def text(self, method: str, *args: Any) -> str:
        """What a method that gives a text gives; empty where anything went wrong."""
        outcome = self.call(method, *args)
        if outcome.problem or outcome.value is None:
            return ""
        if not isinstance(outcome.value, str):
            self.complain(
                f"memory provider {self.label} gave {type(outcome.value).__name__} instead of a text from {method}; "
                "that is ignored"
            )
            return ""
        return outcome.value

    def close(self) -> None:
        """Shut the provider down and let its thread end."""
        if not self._worker.is_stuck:
            self._call("shutdown", (), {})
        self._worker.close()

    def _call(self, method: str, args: tuple[Any, ...], facts: dict[str, Any]) -> CallOutcome:
        if not self.overrides(method):
            return CallOutcome()
        try:
            return CallOutcome(self._worker.run(lambda: getattr(self.provider, method)(*args, **facts), self._seconds))
        except TookTooLong:
            self.leave_out(f"did not answer {method} within {self._seconds:g} seconds")
            return CallOutcome(problem=self._out_because)
        except Exception as error:  # noqa: BLE001 - foreign code; warned about here
            problem = f"memory provider {self.label} failed in {method}: {described(error)}"
            self.complain(problem)
            return CallOutcome(problem=problem)

    def _name(self) -> str:
        try:
            name: object = self._worker.run(lambda: self.provider.name, self._seconds)
        except TookTooLong:
            self.leave_out(f"did not tell its name within {self._seconds:g} seconds")
        except Exception as error:  # noqa: BLE001 - as above
            self.complain(f"memory provider {self.label} failed to tell its name: {described(error)}")
        else:
            if isinstance(name, str) and name.strip():
                return clip(one_line(name), 60)
        return type(self.provider).__name__


def described(error: BaseException) -> str:
    """An error in one line, without the secrets that it may quote."""
    try:
        words = f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an error of foreign code may fail even to say what it is
        words = type(error).__name__
    return clip(one_line(redacted(words)), 300)
