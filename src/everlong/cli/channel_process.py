"""The process of channels beside a gateway: turns of agents must not hold up the gateway's clients.

It ends with the gateway, also with one that is killed, because its standard input ends then. One that fails is started
again, later each time.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from everlong.cli.chosen_store import store_settings
from everlong.processes import own_command

if TYPE_CHECKING:
    from everlong.config import Settings

__all__ = ["running_channels"]

_FIRST_WAIT = 2.0
_LONGEST_WAIT = 300.0
_END_SECONDS = 15.0
"""Seconds that the process gets to end by itself."""


@contextmanager
def running_channels(settings: Settings, say: Callable[[str], None]) -> Iterator[None]:
    """Run the channels that are enabled for as long as a ``with`` block."""
    if not (settings.channels.telegram.enabled or settings.channels.discord.enabled):
        yield
        return
    process = _ChannelProcess(say)
    process.start()
    try:
        yield
    finally:
        process.end()


class _ChannelProcess:
    """Keeps ``everlong channels run`` running."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._env = _environment()
        self._thread = threading.Thread(target=self._keep_running, name="everlong-channels", daemon=True)

    def start(self) -> None:
        """Start the process, and the thread that looks after it."""
        self._thread.start()

    def end(self) -> None:
        """Let the process end: its turns get some seconds."""
        self._is_over.set()
        with self._lock:
            process = self._process
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _keep_running(self) -> None:
        wait = _FIRST_WAIT
        command = own_command("everlong", "channels", "run", "--until-eof")
        while not self._is_over.is_set():
            with self._lock:
                if self._is_over.is_set():
                    return
                self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env=self._env)  # noqa: S603 - our own
            code = self._process.wait()
            if self._is_over.is_set():
                return
            self._say(f"the channels ended with code {code}; they start again in {wait:g} seconds")
            self._is_over.wait(wait)
            wait = min(_LONGEST_WAIT, 2 * wait)


def _environment() -> dict[str, str]:
    """Return the environment of the process: ours, with the store that this command uses."""
    chosen, env = store_settings(), dict(os.environ)
    if chosen.url is not None:
        env["EVERLONG_STORE__URL"] = chosen.url
    return env
