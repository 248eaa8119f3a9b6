"""The packages that are compared, each in a process of its own, and the size that every result is brought to.

A peer's package is installed from the registry into a virtual environment of its own, once, in a folder of the checkout
that git ignores. Everlong and the recipes without a package run in this environment, behind the same protocol. A peer
that cannot be had is named with the reason, and the others go on.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from bench.gateway.peers import Peer, Unusable, installed
from bench.retention.methods import body_tokens
from everlong.model import Message

__all__ = ["METHODS", "Adapter", "Compaction", "Failed", "Method", "adapters", "method_named"]

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS = 300.0
KEPT_SHARE = 0.5
"""Of the room, for the newest messages; the summary gets what they and the package's own words leave."""
LEAST_SUMMARY = 0.2
"""Of the room: if less is left for the summary, fewer of the newest messages are kept."""
UNUSED = 0.08
"""Of the room: if the model has nothing more to say and so much is left, more of the newest messages are kept."""
_SMALLER = 0.6
_TRIES = 6
_GROWTHS = 2


class Failed(Exception):  # noqa: N818 - one compaction that did not come about, and why
    """A package raised, or its result does not get as small as it must."""


@dataclass(frozen=True)
class Method:
    """One row of the tables.

    Args:
        name: its name there.
        module: the adapter in `bench.public.adapters`.
        package: what pip installs; empty for what is in this environment.
        python: the oldest Python that the package takes.
        fits: whether it takes the size of the result as a parameter; others are asked until the result fits.
        uses_model: whether it asks the stubbed model.
    """

    name: str
    module: str
    package: str = ""
    python: tuple[int, int] = (3, 11)
    fits: bool = True
    uses_model: bool = True

    @property
    def is_ours(self) -> bool:
        """True for Everlong's own rows."""
        return self.module.startswith("everlong_")


_LANGCHAIN = "langchain==1.4.7 langchain-core==1.7.2"
METHODS = (
    Method("Everlong", "everlong_model"),
    Method("Everlong, no model", "everlong_extract", uses_model=False),
    Method("hermes-agent", "hermes_agent", "hermes-agent==0.19.0", fits=False),
    Method("LangChain", "langchain_middleware", _LANGCHAIN, fits=False),
    Method("LangChain, untrimmed", "langchain_untrimmed", _LANGCHAIN, fits=False),
    Method("OpenHands", "openhands_condenser", "openhands-sdk==1.58.0", python=(3, 12), fits=False),
    Method("sliding window", "sliding_window", uses_model=False),
    Method("head + tail", "head_and_tail", uses_model=False),
)


def method_named(name: str) -> Method:
    """Return the method with a name."""
    return next(method for method in METHODS if method.name == name)


@dataclass(frozen=True)
class Compaction:
    """The result of one compaction, and its costs."""

    messages: list[Message]
    cpu: float
    """CPU seconds of the package, without those of the stubbed model."""
    calls: list[tuple[int, int]]
    """Tokens of each prompt to the model, and of its answer."""
    is_over: bool = False
    """True if it is larger than the room, and as small as the package gets."""


@dataclass
class Adapter:
    """A package in a process of its own."""

    method: Method
    process: subprocess.Popen[str]
    versions: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request.

        Raises:
            Failed: the adapter tells an error.
            Unusable: the process ended, or took too long and was ended.
        """
        timer = threading.Timer(ANSWER_SECONDS, self.process.kill)
        timer.start()
        try:
            asked, told = _pipes(self.process)
            asked.write(json.dumps(request) + "\n")
            asked.flush()
            line = told.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            raise Unusable(f"{self.method.name}: its process ended, or took over {ANSWER_SECONDS:g} s")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(str(answer["error"]))
        return answer

    def compact(self, messages: Sequence[Message], **job: Any) -> Compaction:
        """Return a conversation as the package compacts it."""
        answer = self.ask({"op": "compact", "messages": messages, **job})
        return Compaction(answer["messages"], answer["cpu"], [(asked, said) for asked, said in answer["calls"]])

    def fit(self, messages: Sequence[Message], room: int) -> Compaction | None:
        """Return a conversation compacted to a room; None, with the reason in ``failures``, if that cannot be had.

        A result that is too large although hardly any of the newest messages was to be kept is returned as it is.
        """
        try:
            if self.method.fits:
                return self.compact(messages, room=room, keep=int(room * KEPT_SHARE), summary=room)
            return self._fit(messages, room)
        except Failed as error:
            self.failures.append(str(error))
            return None

    def _fit(self, messages: Sequence[Message], room: int) -> Compaction:
        """Ask with fewer of the newest messages until there is room for a summary, with more while some is unused."""
        keep = int(room * KEPT_SHARE)
        best = self._filled(messages, room, keep)
        for _ in range(_TRIES):
            if not best.is_over:
                break
            keep = int(keep * _SMALLER)
            best = self._filled(messages, room, keep)
        for _ in range(_GROWTHS):
            unused = room - body_tokens(best.messages)
            if best.is_over or unused < UNUSED * room:
                break
            keep += unused
            more = self._filled(messages, room, keep)
            if more.is_over or body_tokens(more.messages) <= body_tokens(best.messages):
                break
            best = more
        return best

    def _filled(self, messages: Sequence[Message], room: int, keep: int) -> Compaction:
        """Return a result that keeps so many of the newest tokens, with the longest summary that fits beside them."""
        bare = self.compact(messages, room=room, keep=keep, summary=0)
        left = room - body_tokens(bare.messages)
        if left < LEAST_SUMMARY * room:
            made = self.compact(messages, room=room, keep=keep, summary=int(LEAST_SUMMARY * room))
            return replace(made, is_over=body_tokens(made.messages) > room)
        for _ in range(_TRIES):
            made = self.compact(messages, room=room, keep=keep, summary=left)
            over = body_tokens(made.messages) - room
            if over <= 0:
                return made
            left = int(left - 1.1 * over) - 8
            if left <= 0:
                break
        return bare


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise Unusable("its process was started without pipes")
    return process.stdin, process.stdout


@contextmanager
def adapters(names: Sequence[str]) -> Iterator[tuple[list[Adapter], dict[str, str]]]:
    """Run the adapters of methods until the block ends; yield them, and why the others could not be had."""
    with ExitStack() as stack:
        running: list[Adapter] = []
        missing: dict[str, str] = {}
        for method in METHODS:
            if method.name not in names:
                continue
            try:
                running.append(stack.enter_context(_running(method)))
            except (Unusable, Failed) as error:
                missing[method.name] = str(error)
                print(f"public: {method.name} is left out: {error}", file=sys.stderr)
        yield running, missing


@contextmanager
def _running(method: Method) -> Iterator[Adapter]:
    program = sys.executable
    if method.package:
        peer = Peer(method.package.split()[0].replace("==", " "), method.package, "", lambda *_: [], {}, method.python)
        program = str(installed(peer) / "python")
    with tempfile.TemporaryDirectory(prefix="everlong-bench-", ignore_cleanup_errors=True) as home:
        environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": home,
            "HERMES_HOME": home,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)] if not method.package else [str(ROOT)]),
            "PYTHONUTF8": "1",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENHANDS_SUPPRESS_BANNER": "1",
        }
        process = subprocess.Popen(
            [program, "-m", f"bench.public.adapters.{method.module}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            cwd=home,
            env=environment,
        )
        adapter = Adapter(method, process)
        try:
            adapter.versions = adapter.ask({"op": "hello"})["versions"]
            yield adapter
        finally:
            for pipe in _pipes(process):
                pipe.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
