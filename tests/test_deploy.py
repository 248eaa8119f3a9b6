"""The files of deploy/: what they name exists, and the programs that they are for can read them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from ruamel.yaml import YAML

from everlong import config
from everlong.testing import ModelServer
from tests.gateway.served import serving

DEPLOY = Path(__file__).parent.parent / "deploy"
CHART = DEPLOY / "helm"
FILES = [path for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
PATH = f"{os.environ['PATH']}:/usr/sbin"
GIVEN = {"GATEWAY_KEY": "made up", "POSTGRES_PASSWORD": "made up"}
LINTERS = (
    "docker-compose -f compose.yaml config --quiet",
    "helm lint --strict helm",
    "haproxy -c -f haproxy.cfg",
)
"""Programs that check a file of theirs, if they are installed."""


def yaml(text: str) -> list[Any]:
    return list(YAML(typ="safe").load_all(text))


def value_at(values: Any, path: str) -> Any:
    for name in path.split("."):
        values = values[name]
    return values


def rendered(template: str, values: Any) -> str:
    """Fill in a template with the few things of Helm's language that the chart uses."""

    def repeat(found: re.Match[str]) -> str:
        settings = value_at(values, found["of"])
        lines = (
            found["body"].replace("{{ $name }}", name).replace("{{ $value | quote }}", json.dumps(value))
            for name, value in settings.items()
        )
        return "".join(lines)

    text = re.sub(
        r"\n *\{\{- range \$name, \$value := \.Values\.(?P<of>\w+) \}\}(?P<body>.*?)\n *\{\{- end \}\}",
        repeat,
        template,
        flags=re.DOTALL,
    )
    text = text.replace("{{ .Release.Name }}", "team")
    text = re.sub(r"\{\{ \.Values\.([\w.]+)( \| quote)? \}\}", lambda found: str(value_at(values, found[1])), text)
    assert "{{" not in text
    return text


def manifests() -> dict[str, Any]:
    """What the chart becomes, by kind."""
    (values,) = yaml((CHART / "values.yaml").read_text(encoding="utf-8"))
    found = [yaml(rendered(path.read_text(encoding="utf-8"), values)) for path in (CHART / "templates").iterdir()]
    return {one["kind"]: one for documents in found for one in documents}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_that_a_file_names_exists(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\bEVERLONG_\w+__\w+", path.read_text(encoding="utf-8")):
        key = name.removeprefix("EVERLONG_").lower().replace("__", ".")
        example = {"store.url": "postgresql://everlong@a,b,c/everlong", "gateway.port": "1"}
        monkeypatch.setenv(name, example.get(key, '["1"]' if key.endswith("users") else "true"))
    config.load_settings()


def test_the_compose_file_runs_the_image_with_a_journal_that_outlives_it() -> None:
    (compose,) = yaml((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    gateway = compose["services"]["gateway"]
    assert (DEPLOY / gateway["build"]["context"] / gateway["build"]["dockerfile"]).exists()
    assert "journal:/data" in gateway["volumes"]
    assert gateway["deploy"]["replicas"] == 2


def test_the_chart_has_gateways_a_service_and_a_budget_that_belong_together() -> None:
    found = manifests()
    labels = found["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert found["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert found["Service"]["spec"]["selector"] == labels
    assert found["Service"]["spec"]["sessionAffinity"] == "ClientIP"  # a conversation stays where its turns are known
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    (container,) = found["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    assert {one["name"] for one in container["env"]} >= {"EVERLONG_STORE__URL"}
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert {one["mountPath"] for one in container["volumeMounts"]} == {"/data", "/tmp"}  # noqa: S108 - the container's


def test_the_dashboard_shows_numbers_that_a_gateway_has(tmp_path: Path) -> None:
    board = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    asked = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in re.findall(r"everlong_\w+", target["expr"])
    }
    with ModelServer(lambda _: "Yes.") as model, serving(model.url, tmp_path) as hosted:
        told = httpx.get(f"{hosted.address}/metrics").text
    known = {
        f"{name}_bucket" if kind == "histogram" else name
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", told, flags=re.MULTILINE)
    }
    assert asked <= known


def test_programs_that_are_installed_accept_their_files() -> None:
    for command in LINTERS:
        program, *words = command.split()
        found = shutil.which(program, path=PATH)
        if found is not None:
            ran = subprocess.run(
                [found, *words], cwd=DEPLOY, env={**os.environ, **GIVEN}, check=False, capture_output=True, text=True
            )
            assert ran.returncode == 0, f"{command}: {ran.stderr}"
