"""A release: its notes, its version, and the files that must not go out."""

from __future__ import annotations

import re
from pathlib import Path

from bench.release.matrix import EXTRAS, VERSIONS, extras_of_all
from bench.release.notes import project_version, release_notes
from bench.release.probe import PROBES
from ruamel.yaml import YAML

import everlong

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
