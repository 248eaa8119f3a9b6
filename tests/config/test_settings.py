from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from everlong.config import CompressionSettings, Settings, catalog
from everlong.config.listing import NAMED, problems_in
from everlong.config.load import RESERVED
from everlong.config.settings import AuxiliaryCompressionSettings
from everlong.config.yaml_file import parse_document


@pytest.mark.spec("3.1")
def test_the_defaults_are_those_of_the_contract() -> None:
    values = Settings().model_dump()
    assert values["compression"] == {
        "enabled": True,
        "threshold": 0.50,
        "target_ratio": 0.20,
        "protect_last_n": 20,
        "protect_first_n": 3,
        "summary_ratio": 0.20,
        "summary_min_tokens": 2_000,
        "summary_max_tokens": 12_000,
        "prune_min_chars": 200,
        "minimum_context_length": 64_000,
        "failure_cooldown_seconds": 600,
    }
    assert values["auxiliary"] == {
        "compression": {"model": None, "provider": "auto", "base_url": None, "models": [], "choose": "first_good"}
    }
    assert values["prompt_caching"] == {"cache_ttl": "5m", "strategy": "auto"}
    assert (values["context"]["engine"], values["memory"]["provider"]) == ("compressor", None)


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    "values",
    [
        {"threshold": 1.01},
        {"threshold": -0.01},
        {"threshold": "often"},
        {"threshold": float("nan")},
        {"threshold": "nan"},
        {"threshold": None},
        {"target_ratio": 0.09},
        {"target_ratio": 0.81},
        {"target_ratio": float("inf")},
        {"protect_last_n": 0},
        {"protect_last_n": 2.5},
        {"protect_last_n": 10**5_000},
        {"protect_first_n": -1},
        {"summary_ratio": 1.1},
        {"summary_min_tokens": 0},
        {"summary_max_tokens": 0},
        {"prune_min_chars": -1},
        {"minimum_context_length": -1},
        {"failure_cooldown_seconds": -1},
        {"enabled": "perhaps"},
        {"treshold": 0.5},
    ],
)
def test_a_value_out_of_range_or_an_unknown_key_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CompressionSettings(**values)


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    "address", ["models.example", "ftp://models.example", "http://", "http://a:b", "http://[", "http://a b", ""]
)
def test_what_is_no_web_address_is_refused(address: str) -> None:
    with pytest.raises(ValidationError):
        AuxiliaryCompressionSettings(base_url=address)


def test_importing_the_settings_loads_no_yaml_and_no_platform_lookup() -> None:
    code = (
        "import sys, everlong.config.settings as s; s.Settings();"
        "print([m for m in ('ruamel.yaml', 'platformdirs', 'pydantic_settings') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = tuple(f"{name}." for name in NAMED)
DOCS = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    sections = {key.partition(".")[0] for key in catalog()}
    groups = {key.rpartition(".")[0] for key in catalog()}
    gone = []
    for page in (one for one in PAGES if one.name != "foreign-engines.md"):  # which names modules of another host
        text = page.read_text(encoding="utf-8")
        told = re.findall(r"`([a-z_]+\.[a-z_.]+)(?:: [\w:.-]+)?`", text) + re.findall(r"config set ([a-z]+\.\S+)", text)
        settings = [key for key in told if key.partition(".")[0] in sections and not key.startswith(NAMES)]
        gone += [f"{page.name}: {key}" for key in settings if key not in catalog() and key not in groups]
    assert gone == []


def test_every_variable_that_is_no_setting_is_documented() -> None:
    assert [variable for variable in RESERVED if f"`{variable}`" not in DOCS] == []


def test_the_examples_are_valid_configurations() -> None:
    examples = [text for page in PAGES for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    files = [one for one in examples if re.match(r"(agent|compression|gateway|memory|providers|context|models):", one)]
    assert len(files) > 5
    for example in files:
        assert problems_in(parse_document(example, "example").values, lambda key: key, "") == []
