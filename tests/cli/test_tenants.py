"""Conversations of the gateway's keys: found, counted, checked and forgotten by whoever runs the gateway."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from everlong.cli.main import cli
from everlong.store import Store
from everlong.store.schema import content

Run = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with a conversation of the user's own and one of each of two keys."""
    where = tmp_path / "store.db"
    for tenant in ("local", "ada", "bob"):
        with Store.open(where, tenant) as store:
            said = [
                {"role": "user", "content": f"The word of {tenant} is heron."},
                {"role": "assistant", "content": "Yes."},
            ]
            branch = store.record(said[:1])
            session = store.sessions.start(branch, title=f"Talk of {tenant}")
            turn = store.turns.begin(branch, model="openai:m", session=session.id)
            store.turns.finish(turn.id, said[1], usage={"prompt_tokens": 10, "output_tokens": 1}, cost=0.5)
    return where


@pytest.fixture
def run(path: Path) -> Run:
    return lambda group, *words: CliRunner().invoke(cli, [*group.split(), "--store", str(path), *words])


def test_all_tenants_are_listed_one_after_the_other(run: Run) -> None:
    found = run("sessions", "--all-tenants", "list", "--json")
    titles = {tenant: [one["title"] for one in listed] for tenant, listed in json.loads(found.stdout).items()}
    assert titles == {"local": ["Talk of local"], "ada": ["Talk of ada"], "bob": ["Talk of bob"]}
    said = run("sessions", "--all-tenants", "search", "heron")
    assert all(f"The word of {tenant}" in said.output for tenant in ("local", "ada", "bob"))


@pytest.mark.parametrize("words", [["sessions", "list"], ["sessions", "search", "heron"], ["usage"], ["why", "heron"]])
def test_the_name_of_each_tenant_stands_above_its_rows_in_the_output(run: Run, words: list[str]) -> None:
    found = run(words[0], "--all-tenants", *words[1:])
    parts = re.split(r"^(local|ada|bob):\n", found.stdout, flags=re.MULTILINE)
    assert parts[0] == ""
    assert parts[1::2] == ["local", "ada", "bob"]
    assert all(part.strip() for part in parts[2::2])
    assert not re.search(r"(local|ada|bob):", found.stderr)


@pytest.mark.spec("12.4")
def test_verify_sees_damage_of_every_tenant(run: Run, path: Path) -> None:
    assert "6 messages" in run("sessions", "verify").output
    with Store.open(path, "bob") as store:
        store.database.write(
            lambda connection: connection.execute(
                update(content).where(content.c.tenant == "bob").values(bytes=b"spoilt", codec=0)
            )
        )
    found = run("sessions", "verify")
    assert found.exit_code == 1
    assert "bob: content" in found.output


def test_words_are_forgotten_for_all_tenants(run: Run) -> None:
    found = run("sessions", "--all-tenants", "forget", "heron", "-y")
    assert found.exit_code == 0
    after = run("sessions", "--all-tenants", "search", "heron", "--json")
    assert all(not page["hits"] for page in json.loads(after.stdout).values())


def test_where_a_tenant_has_nothing_the_others_are_named(tmp_path: Path) -> None:
    where = tmp_path / "store.db"
    with Store.open(where, "ada") as store:
        store.sessions.start(store.record([{"role": "user", "content": "The heron."}]), title="Talk")
    for words in (["sessions", "--store", str(where), "list"], ["usage", "--store", str(where)]):
        assert "--all-tenants shows those of ada" in CliRunner().invoke(cli, words).stderr


def test_why_looks_at_one_tenant_and_names_it_in_the_commands_that_it_prints(path: Path) -> None:
    found = CliRunner().invoke(cli, ["why", "--store", str(path), "--tenant", "ada", "heron"]).stdout
    assert "The word of ada is heron." in found
    assert f"everlong sessions --store {path} --tenant ada search " in found


def test_a_tenant_may_be_named_behind_the_command_too(path: Path) -> None:
    before = CliRunner().invoke(cli, ["sessions", "--store", str(path), "--tenant", "ada", "search", "heron"])
    behind = CliRunner().invoke(cli, ["sessions", "search", "heron", "--store", str(path), "--tenant", "ada"])
    assert behind.stdout == before.stdout
    assert "The word of ada" in behind.stdout
