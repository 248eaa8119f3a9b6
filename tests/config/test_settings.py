from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from everlong.config import CompressionSettings, Settings
from everlong.config.settings import AuxiliaryCompressionSettings


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
