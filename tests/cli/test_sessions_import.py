"""``everlong sessions import``: conversations from elsewhere, once each."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from everlong import Message, Store
from everlong.store.upkeep.maintenance import stats
from tests.cli.conftest import Run
from tests.context.builders import assistant, system, user
from tests.waiting import PATIENCE, until

_RUN = (
    # Whoever starts the tests in the background has their processes ignore Ctrl-C; here it is what is tested.
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from everlong.cli.main import main; main()"
)


def write_lines(path: Path, values: list[Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return str(path)


def talk(*words: str) -> list[Message]:
    return [user(text) if place % 2 == 0 else assistant(text) for place, text in enumerate(words)]


def test_conversations_become_sessions_with_their_names_models_and_prompts(sessions: Run, tmp_path: Path) -> None:
    bodies = [
        {"id": "trip-1", "model": "gpt-4o", "messages": [system("Be kind."), *talk("To Lyon, please.", "Gladly.")]},
        {"id": "trip-2", "messages": talk("To Bern, please.", "Gladly.")},
    ]
    ran = sessions("import", write_lines(tmp_path / "trips.jsonl", bodies), "--json")
    assert (ran.code, ran.json["new"], ran.json["messages"]) == (0, 2, 4)
    shown = sessions("show", "trip-1", "--json").json["session"]
    assert (shown["model"], shown["system_prompt"], shown["source"]) == ("gpt-4o", "Be kind.", "import")
    assert (shown["end_reason"], shown["origin"]["file"]) == ("imported", str(tmp_path / "trips.jsonl"))
    assert sessions("search", "Bern", "--json").json["hits"][0]["title"] == "trip-2"


def logged(session: str, *words: str) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [{"type": "summary", "summary": "A talk", "leafUuid": "x"}]
    for place, text in enumerate(words):
        kind = "assistant" if place % 2 else "user"
        message = {"role": kind, "content": [{"type": "text", "text": text}]}
        if place % 2:
            message |= {"id": f"m{place}", "model": "claude-x"}
        lines.append(
            {
                "type": kind,
                "uuid": f"{session}-{place}",
                "parentUuid": f"{session}-{place - 1}" if place else None,
                "sessionId": session,
                "isSidechain": False,
                "timestamp": f"2025-05-01T10:00:{place:02}.000Z",
                "message": message,
            }
        )
    return lines


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    folder = tmp_path / "projects"
    write_lines(folder / "-home-ada-boat" / "s1.jsonl", logged("s1", "Paint the boat.", "Painted.", "Thanks."))
    write_lines(folder / "-home-ada-shed" / "s2.jsonl", logged("s2", "Sweep the shed.", "Swept."))
    return folder


def test_a_whole_projects_folder_is_imported_with_the_times_of_its_logs(sessions: Run, projects: Path) -> None:
    ran = sessions("import", str(projects), "--json")
    assert (ran.code, ran.json["files"], ran.json["new"], ran.json["messages"]) == (0, 2, 2, 5)
    hit = sessions("search", "painted", "--json").json["hits"][0]
    assert hit["at"] == datetime.fromisoformat("2025-05-01T10:00:01+00:00").timestamp()
    listed = sessions("list", "--source", "claude-code", "--json").json
    assert {one["origin"]["id"] for one in listed} == {"s1", "s2"}
    assert {one["model"] for one in listed} == {"claude-x"}
    again = sessions("import", str(projects), "--json").json
    assert (again["known"], again["messages"]) == (2, 0)


def test_an_export_cannot_choose_an_id_that_is_a_path_or_a_command(sessions: Run, tmp_path: Path) -> None:
    body = {
        "kind": "everlong-conversation/1",
        "id": "../../x\x1b[2J",
        "title": "A\x1b[31mB",
        "messages": talk("hi", "ho"),
    }
    sessions("import", write_lines(tmp_path / "evil.jsonl", [body]))
    ran = sessions("export", "--all", "--format", "markdown", "-o", str(tmp_path / "out") + "/")
    assert ran.code == 0
    (file,) = (tmp_path / "out").iterdir()
    assert file.name.startswith("session_20")
    assert "\x1b" not in sessions("list").out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a child alone")
def test_ctrl_c_leaves_a_sound_store_and_the_next_run_goes_on(sessions: Run, store_file: Path, tmp_path: Path) -> None:
    bodies = [{"id": f"c{n}", "messages": talk(*(f"word {n} {k} " * 20 for k in range(40)))} for n in range(150)]
    first = write_lines(tmp_path / "first.jsonl", bodies[:1])  # is there before the others are begun
    paths = [first, write_lines(tmp_path / "many.jsonl", bodies[1:])]
    command = [sys.executable, "-c", _RUN, "sessions", "--store", str(store_file), "import", *paths]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: process.poll() is not None or _has_sessions(store_file))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert "run it again to go on" in errors
    assert "Traceback" not in errors
    assert sessions("verify").code == 0
    again = sessions("import", *paths, "--json").json
    assert (again["new"] + again["known"], again["known"] > 0) == (150, True)
    with Store.open(store_file) as store:
        assert stats(store)["messages"] == 150 * 40
    assert sessions("verify").code == 0


def _has_sessions(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return False
    with Store.open(path) as store:
        return bool(store.sessions.newest(limit=1))
