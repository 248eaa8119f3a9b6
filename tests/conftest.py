"""What all tests share: nobody's own configuration, and the check that tests and contract name each other."""

from __future__ import annotations

import gc
import os
import signal
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from bench.store.server import binaries, postgres
from hypothesis import settings

from everlong.store import Store
from tests.api_rules import install_rules
from tests.examples import IS_THOROUGH, examples

install_rules()

# Loading packages and collecting thousands of tests makes no garbage: looking for it took a quarter of that time.
gc.disable()

# Tests in the background, as with nohup, ignore signals, and so would each program that they start: it inherits that.
# It does not inherit a handler.
for _name in ("SIGHUP", "SIGINT"):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) is signal.SIG_IGN:
        signal.signal(getattr(signal, _name), lambda *_: None)

# `make test` asks the same questions every time; soak runs go on looking for new ones. How long something takes is for
# bench/ to say.
settings.register_profile("tests", derandomize=not IS_THOROUGH, deadline=None, max_examples=examples())
settings.load_profile("tests")

_APART = [Path(__file__).resolve().parent / name for name in ("browser", "built_site", "container", "frameworks")]
"""Folders whose tests need packages that `make test` does not install, or install them."""
_LONG = ("/local_model/", "/clients/", "/test_wheel.py", "/test_examples.py", "/test_tutorial.py")
"""Tests that take tens of seconds. They begin first, so that no worker is left alone with one at the end."""
_NOBODY = Path(__file__).with_name("nobody.pem")
"""A certificate whose key was thrown away. Nothing here speaks TLS to others, but every client of a model API and every
program reads the certificates of the system: a hundred and more, which takes 50 milliseconds each time."""
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")

PARTS: dict[str, dict[str, object]] = tomllib.loads(
    (Path(__file__).parent / "spec_parts.toml").read_text(encoding="utf-8")
)["parts"]


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server of our own, for whoever needs one; tests part by tenant."""
    given = os.environ.get("EVERLONG_TEST_POSTGRES")
    if given:
        yield given
    elif binaries() is None:
        pytest.skip("no PostgreSQL: install its server binaries (initdb, postgres) or set EVERLONG_TEST_POSTGRES")
    else:
        with postgres() as url:
            yield url


@pytest.fixture(autouse=True)
def _nobodys_configuration(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in list(os.environ):
        # Also those that only tests know, which the program would refuse; and nobody's keys, nor where they would go.
        if name.startswith("EVERLONG_") or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    for name in _CERTIFICATES:  # which every gateway and every client would read, and nothing here needs
        monkeypatch.delenv(name, raising=False)
    if not any(folder in request.path.parents for folder in _APART):  # some of those ask a package index
        monkeypatch.setenv("SSL_CERT_FILE", str(_NOBODY))
    monkeypatch.setenv("EVERLONG_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # where a test runs pytest: plugins take a second to load
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")  # clients of model APIs ask the environment for a proxy


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store in a file of its own."""
    with Store.open(tmp_path / "store.db") as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder in which an agent works."""
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the tests of browser, site, container and heavy frameworks unless they are asked for by their path."""
    if collection_path not in _APART:
        return None
    asked = (Path(config.invocation_params.dir, one.partition("::")[0]).resolve() for one in config.args)
    return None if any(path == collection_path or collection_path in path.parents for path in asked) else True


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage once all tests are loaded, but never in what was loaded."""
    result = yield
    gc.freeze()
    gc.enable()
    return result


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put long tests first, and leave out those for `make soak`.

    Refuse unknown parts of the contract always, and parts without a test when the whole suite is collected.
    """
    left_out = [] if IS_THOROUGH else [item for item in items if item.get_closest_marker("soak")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]
    items.sort(key=lambda item: not any(name in item.nodeid.partition("::")[0] for name in _LONG))
    named = {str(part) for item in items for mark in item.iter_markers("spec") for part in mark.args}
    unknown = sorted(named - PARTS.keys())
    if unknown:
        raise pytest.UsageError(f"tests name parts of the contract that do not exist: {', '.join(unknown)}")
    if config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr:
        return
    untested = sorted(part for part, entry in PARTS.items() if not entry.get("later") and part not in named)
    early = sorted(part for part in named if PARTS[part].get("later"))
    if untested:
        raise pytest.UsageError(f"parts of the contract without a test: {', '.join(untested)} (tests/spec_parts.toml)")
    if early:
        raise pytest.UsageError(f"parts marked `later` that have tests: {', '.join(early)}; remove the mark")
