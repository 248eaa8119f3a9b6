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
from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, ElicitResult, TextContent

from everlong.mcp.history import History
from everlong.mcp.server import HistoryServer
from everlong.memory.notes import NotesMemory
from everlong.store import Store
from tests.mcp_server.conftest import HERE, Said
from tests.program import everlong_program
from tests.waiting import PATIENCE

SOURCE = str(Path(__file__).parents[2] / "src")
TOOLS = {"search_history", "read_conversation", "list_conversations", "recall", "remember"}
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


def answering(action: str, content: dict[str, bool] | None, asked: list[str]) -> Any:
    async def answer(_context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action=action, content=content)  # type: ignore[arg-type]

    return answer


# -- in one process ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_tools_resources_and_prompts_are_offered(said: Said, mode: str) -> None:
    name = said.talk("The port is 7431.", "Noted.", title="Port")
    server = HistoryServer(said.history)

    async def work(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == TOOLS
        assert {tool.name for tool in tools if not (tool.annotations and tool.annotations.read_only_hint)} == {
            "remember"
        }
        assert "7431" in words(await client.call_tool("recall", {"question": "which port?"}))
        assert "7431" in words(await client.call_tool("read_conversation", {"id": name}))
        assert name in words(await client.call_tool("list_conversations", {}))
        (resource,) = (await client.list_resources()).resources
        assert resource.title == '"Port"', "in quotation marks: others may have chosen it"
        assert "7431" in str((await client.read_resource(resource.uri)).contents)
        (prompt,) = (await client.list_prompts()).prompts
        assert "The port is 7431." in str((await client.get_prompt(prompt.name)).messages)

    talk(server, work, mode=mode)


def test_a_resource_of_another_folder_is_not_found(said: Said) -> None:
    hidden = said.talk("The password is kelp.", "I keep it.", folder="/work/secret")

    async def work(client: Client) -> None:
        assert (await client.list_resources()).resources == []
        with pytest.raises(MCPError, match="there is no conversation"):
            await client.read_resource(f"everlong://conversations/{hidden}")

    talk(HistoryServer(said.history), work)


# -- remember ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def noting(store: Store, tmp_path: Path) -> History:
    """A history with notes."""
    return History(store, [HERE], notes=NotesMemory(tmp_path / "memories", project=tmp_path))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("action", "content", "is_kept"),
    [
        ("accept", {"keep": True}, True),
        ("accept", {"keep": False}, False),
        ("decline", None, False),
        ("cancel", None, False),
    ],
)
@pytest.mark.spec("12.3")
def test_a_note_is_kept_only_if_the_user_says_yes(
    noting: History, mode: str, action: str, content: dict[str, bool] | None, is_kept: bool
) -> None:
    asked: list[str] = []

    async def work(client: Client) -> None:
        result = await client.call_tool("remember", {"note": "The pump\u202e is blue."})
        assert result.is_error is not is_kept
        recalled = words(await client.call_tool("recall", {"question": "pump blue"}))
        assert ("pump" in recalled.partition(":")[2]) is is_kept

    talk(HistoryServer(lambda: noting), work, mode=mode, elicitation_callback=answering(action, content, asked))
    assert len(asked) == 1
    assert "The pump\\u202e is blue." in asked[0]


@pytest.mark.spec("12.3")
def test_a_client_that_cannot_ask_keeps_nothing_unless_the_setting_says_so(noting: History) -> None:
    async def refused(client: Client) -> None:
        result = await client.call_tool("remember", {"note": "The pump is blue."})
        assert result.is_error
        assert "everlong config set mcp.remember always" in words(result)

    async def kept(client: Client) -> None:
        assert not (await client.call_tool("remember", {"note": "The pump is blue."})).is_error

    async def missing(client: Client) -> None:
        assert "remember" not in {tool.name for tool in (await client.list_tools()).tools}

    talk(HistoryServer(lambda: noting), refused)
    talk(HistoryServer(lambda: noting, remembering="always"), kept)
    assert noting.notes is not None
    assert noting.notes.notes("memory") == ["The pump is blue."]
    talk(HistoryServer(lambda: noting, remembering="never"), missing)


# -- standard input and output ----------------------------------------------------------------------------------------


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
