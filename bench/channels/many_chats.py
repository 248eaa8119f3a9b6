"""Hundreds of chats at once while calls fail and the process is killed: every message must be answered once.

The bot is `everlong channels run` in a process of its own, with the real library, a store and a real client of a model.
The stand-in of the Bot API and the model server are in this process and outlive it. A share of all calls of the
Bot API fails: too many requests, errors of the server, connections that end before or after the call was done. The
process is killed with SIGKILL at even distances and started again.

Every message has a word of its own, and the model repeats the words that it was sent. So each word must be found in one
message of the bot, in the chat and topic where it was said.

    python -m bench.channels.many_chats --chats 500 --messages 20 --kills 3
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.channels.telegram_stand_in import BOT_NAME, TOKEN, Call, Fault, Shown, TelegramStandIn, stand_in

from everlong.testing import Ask, ModelServer, ScriptedModel

__all__ = ["Outcome", "play"]

_WORD = re.compile(r"w\d{4}x\d{2}")
_FAULTS: tuple[Fault, ...] = ("busy", "error", "before", "after")
_PLACEHOLDER = "…"
_FIRST_PERSON, _FIRST_GROUP = 10_000, -1_000_000
_STANDSTILL_SECONDS = 180.0
_MOST_MEGABYTES = 500.0


@dataclass
class _Talk:
    """What one person says in one place."""

    number: int
    chat: int
    topic: int | None
    person: int
    said: int = 0
    open: set[str] = field(default_factory=set)
    """Words that are not answered yet."""


@dataclass
class Outcome:
    """The figures of a run."""

    messages: int
    answered: int = 0
    twice: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    stored_twice: list[str] = field(default_factory=list)
    """Words that more than one stored reply repeats."""
    placeholders: int = 0
    """Messages without words that a fault or a kill left behind."""
    turns: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    megabytes: float = 0.0
    seconds: float = 0.0
    stop_seconds: float = 0.0
    """How long the bot took to stop at the end."""

    @property
    def is_right(self) -> bool:
        """True if every message was answered once, in its place, and in few enough bytes."""
        wrong = self.twice or self.missing or self.misplaced or self.stored_twice
        return not wrong and self.answered == self.messages and self.megabytes < _MOST_MEGABYTES


def play(chats: int, messages: int, *, kills: int = 3, share: float = 0.05, seed: int = 1) -> Outcome:
    """Run chats at once and return what came of them.

    Args:
        chats: places in which people talk: private chats, groups, and topics of forums.
        messages: how many messages each of them gets.
        kills: how often the process is killed.
        share: the share of calls that fail.
        seed: of everything random.
    """
    rng = random.Random(seed)
    outcome = Outcome(chats * messages)

    def fail(call: Call) -> Fault | None:
        if rng.random() >= share:
            return None
        fault = rng.choice(_FAULTS)
        outcome.faults[f"{fault} {call.method}"] += 1
        return fault

    def repeat(ask: Ask) -> str:
        outcome.turns += 1
        return f"Heard: {' '.join(_WORD.findall(ask.last_user))}"

    model = ModelServer(ScriptedModel(repeat), window=1_000_000)
    with tempfile.TemporaryDirectory(prefix="everlong-chats-") as folder, stand_in(fail) as api, model as server:
        api.keeps_calls = False
        talks = _places(api, chats)
        _configure(Path(folder), api, server, talks)
        _drive(api, Path(folder), _Crowd(api, talks, messages), outcome, kills)
        outcome.calls = sum(api.counts.values())
        _audit(api, talks, Path(folder), outcome)
    return outcome


def _drive(api: TelegramStandIn, home: Path, crowd: _Crowd, outcome: Outcome, kills: int) -> None:
    """Let everybody talk until everything is answered, or nothing moves any more; kill the bot meanwhile."""
    started = time.monotonic()
    process = _start(home)
    try:
        progress, moved = 0, started
        while progress < outcome.messages and time.monotonic() - moved < _STANDSTILL_SECONDS:
            crowd.say_more()
            time.sleep(0.02)
            outcome.megabytes = max(outcome.megabytes, _peak_megabytes(process.pid))
            if process.poll() is not None:
                process.communicate()
                raise RuntimeError(f"the bot left with {process.returncode}; the end of its log: {_log_of(home)}")
            if len(crowd.answered) > progress:
                progress, moved = len(crowd.answered), time.monotonic()
            if outcome.kills < kills and progress >= outcome.messages * (outcome.kills + 1) / (kills + 1):
                process.kill()
                process.communicate()
                outcome.kills += 1
                process = _start(home)
        outcome.seconds = time.monotonic() - started
    finally:
        api.faults = lambda _: None
        outcome.stop_seconds = _stop(process)


def _places(api: TelegramStandIn, chats: int) -> list[_Talk]:
    """Return talks: three fifths in private chats, a fifth in groups, a fifth in topics, two to a forum."""
    talks: list[_Talk] = []
    for number in range(chats):
        person = _FIRST_PERSON + number
        kind = number % 5
        if kind < 3:
            api.private_chat(person)
            talks.append(_Talk(number, person, None, person))
        elif kind == 3:
            talks.append(_Talk(number, api.group(_FIRST_GROUP - number).id, None, person))
        else:
            pair = number // 10
            forum = api.group(_FIRST_GROUP - 500_000 - pair, topics=(7, 8))
            talks.append(_Talk(number, forum.id, 7 + (number // 5) % 2, person))
    return talks


class _Crowd:
    """Everybody who talks. Who was answered says one to three more things in a row."""

    def __init__(self, api: TelegramStandIn, talks: list[_Talk], messages: int) -> None:
        self._api, self._talks, self._messages = api, talks, messages
        self._rng = random.Random(messages)
        self._lock = threading.Lock()
        self.answered: set[str] = set()
        api.on_words = self._note

    def _note(self, shown: Shown) -> None:
        words = _WORD.findall(shown.text)
        if words and not shown.text.endswith(_PLACEHOLDER):
            with self._lock:
                self.answered.update(words)

    def say_more(self) -> None:
        """Let those talk who wait for nothing."""
        for talk in self._talks:
            with self._lock:
                talk.open = {word for word in talk.open if word not in self.answered}
            if talk.open or talk.said >= self._messages:
                continue
            for _ in range(min(self._rng.choice((1, 1, 2, 3)), self._messages - talk.said)):
                word = f"w{talk.number:04d}x{talk.said:02d}"
                text = word if talk.chat == talk.person else f"@{BOT_NAME} {word}"
                self._api.say(talk.chat, talk.person, text, topic=talk.topic)
                talk.said += 1
                talk.open.add(word)


# -- the bot -----------------------------------------------------------------------------------------------------------
def _configure(home: Path, api: TelegramStandIn, server: ModelServer, talks: list[_Talk]) -> None:
    settings = {
        "agent": {"model": "bench:a-model"},
        "providers": {"bench": {"base_url": server.openai_url, "key_variable": "BENCH_API_KEY"}},
        "models": {"bench:a-model": {"context_length": 200_000}},
        "memory": {"enabled": False},
        "channels": {
            "telegram": {
                "enabled": True,
                "api_base": api.address,
                "users": [str(talk.person) for talk in talks],
            },
        },
    }
    (home / "config.yaml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML


def _start(home: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "EVERLONG_HOME": str(home), "TELEGRAM_BOT_TOKEN": TOKEN, "BENCH_API_KEY": "made-up"}
    with (home / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "everlong", "channels", "run", "--until-eof"],
            env=env,
            stdin=subprocess.PIPE,  # it ends with this process, whatever happens
            stdout=log,
            stderr=log,
            cwd=home,
        )


def _stop(process: subprocess.Popen[bytes]) -> float:
    """Stop the bot as a service manager does; return how long that took."""
    started = time.monotonic()
    process.send_signal(signal.SIGTERM)
    try:
        process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return time.monotonic() - started


def _log_of(home: Path) -> str:
    return (home / "log.txt").read_text(encoding="utf-8", errors="replace")[-2000:]


def _peak_megabytes(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1_024 for line in lines if line.startswith("VmHWM")), 0.0)


# -- looking -----------------------------------------------------------------------------------------------------------
def _audit(api: TelegramStandIn, talks: list[_Talk], home: Path, outcome: Outcome) -> None:
    """Look for every word in what people see and in what is stored."""
    from everlong.model import text_of  # noqa: PLC0415 - only at the end
    from everlong.store import Store  # noqa: PLC0415 - as above

    where = {f"w{talk.number:04d}x{said:02d}": talk for talk in talks for said in range(talk.said)}
    found: Counter[str] = Counter()
    for shown in api.all_shown():
        words = _WORD.findall(shown.text)
        outcome.placeholders += not words
        for word in words:
            found[word] += 1
            talk = where.get(word)
            if talk is None or (talk.chat, talk.topic) != (shown.chat, shown.topic):
                outcome.misplaced.append(word)
    outcome.answered = sum(word in found for word in where)
    outcome.missing = [word for word in where if word not in found]
    outcome.twice = [word for word, count in found.items() if count > 1]
    stored: Counter[str] = Counter()
    with Store.open(home / "store.db") as store:
        for one in store.conversations.newest(10 * len(talks)):
            for line in store.conversations.lines(one.id):
                if line.entry.message["role"] == "assistant":
                    stored.update(set(_WORD.findall(text_of(line.entry.message))))
    outcome.stored_twice = [word for word, count in stored.items() if count > 1]
    outcome.missing += [word for word in where if word not in stored and word not in outcome.missing]


def main() -> None:
    """Run the bench from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--chats", type=int, default=500)
    parser.add_argument("--messages", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--faults", type=float, default=0.05, help="the share of calls that fail")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"{given.chats} chats at once, {given.messages} messages each, {100 * given.faults:g} % faults", flush=True)
    outcome = play(given.chats, given.messages, kills=given.kills, share=given.faults, seed=given.seed)
    faults = sum(outcome.faults.values())
    print(
        f"{outcome.answered:,} of {outcome.messages:,} messages answered in {outcome.seconds:.0f} s, "
        f"{outcome.turns:,} calls of the model\n"
        f"twice: {len(outcome.twice)}; missing: {len(outcome.missing)}; in a wrong place: {len(outcome.misplaced)}; "
        f"stored twice: {len(outcome.stored_twice)}\n"
        f"{outcome.calls:,} calls of the Bot API, {faults:,} faults, {outcome.kills} kills; "
        f"messages without words left behind: {outcome.placeholders}\n"
        f"peak memory of the bot: {outcome.megabytes:.0f} MB (bar: {_MOST_MEGABYTES:.0f}); "
        f"it stopped in {outcome.stop_seconds:.1f} s"
    )
    for name in ("twice", "missing", "misplaced", "stored_twice"):
        if listed := getattr(outcome, name):
            print(f"{name}: {', '.join(listed[:20])}")
    sys.exit(0 if outcome.is_right else 1)


if __name__ == "__main__":
    main()
