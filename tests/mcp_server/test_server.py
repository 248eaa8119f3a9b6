"""The server, asked by the SDK's own client: in its process, and on standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent

from everlong.mcp.server import HistoryServer
from tests.mcp_server.conftest import Said
from tests.program import everlong_program
from tests.waiting import PATIENCE

SOURCE = str(Path(__file__).parents[2] / "src")
TOOLS = {"search_history", "read_conversation", "list_conversations", "recall"}
MODES = ["legacy", "auto"]
"""The protocol with a handshake, which most clients speak, and the one without."""


def words(result: CallToolResult) -> str:
    return "".join(one.text for one in result.content if isinstance(one, TextContent))


def talk(server: Any, work: Callable[[Client], Awaitable[None]], **options: Any) -> None:
    """Connect the SDK's client to a server and have it work."""

    async def run() -> None:
        async with Client(server, **options) as client:
            await work(client)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


@pytest.mark.parametrize("mode", MODES)
def test_the_tools_are_offered_and_answer(said: Said, mode: str) -> None:
    name = said.talk("The port is 7431.", "Noted.", title="Port")
    server = HistoryServer(said.history)

    async def work(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert "7431" in words(await client.call_tool("recall", {"question": "which port?"}))
        assert "7431" in words(await client.call_tool("read_conversation", {"id": name}))
        assert name in words(await client.call_tool("list_conversations", {}))

    talk(server, work, mode=mode)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that a server is started in."""
    made = tmp_path / "work"
    made.mkdir()
    return made


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    own = {"EVERLONG_HOME": str(tmp_path / "home"), "EVERLONG_STORE__URL": str(tmp_path / "store.db")}
    return {**kept, **own, "PYTHONPATH": SOURCE, **more}


def test_over_standard_input_and_output_only_the_folder_is_seen(said: Said, folder: Path, tmp_path: Path) -> None:
    said.talk("The port is 7431.", "Noted.", folder=str(folder))
    said.talk("The port is 9, the password kelp.", "I keep it.", folder="/work/secret")

    async def here(client: Client) -> None:
        text = words(await client.call_tool("search_history", {"query": "port"}))
        assert "7431" in text
        assert "kelp" not in text

    async def everywhere(client: Client) -> None:
        assert "kelp" in words(await client.call_tool("search_history", {"query": "port"}))

    for more, work in (((), here), (("--all",), everywhere)):
        program, *words_of_it = everlong_program()
        command = [*words_of_it, "mcp", *more]
        server = StdioServerParameters(command=program, args=command, env=environment(tmp_path), cwd=folder)
        talk(server, work)


def test_standard_output_carries_nothing_but_the_protocol(folder: Path, tmp_path: Path) -> None:
    (folder / ".everlong").mkdir()
    (folder / ".everlong" / "config.yaml").write_text("gateway: {port: 1}\n")  # a notice is printed about it
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "this is no JSON",
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "recall", "arguments": {"question": "which port?"}}},
    ]  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "everlong", "mcp"],
        cwd=folder,
        env=environment(tmp_path, EVERLONG_SEARCH__EMBEDDINGS=str(tmp_path / "nothing")),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for one in asked:
            process.stdin.write((one if isinstance(one, str) else json.dumps(one)) + "\n")
        process.stdin.flush()
        lines: list[dict[str, Any]] = []
        while not any(line.get("id") == 2 for line in lines):
            lines.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        rest = process.stdout.read()
        assert process.stderr is not None
        chatter = process.stderr.read()
    assert all(line["jsonrpc"] == "2.0" for line in [*lines, *map(json.loads, rest.splitlines())])
    assert "are not trusted" in chatter
    assert process.returncode == 0
