"""A program that runs where the wheel is installed, and uses what each of the named extras is for.

It has nothing but the installed package: ``python probe.py none gateway …``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from everlong import ContextCompressor, Store, StoreUnavailable

ANSWER = "The ferry is at berth 7."


def everlong(*arguments: str, **environment: str) -> str:
    """Run the program as a person does, and return what it printed."""
    program = Path(sys.executable).with_name("everlong")
    env = {**os.environ, **environment}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, env=env, timeout=300)
    if done.returncode or "Traceback" in done.stderr:
        sys.exit(f"everlong {' '.join(arguments)} failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(condition: object, problem: str) -> None:
    """End the program unless something holds."""
    if not condition:
        sys.exit(problem)


def talk() -> list[dict[str, Any]]:
    """Return a conversation that is too long for a small window."""
    return [
        {"role": "user" if n % 2 == 0 else "assistant", "content": f"Day {n}: the ferry takes berth {n % 9}. " * 60}
        for n in range(60)
    ]


def probe_none() -> None:
    """Compact a file, store it, search it, and look at the demo's session."""
    Path("session.json").write_text(json.dumps(talk()), encoding="utf-8")
    expect(everlong("--version").startswith("everlong, version "), "--version prints no version")
    shorter = json.loads(everlong("compress", "session.json", "--context-length", "8000"))
    expect(0 < len(shorter) < 60, "compress did not compact")
    expect(ContextCompressor(8_000).threshold_tokens == 6_000, "the library counts otherwise")
    everlong("sessions", "import", "session.json")
    expect("berth" in everlong("sessions", "search", "berth 7"), "the search finds nothing")
    expect("_everlong_completion" in everlong("completion", "fish"), "there is no completion")
    from everlong.cli.demo import load_session

    expect(len(load_session()[0]) > 1_000, "the demo has no session")
    # On a machine without models and keys the doctor warns, and says so with 0.
    expect("everlong" in everlong("doctor").lower(), "the doctor says nothing")


def _ask(kind: str) -> None:
    from everlong.testing import ModelServer

    with ModelServer(lambda _: ANSWER) as server:
        url = server.url if kind == "anthropic" else server.openai_url
        names = {f"EVERLONG_PROVIDERS__{kind.upper()}__BASE_URL": url, f"{kind.upper()}_API_KEY": "key-of-nobody"}
        model = {"anthropic": "claude-sonnet-5", "openai": "gpt-4o"}[kind]
        expect(ANSWER in everlong("run", "Where is it?", "-m", f"{kind}:{model}", **names), "no answer of the model")


def probe_gateway() -> None:
    """Send a request through a gateway that is started for a program, and know its price."""
    from everlong.testing import ModelServer

    code = """if True:
        import json, os, urllib.request
        body = {"model": "claude-sonnet-5", "max_tokens": 50, "messages": [{"role": "user", "content": "Where?"}]}
        asked = urllib.request.Request(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", json.dumps(body).encode(),
            {"content-type": "application/json", "x-api-key": "key-of-nobody", "anthropic-version": "2023-06-01"})
        print(urllib.request.urlopen(asked, timeout=60).read().decode())"""
    with ModelServer(lambda _: ANSWER) as server:
        names = {"ANTHROPIC_BASE_URL": server.url, "EVERLONG_PROVIDERS__ANTHROPIC__BASE_URL": server.url}
        shown = everlong("wrap", "--", sys.executable, "-c", code, **names)
    expect(ANSWER in shown, f"the gateway brought no answer: {shown}")
    stored = json.loads(everlong("sessions", "list", "--json"))
    expect(stored[0]["cost"] > 0, f"the gateway knows no price of the model: {stored[0]}")


def probe_inspector() -> None:
    """Fetch the first page of the inspector."""
    program = [str(Path(sys.executable).with_name("everlong")), "inspect", "--web", "--no-browser", "--port", "0"]
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None  # noqa: S101 - so it was started
            line = next((line for line in running.stderr if "http://" in line), "")
            address = line.partition("http://")[2].split()[0]
            page = urllib.request.urlopen(f"http://{address}", timeout=60).read()
            expect(b"<html" in page, "the inspector shows no page")
        finally:
            running.terminate()


def probe_local() -> None:
    """Load llama.cpp, and read a file that is no model."""
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    from everlong.providers.local import find_model_file

    expect(xllamacpp.CommonParams(), "llama.cpp does not load")
    try:
        find_model_file(Path("session.json"))
    except Exception as error:  # noqa: BLE001 - whatever it is, it must name the file
        expect("session.json" in str(error), f"no error that names the file: {error}")
    else:
        sys.exit("a JSON file was taken for a model")


def probe_postgres() -> None:
    """Ask for a server that is not there: the driver answers, not a missing package."""
    try:
        Store.open("postgresql://nobody@127.0.0.1:1/nothing")
    except StoreUnavailable:
        return
    sys.exit("a store opened without a server")


def probe_semantic() -> None:
    """Load what the search by meaning computes with."""
    import numpy as np

    from everlong.store.search import meaning

    expect(np.ones(2).sum() == 2, "it does not load")
    expect(meaning.Meaning, "there is no search by meaning")


def probe_testing() -> None:
    """Check the built-in engine against the contract."""
    from everlong.testing import check_engine

    breaches = check_engine(ContextCompressor, examples=3)
    expect(breaches == [], f"the engine breaks the contract: {breaches}")


def probe_mcp() -> None:
    """Load the server."""
    expect(import_module("everlong.mcp.server").__all__, "there is no server")


def _make_platform(name: str) -> None:
    """Make the adapter of a messaging service, with a token that nobody has."""
    from everlong.channels import make_platform
    from everlong.config import Settings

    made = make_platform(name, "123456:AAnobodyAAnobodyAAnobodyAAnobodyAAn", Settings().channels)
    expect(made.pieces("**Berth 7**"), "it writes nothing")


def _load_adapter(name: str) -> None:
    """Load the adapter of a framework."""
    expect(import_module(f"everlong.integrations.{name}").__all__, "there is no adapter")


PROBES: dict[str, Callable[[], None]] = {
    "none": probe_none,
    "anthropic": lambda: _ask("anthropic"),
    "openai": lambda: _ask("openai"),
    "gateway": probe_gateway,
    "inspector": probe_inspector,
    "local": probe_local,
    "postgres": probe_postgres,
    "semantic": probe_semantic,
    "testing": probe_testing,
    "mcp": probe_mcp,
    "telegram": lambda: _make_platform("telegram"),
    "discord": lambda: _make_platform("discord"),
    "langchain": lambda: _load_adapter("langchain"),
    "langgraph": lambda: _load_adapter("langgraph"),
}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        PROBES[name]()
