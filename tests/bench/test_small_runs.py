"""The benchmarks in small, and the recordings and tables that they made for the documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from bench.agent import accounts
from bench.caching import placement
from bench.caching.sessions import PROFILES
from bench.public import page
from bench.record_chat.cast import Cast, plain_text
from bench.record_chat.still import stills
from bench.record_chat.story import STEPS
from bench.release.matrix import EXTRAS, VERSIONS, extras_of_all
from bench.release.notes import project_version, release_notes
from bench.release.probe import PROBES
from bench.retention.data import Conversation
from bench.retention.rules import BARS, load_chats, measure
from bench.retention.trials import Work, try_all
from ruamel.yaml import YAML

import everlong
from everlong.agent import CompactionFinished
from everlong.agent.events import CompactionReason
from everlong.cli.chat.command import command_registry
from everlong.cli.run import compaction_line
from everlong.model import Message
from tests.context.builders import user

FOLDER = Path(__file__).parent.parent.parent / "docs" / "recording"
CAST = Cast.load((FOLDER / "chat.cast").read_text(encoding="utf-8"))
SHOWN = plain_text(CAST.output)
REASONS: tuple[CompactionReason, ...] = ("preflight", "preflight", "manual")


def test_the_recording_has_three_compactions_in_the_words_of_this_version() -> None:
    lines = re.findall(r"⟲ (compacted .*)", SHOWN)
    for line, reason in zip(lines, REASONS, strict=True):
        before, after, there, left = re.findall(r"([\d,]+) → ([\d,]+) tokens, (\d+) → (\d+) messages", line)[0]
        event = CompactionFinished(
            reason=reason,
            outcome="compacted",
            session_id="s",
            tokens_before=int(before.replace(",", "")),
            tokens_after=int(after.replace(",", "")),
            messages_before=int(there),
            messages_after=int(left),
            seconds=0.1,
            quality=None,
        )
        assert line.startswith(f"{compaction_line(event)}; task kept · ")
        assert event.tokens_after < event.tokens_before


def test_everything_that_is_typed_is_in_it_and_every_command_exists() -> None:
    commands = [step.keys.split()[0].removeprefix("/") for step in STEPS if step.keys.startswith("/")]
    assert {"context", "history", "compress", "quit"} <= {*commands}
    assert {*commands} <= {*command_registry().commands}
    for step in STEPS:
        assert step.keys in SHOWN, f"{step.keys!r} is not in the recording; make it anew: python -m bench.record_chat"


def test_the_pictures_are_screens_of_the_recording() -> None:
    drawn = (FOLDER / "chat.svg").read_text(encoding="utf-8")
    assert {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.svg")} == stills(CAST)
    words = " ".join("".join(ElementTree.fromstring(drawn).itertext()).split())  # noqa: S314 - our own file
    assert "/history" in words
    assert "3 so far in this chat" in words


def test_the_program_tells_the_servers_own_bill_to_the_token() -> None:
    found = accounts.play(45, window=14_000, cache_ttl="1h")
    assert found.compactions >= 2
    assert found.failures > 0
    total = found.told["total"]
    assert found.differences == {}
    assert min(found.billed.values()) > 0
    assert Decimal(total["cost"]) == found.dollars
    assert total["calls"] == found.requests
    assert found.notices == []
    kinds = total["kinds"]
    assert {name for name, kind in kinds.items() if kind["calls"]} == {"conversation", "summary", "memory"}
    assert sum(Decimal(kind["cost"]) for kind in kinds.values()) == found.dollars
    compaction = total["compaction"]
    assert compaction["count"] >= found.compactions
    assert compaction["summaries_cost"] == kinds["summary"]["cost"]
    assert compaction["unsent_tokens"] > compaction["rewritten_tokens"] > 0
    assert Decimal(total["uncached_cost"]) > Decimal(total["cost"])


@pytest.mark.parametrize("width", [12, 60])
def test_a_fan_out_loses_the_plain_strategy_its_prefix_and_the_ledger_nothing(width: int) -> None:
    assert placement.fan_out_share(width, placement.STRATEGIES["ledger"], per_block=True) >= 0.95
    assert placement.fan_out_share(width, placement.STRATEGIES["system_and_3"], per_block=True) < 0.30


@pytest.mark.parametrize("profile", list(PROFILES))
def test_with_forks_and_rewinds_the_ledger_is_never_behind(profile: str) -> None:
    shape = replace(PROFILES[profile], calls=60, forks=0.05, rewinds=0.1)
    for seed in (1, 2):
        plain = placement.play(shape, seed, placement.STRATEGIES["system_and_3"])
        ledger = placement.play(shape, seed, placement.STRATEGIES["ledger"])
        assert ledger.cost <= plain.cost * 1.0001


ENCLOSED = "import os, sys, time; print(os.environ['EVERLONG_CLUSTER_FOLDER'], flush=True); time.sleep(600)"
PROGRAM = "import sys; from bench.cluster.__main__ import enclose; sys.exit(enclose(sys.argv[1:]))"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="namespaces need root and util-linux")
def test_a_cluster_that_is_told_to_stop_takes_its_processes_and_its_folder_along() -> None:
    command = [sys.executable, "-c", PROGRAM, sys.executable, "-c", ENCLOSED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        folder = Path(started.stdout.readline().strip())
        assert folder.is_dir()
        started.terminate()
        assert started.stdout.read() == ""  # ends when nobody is left who could write there
    assert started.returncode == 143
    assert not folder.exists()


@pytest.fixture(name="results", scope="module")
def stored_results() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.RESULTS.read_text("utf-8"))
    return found


def test_the_page_and_its_pictures_are_those_of_the_stored_results(results: dict[str, Any]) -> None:
    assert page.PAGE.read_text("utf-8") == page.render(results), "run: python -m bench.public --page"
    for name, picture in page.pictures(results).items():
        assert (page.PICTURES / name).read_text("utf-8") == picture, (
            f"{name} is stale; run: python -m bench.public --page"
        )


ROOT = Path(__file__).parent.parent.parent
CHANGELOG = """\
# Changelog

## 0.2.0 (2026-03-01)

- Telegram.

## 0.1.0 (unreleased)

### Compaction

- The first version.
"""


def test_the_changelog_has_notes_for_the_version_of_the_code() -> None:
    assert project_version(ROOT) == everlong.__version__
    assert len(release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), everlong.__version__)) > 1_000


def test_the_version_stands_in_one_place() -> None:
    written = re.compile(rf"""version["']?\s*[:=]\s*["']?{re.escape(everlong.__version__)}\b""")
    for name in ("pyproject.toml", "mkdocs.yml", "deploy/Containerfile", ".github/workflows/release.yml"):
        assert not written.search((ROOT / name).read_text(encoding="utf-8")), name


def test_every_extra_has_a_probe() -> None:
    assert {*PROBES} == {"none", *EXTRAS}


def test_the_extra_all_is_probed_for_every_part_of_the_program_and_for_no_framework() -> None:
    frameworks = {"langchain", "langgraph"}
    assert {*extras_of_all()} == {*EXTRAS} - frameworks - {"testing"}


def test_the_workflow_publishes_only_after_the_check_on_every_python() -> None:
    jobs = YAML(typ="safe").load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert (jobs["check"]["needs"], jobs["publish"]["needs"]) == ("files", "check")
    assert tuple(jobs["check"]["strategy"]["matrix"]["python"]) == VERSIONS
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    called = re.findall(r"make ([\w-]+)", "\n".join(steps))
    assert {"release", "release-check"} <= set(called) <= targets


def assistant(text: str, *calls: tuple[str, dict[str, Any]]) -> Message:
    made = [
        {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for place, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def tool(text: str, place: int = 0) -> Message:
    return {"role": "tool", "tool_call_id": f"c{place}", "content": text}


def long_conversation() -> list[Message]:
    made: list[Message] = [{"role": "system", "content": "Be brief."}, user("Find the broken berth in port_list.")]
    for step in range(20):
        made.append(assistant(f"step {step}", ("bash", {"command": f"show berth_{100 + step}"})))
        made.append(tool(f"berth_{100 + step} holds cargo number {7000 + step} " + "and more plain words " * 20))
    made.append(assistant("The broken ones are berth_101 with cargo number 7001, and berth_117."))
    return made


@pytest.mark.parametrize("chain", ["", "history", "context"])
def test_a_conversation_goes_through_every_cut_share_and_method(chain: str) -> None:
    conversation = Conversation("made", "coding", long_conversation())
    trials = try_all(Work(conversation, frozenset(), (0.4,), ("extractive", "keep-last"), chain, with_misses=True))
    assert len(trials) == 2 * (1 if chain else 4)
    for trial in trials:
        assert trial.reached
        assert trial.tokens <= 0.4 * trial.tokens_before
        assert trial.recall.of == trial.facts
        assert len([miss for miss in trial.misses if not miss.unbound]) == trial.recall.of - trial.recall.kept


def test_a_chat_that_was_written_without_a_look_at_the_program_keeps_what_its_user_said() -> None:
    found = measure(load_chats()[-1:])
    kept = {
        kind: [point.is_kept for point in found.points if (point.kind, point.method) == (kind, "everlong")]
        for kind in BARS
    }
    assert {kind: sum(points) / len(points) >= BARS[kind] - 0.05 for kind, points in kept.items()} == dict.fromkeys(
        BARS, True
    )
    assert found.over_budget == 0
