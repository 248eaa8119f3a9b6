"""A person at a terminal: a shell in tmux, in which the real program is started, typed at and looked at.

Knows tmux and nothing of the chat. Waits for what is to be seen, never for a time; there is a limit only so that a test
comes to an end.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.waiting import PATIENCE

_LOOK = 0.05
_TMUX = shutil.which("tmux") or "tmux"
_PROGRAM = "from everlong.cli.start import main; main()"


class Terminal:
    """A shell on a screen of its own.

    Args:
        folder: where the shell is, and where its notes go.
        columns: the screen's width.
        rows: the screen's height.
        env: what the shell has in its environment.
    """

    def __init__(self, folder: Path, env: Mapping[str, str], columns: int = 100, rows: int = 40) -> None:
        self.folder = folder
        self._notes = folder / ".terminal"
        self._notes.mkdir(parents=True, exist_ok=True)
        self._server = f"everlong-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        shell = ["env", "-u", "TMUX", "PS1=[$?]$ ", "HISTFILE=", "bash", "--norc", "--noprofile", "-i"]
        size = ["-x", str(columns), "-y", str(rows)]
        self._tmux("-f", os.devnull, "new-session", "-d", *size, "-c", str(folder), shlex.join(shell), env=env)
        # A screen that is erased is gone, as in other terminals; tmux would keep it among what was scrolled away.
        self._tmux("set-option", "-gwq", "scroll-on-clear", "off")
        self.wait("[0]$")

    # -- doing ---------------------------------------------------------------------------------------------------------

    def start(self, *arguments: str, first: str = "", env: Mapping[str, str] | None = None) -> None:
        """Start the program; ``first`` is code that its process runs before, to break something on purpose."""
        line = shlex.join([sys.executable, "-c", "\n".join(filter(None, [first, _PROGRAM])), *arguments])
        sets = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (env or {}).items())
        script = self._notes / "start.sh"
        script.write_text(f"{sets}clear\necho $$ > {shlex.quote(str(self._pid_file))}\nexec {line}\n", encoding="utf-8")
        self._pid_file.unlink(missing_ok=True)
        self.enter(f"sh {shlex.quote(str(script))}")
        self.until(self._pid_file.exists, "the program's start")  # until then the shell's prompt may be the last line

    def type(self, text: str) -> None:
        """Type a text, letter by letter."""
        self._tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Press keys by the names that tmux has for them: ``Enter``, ``C-c``, ``M-Enter``, ``Up`` …"""
        self._tmux("send-keys", *keys)

    def enter(self, line: str) -> None:
        """Type a line and press Enter."""
        self.type(line)
        self.press("Enter")

    def paste(self, text: str) -> None:
        """Paste a text as a terminal does that says where a paste begins and ends."""
        path = self._notes / "paste"
        path.write_text(text, encoding="utf-8")
        self._tmux("load-buffer", str(path))
        self._tmux("paste-buffer", "-p", "-r")

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def kill(self) -> None:
        """Kill the program, as the system does when memory runs out."""
        os.kill(self.pid, signal.SIGKILL)

    # -- looking -------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process of the program."""
        return int(self._pid_file.read_text())

    def screen(self) -> str:
        """What is to be seen now, without the empty lines at the end."""
        return self._tmux("capture-pane", "-p").rstrip()

    def everything(self) -> str:
        """What is to be seen now and what was scrolled away, with lines that the terminal wrapped made whole."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-").rstrip()

    def wait(self, *texts: str) -> str:
        """Wait until all these texts are on the screen, or were; what is to be seen then."""

        def is_there() -> bool:
            seen = self.everything()
            words = " ".join(seen.split())  # a notice breaks between words
            return all(text in seen or text in words for text in texts)

        self.until(is_there, f"{', '.join(map(repr, texts))} on the screen")
        return self.everything()

    def wait_line(self, pattern: str) -> str:
        """Wait until the last line of the screen matches an expression; the line."""
        self.until(lambda: re.search(pattern, self.last_line) is not None, f"{pattern!r} in the last line")
        return self.last_line

    @property
    def last_line(self) -> str:
        """The lowest line with something in it."""
        return self.screen().rpartition("\n")[2]

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE
        while not is_so():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}:\n{self.everything()}")
            time.sleep(_LOOK)

    def wait_exit(self) -> int:
        """Wait until the shell asks for the next command; the code that the program left with."""
        self.until(lambda: self.has_left, "the shell's prompt")
        return int(self._asks()[-1])

    @property
    def has_left(self) -> bool:
        """Whether the shell asks for the next command."""
        return bool(self._asks())

    def _asks(self) -> list[str]:
        """The codes in prompts of the shell that wait for a command; a program that was killed leaves lines below."""
        return re.findall(r"^\[(\d+)\]\$\s*(?:[\d;]+R)?$", self.screen(), re.MULTILINE)

    def shell(self, line: str) -> str:
        """Run a command in the shell; what it prints."""
        path = self._notes / "said"
        path.unlink(missing_ok=True)
        self.enter(f"{line} > {shlex.quote(str(path))}.part; mv {shlex.quote(str(path))}.part {shlex.quote(str(path))}")
        self.until(path.exists, f"the end of {line!r}")
        return path.read_text(encoding="utf-8")

    # -- tmux ----------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the shell and all that runs in it."""
        subprocess.run([_TMUX, "-L", self._server, "kill-server"], check=False, capture_output=True)

    @property
    def _pid_file(self) -> Path:
        return self._notes / "pid"

    def _tmux(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            [_TMUX, "-L", self._server, *arguments], env=env, capture_output=True, encoding="utf-8", check=False
        )
        if done.returncode:
            raise RuntimeError(f"tmux {' '.join(arguments[:3])}: {done.stderr.strip()}")
        return done.stdout
