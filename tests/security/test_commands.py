"""Commands: no secrets in their environment, a sandbox around them where there is one, and an end that is the truth."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from everlong import processes
from everlong.agent.approval import Approvals, refuse_everything
from everlong.agent.tools import Workspace, process
from everlong.agent.tools.sandbox import Confinement, Sandbox, find_sandbox
from everlong.agent.tools.shell import command_environment
from everlong.store import Store
from tests.agent.desk import Desk
from tests.security.conftest import Listener
from tests.waiting import PATIENCE, is_running, until

PYTHON = Path(sys.executable).resolve()
"""The interpreter itself: a virtual environment may stand where the sandbox shows nothing, such as in /tmp."""

pytestmark = [
    pytest.mark.spec("12.3"),
    pytest.mark.skipif(sys.platform == "win32", reason="commands of a POSIX shell"),
]

SECRETS = (
    *("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "DATABASE_PASSWORD"),
    *("UV_PUBLISH_TOKEN", "PIP_PASSWORD", "NPM_CONFIG__AUTH", "SOME_KEY", "DATABASE_URL", "EVERLONG_HOME"),
)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr(process, "GRACE", 0.2)
    root = tmp_path / "project"
    root.mkdir()
    with Store.open(tmp_path / "store.db") as store:
        yield Desk(root, store)


# -- the environment --------------------------------------------------------------------------------------------------


def test_commands_see_no_key_and_what_programs_need(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, f"made-up-{name}")
    needed = {"LC_TIME": "C", "HTTPS_PROXY": "http://127.0.0.1:9", "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    needed |= {"SSH_AUTH_SOCK": "/nowhere/agent"}
    for name, value in needed.items():
        monkeypatch.setenv(name, value)
    said = desk.done("run_command", command="env")
    assert "made-up" not in said
    for name, value in {**needed, "PATH": os.environ["PATH"]}.items():
        assert f"{name}={value}\n" in said


def test_further_variables_pass_where_the_user_names_them() -> None:
    env = {"GITHUB_TOKEN": "made-up", "TEAM_A": "1", "TEAM_B": "2", "OTHER": "3"}
    assert set(command_environment(["GITHUB_TOKEN", "TEAM_*"], env)) >= {"GITHUB_TOKEN", "TEAM_A", "TEAM_B"}
    assert "OTHER" not in command_environment(["GITHUB_TOKEN", "TEAM_*"], env)


# -- the end ----------------------------------------------------------------------------------------------------------


LEAVING = "import os, sys, time; os.fork() and os._exit(0); os.setsid(); open('pid', 'w').write(str(os.getpid()))"
DAEMON = f'{PYTHON} -c "{LEAVING}; time.sleep(600)" > /dev/null 2>&1; sleep 600'


def stopped(desk: Desk, command: str) -> str:
    """Interrupt a command once its daemon runs; what the model is told."""
    pid = desk.root / "pid"

    def interrupt() -> None:
        until(lambda: pid.exists() and pid.read_text())
        desk.context.interrupted.set()

    thread = threading.Thread(target=interrupt)
    thread.start()
    result = desk.run("run_command", command=command)
    thread.join()
    return str(result.message["content"])


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show the environment of processes")
def test_a_child_that_leaves_its_session_does_not_survive_a_stop(desk: Desk) -> None:
    said = stopped(desk, DAEMON)
    pid = int((desk.root / "pid").read_text())
    assert "stopped with all that it had started, as far as can be seen" in said
    try:
        until(lambda: not is_running(pid))  # the model was told so
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="as above")
def test_where_something_hides_its_traces_the_model_is_not_told_that_all_was_stopped(desk: Desk) -> None:
    said = stopped(desk, f"env -i {DAEMON}")
    pid = int((desk.root / "pid").read_text())
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    assert "stopped" in said
    assert "stopped with all that it had started]" not in said


# -- the sandbox ------------------------------------------------------------------------------------------------------


SECRET_FILES = (
    *(".ssh/id_ed25519", ".aws/credentials", ".netrc", ".local/share/keyrings/login", ".config/gh/hosts"),
    *(".pi/agent/auth.json", ".cline/data/secrets.json", ".config/mini-swe-agent/.env", ".hermes/.env"),
    *(".config/io.datasette.llm/keys.json", ".claude.json", ".aider.conf.yml", ".gitconfig", ".cargo/credentials.toml"),
    *(".local/share/opencode/auth.json", ".local/share/uv/credentials/credentials.toml", "notes.txt", "taxes/2025.pdf"),
)


@pytest.fixture
def inside(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    """A desk whose commands run in the sandbox; in continuous integration one must start."""
    found, why = find_sandbox()
    if found is None:
        (pytest.fail if os.environ.get("EVERLONG_NEEDS_SANDBOX") else pytest.skip)(why)
    home = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()  # not below /tmp, which is another one inside
    for name in SECRET_FILES:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("pelican")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("EVERLONG_HOME", str(home / "everlong"))
    (home / "everlong").mkdir()
    (home / "everlong" / "store.db").write_text("pelican")
    (home / "elsewhere.db").write_text("pelican")
    desk.context.confinement = Confinement("on", (home / "elsewhere.db", home / "not-there.db"))
    yield desk
    shutil.rmtree(home)


def test_the_workspace_can_be_written_and_nothing_else(inside: Desk, tmp_path: Path) -> None:
    inside.done("run_command", command="echo one > made.txt && mkdir sub && echo two > sub/made.txt")
    assert (inside.root / "sub" / "made.txt").read_text() == "two\n"
    for place in (tmp_path, Path.home(), Path("/etc"), Path("/usr")):
        inside.run("run_command", command=f"touch '{place}/evil'")  # in a folder of its own /tmp it may seem to work
        assert not (place / "evil").exists()
    assert "Read-only" in inside.failed("run_command", command="touch /usr/evil")


def test_secrets_cannot_be_read(inside: Desk) -> None:
    for name in (*SECRET_FILES, "everlong/store.db", "elsewhere.db"):
        assert "pelican" not in inside.run("run_command", command=f"cat ~/{name}").text, name
    assert "pelican" not in inside.run("run_command", command="grep -r pelican ~ 2>/dev/null").text
    inside.context.confinement = Confinement("off")
    assert "pelican" in inside.run("run_command", command="cat ~/.ssh/*").text  # so that this test can fail


def test_programs_in_the_home_run_and_nothing_beside_them_is_seen(
    inside: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path.home()
    for name in ("tools/bin", "tools/lib", ".local/bin", ".local/share/uv/tools/made/bin"):
        (home / name).mkdir(parents=True)
    (home / "tools/lib/words").write_text("from the library")
    (home / "tools/token").write_text("pelican")
    (home / "tools/bin/read-words").write_text("#!/bin/sh\ncat ~/tools/lib/words ~/tools/token\n")
    (home / ".local/share/uv/tools/made/bin/made").write_text("#!/bin/sh\necho made runs\n")
    (home / ".local/bin/made").symlink_to(home / ".local/share/uv/tools/made/bin/made")
    for name in ("tools/bin/read-words", ".local/bin/made"):
        (home / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}/tools/bin:{home}/.local/bin:{os.environ['PATH']}")
    assert "made runs" in inside.done("run_command", command="made")
    said = inside.run("run_command", command="read-words").text
    assert "from the library" in said
    assert "pelican" not in said
    inside.failed("run_command", command="touch ~/tools/bin/evil")
    inside.done("run_command", command="echo a > ~/.made && cat ~/.made")  # a home of its own, which ends with it
    assert not (home / ".made").exists()


@pytest.mark.parametrize(
    "command", ["git status", "git log -1 && git diff", "python3 -c 'print(1)'", "pip list", "node -e 'console.log(1)'"]
)
def test_ordinary_programs_run_with_the_home_hidden(desk: Desk, command: str) -> None:
    program = command.partition(" ")[0]
    if find_sandbox()[0] is None or shutil.which(program) is None:
        pytest.skip(f"there is no sandbox, or no {program}")
    desk.file("made.txt", "one\n")
    made_repository(desk.root)
    desk.context.confinement = Confinement("on")
    desk.done("run_command", command=command)


def test_a_workspace_inside_of_a_hidden_folder_can_be_worked_in_and_a_hidden_folder_inside_of_it_stays_hidden(
    inside: Desk,
) -> None:
    root = Path.home() / "everlong" / "work"
    root.mkdir()
    inside.context.workspace = Workspace(root)
    inside.done("run_command", command="echo one > made.txt")
    assert (root / "made.txt").read_text() == "one\n"
    assert "pelican" not in inside.run("run_command", command="cat ../store.db").text
    inside.context.workspace = Workspace(Path.home())
    inside.done("run_command", command="echo one > made.txt")
    assert "pelican" not in inside.run("run_command", command="cat .ssh/* everlong/store.db").text


def test_processes_outside_cannot_be_seen(inside: Desk) -> None:
    outside = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={"KEY": "pelican"})
    try:
        said = inside.run("run_command", command="cat /proc/[0-9]*/environ | tr '\\0' ' '").text
        assert "PAGER=cat" in said
        assert "pelican" not in said
    finally:
        outside.kill()
        outside.wait()


def test_there_is_no_network_unless_it_was_asked_for(inside: Desk, listener: Listener) -> None:
    code = f"import urllib.request; urllib.request.urlopen('{listener.url}/x', timeout={PATIENCE})"
    command = f'{PYTHON} -c "{code}"'
    inside.failed("run_command", command=command)
    assert listener.heard == []
    assert "without a network" in inside.asked[-1].detail
    inside.done("run_command", command=command, network=True)
    assert len(listener.heard) == 1
    assert "with the network" in inside.asked[-1].detail


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp"])  # noqa: S108 - where such sockets are
@pytest.mark.parametrize("network", [False, True])
def test_sockets_of_programs_outside_cannot_be_reached(folder: str, network: bool, inside: Desk) -> None:
    """A container engine that is root may listen anywhere, as LXD does below /var/snap."""
    path = Path(folder) / f"everlong-{os.getpid()}.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        try:
            code = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}')"
            inside.failed("run_command", command=f'{PYTHON} -c "{code}"', network=network)
        finally:
            path.unlink()


def git(root: Path, *words: str) -> str:
    """Run git as the user does, outside."""
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    command = [str(shutil.which("git")), *who, *words]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout


def made_repository(root: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    git(root, "init", "-q")
    git(root, "add", "--all")
    git(root, "commit", "-q", "--allow-empty", "-m", "begun")


@pytest.mark.parametrize(
    "place",
    [
        *("config", "config.worktree", "hooks/pre-commit", "info/attributes", "modules/sub/config", "commondir"),
        *("worktrees/tree/config.worktree", "worktrees/tree/commondir", "remotes/origin", "objects/info/alternates"),
    ],
)
def test_nothing_that_git_obeys_can_be_planted(inside: Desk, place: str) -> None:
    made_repository(inside.root)
    git(inside.root, "config", "extensions.worktreeConfig", "true")
    before = {path: path.read_bytes() for path in (inside.root / ".git").rglob("*") if path.is_file()}
    trace = inside.root / "ran"
    inside.file("evil.sh", f"#!/bin/sh\necho ran > {trace}\n").chmod(0o755)
    planted = f"[core]\n\tfsmonitor = {inside.root}/evil.sh\n"
    inside.file("planted", planted)
    inside.failed("run_command", command=f"mkdir -p $(dirname .git/{place}) && cp planted .git/{place}")
    inside.failed("run_command", command=f"mv planted .git/{place}")
    git(inside.root, "status")
    assert not trace.exists()
    assert {path: path.read_bytes() for path in (inside.root / ".git").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("version", "is_filled", "is_below"),
    [("2", True, False), ("4", True, False), ("2", False, False), ("4", False, True)],
)
def test_nothing_that_git_obeys_can_be_planted_in_a_submodule(
    inside: Desk, version: str, *, is_filled: bool, is_below: bool
) -> None:
    made_repository(inside.root.parent if is_below else inside.root)
    for number in range(3):
        inside.file(f"libs/part {number}.txt", "x")
    (inside.root / "libs" / "part").mkdir()
    made_repository(inside.root / "libs" / "part")
    git(inside.root, "config", "index.version", version)
    git(inside.root, "add", "--all")
    git(inside.root, "update-index", "--index-version", version)
    if not is_filled:
        shutil.rmtree(inside.root / "libs" / "part")
        (inside.root / "libs" / "part").mkdir()
    trace = inside.root / "ran"
    inside.file("evil.sh", f"#!/bin/sh\necho ran > {trace}\n").chmod(0o755)
    inside.file("planted/HEAD", "ref: refs/heads/main\n")
    inside.file("planted/config", f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {inside.root}/evil.sh\n")
    plant = "mkdir -p planted/objects planted/refs; rm -rf libs/part/.git; cp -r planted libs/part/.git"
    swap = "{ mv libs/part libs/old || mv libs old; mkdir -p libs/part; cp -r planted libs/part/.git; }"
    inside.failed("run_command", command=f"{plant}; {swap} 2>&1; cp planted/config libs/part/.git/config")
    git(inside.root, "status")
    assert not trace.exists()
    inside.done("run_command", command="echo new > libs/part/new.txt && rm libs/part/new.txt")
    assert is_filled or not list((inside.root / "libs" / "part").iterdir())


def test_no_command_runs_beside_a_link_to_a_repository_which_it_could_replace(inside: Desk) -> None:
    made_repository(inside.root)
    (inside.root / ".git").rename(inside.root / "kept")
    (inside.root / ".git").symlink_to("kept")
    said = inside.failed("run_command", command="echo evil >> .git/config; rm .git; mkdir .git")
    assert ".git is a link" in said
    assert (inside.root / ".git").is_symlink()
    assert "evil" not in (inside.root / "kept" / "config").read_text()


def test_a_change_of_the_settings_of_git_outside_opens_nothing_to_a_command_under_way(inside: Desk) -> None:
    made_repository(inside.root)
    later = "while test ! -e now; do sleep 0.05; done; echo evil >> .git/config; echo evil > .git/index; echo > tried"
    inside.done("run_command", command=f"({later}) > /dev/null 2>&1 &")
    git(inside.root, "config", "remote.origin.url", "somewhere")  # which puts another file in the place of the old one
    inside.file("now", "")
    until((inside.root / "tried").exists)
    assert "evil" not in (inside.root / ".git" / "config").read_text()
    git(inside.root, "status")


def test_no_repository_and_no_settings_are_made_where_there_are_none(inside: Desk) -> None:
    inside.file("evil/hooks/pre-commit", "evil")
    for attempt in (
        "git init",
        "mkdir .git",
        "mv evil .git && test -e .git/hooks",
        "echo evil > .git/config",
        "rmdir .git",
        "mkdir .everlong",
        "echo evil > .everlong/config.yaml",
        "mv evil .everlong && test -e .everlong/hooks",
    ):
        inside.failed("run_command", command=attempt)
    assert sorted(path.name for path in inside.root.iterdir()) == ["evil"], "what was made for a command is left behind"


@pytest.mark.parametrize(("name", "target"), [(".everlong", "conf"), (".everlong", "."), (".git", ".")])
def test_no_command_runs_beside_a_link_that_it_could_replace(inside: Desk, name: str, target: str) -> None:
    (inside.root / name).symlink_to(target)
    said = inside.failed("run_command", command=f"rm {name}; mkdir {name}; echo evil > {name}/config")
    assert f"{name} is a link" in said
    assert (inside.root / name).is_symlink()


def test_where_a_guard_cannot_be_made_the_folder_is_read_only(inside: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")  # which the command before has brought about

    inside.file("filling", "x")
    monkeypatch.setattr(Path, "mkdir", fail)
    inside.failed("run_command", command="rm filling; mkdir .git && echo evil > .git/config")
    assert [path.name for path in inside.root.iterdir()] == ["filling"]


@pytest.mark.parametrize("place", ["nowhere", "a file HEAD", "a bare repository"])
def test_a_folder_without_a_repository_is_not_made_a_bare_one(place: str, inside: Desk) -> None:
    inside.file("evil", '#!/bin/sh\ntouch "$(dirname "$0")/ran"\n').chmod(0o755)
    if place != "nowhere":
        inside.file("HEAD", "ref: refs/heads/main\n")
    if place == "a bare repository":
        (inside.root / "objects").mkdir()
        (inside.root / "refs").mkdir()
    evil = f"[core]\n\tbare = false\n\tworktree = .\n\tfsmonitor = {inside.root / 'evil'}\n"
    inside.file("planted/config", evil)
    plants = "mkdir objects refs; cp planted/config .; echo planted > commondir; echo 'ref: refs/heads/main' > HEAD"
    inside.failed("run_command", command=plants)
    with suppress(subprocess.CalledProcessError):  # there is no repository
        git(inside.root, "status")
    assert not (inside.root / "ran").exists()


@pytest.mark.parametrize(
    ("setting", "value", "planted"),
    [
        ("core.hooksPath", "{}.husky/_", ".husky/_/post-commit"),
        ("core.hooksPath", "{}.hooks", ".hooks/post-commit"),
        ("include.path", "../{}team/gitconfig", "team/gitconfig"),
        ("diff.words.textconv", "{}bin/words --all", "bin/words"),
    ],
)
@pytest.mark.parametrize("is_below", [False, True])
def test_what_the_settings_of_git_name_cannot_be_planted(
    setting: str, value: str, planted: str, *, is_below: bool, inside: Desk
) -> None:
    inside.file(".husky/_/.gitignore", "*")
    inside.file("team/gitconfig", "")
    inside.file("bin/words", "")
    made_repository(inside.root.parent if is_below else inside.root)
    git(inside.root, "config", setting, value.format("project/" if is_below else ""))
    above = planted.partition("/")[0]
    swap = f"mv {above} old; mkdir -p $(dirname {planted}); echo '#!/bin/sh' > {planted} && chmod +x {planted}"
    inside.failed("run_command", command=swap)
    assert not (inside.root / planted).is_file() or not (inside.root / planted).read_text()


def test_what_is_left_in_the_background_plants_nothing_either_also_after_later_commands(inside: Desk) -> None:
    later = "while test ! -e now; do sleep 0.05; done; mkdir .git .everlong; echo > .everlong/config.yaml; echo > tried"
    inside.done("run_command", command=f"({later}) > /dev/null 2>&1 &")
    inside.done("run_command", command="true")
    inside.file("now", "")
    until((inside.root / "tried").exists)
    assert list((inside.root / ".everlong").iterdir()) == list((inside.root / ".git").iterdir()) == []

    def is_tidy() -> bool:
        inside.done("run_command", command="true")
        return not (inside.root / ".everlong").exists()

    until(is_tidy)


def test_a_repository_can_be_written_where_the_user_allows_that(inside: Desk) -> None:
    made_repository(inside.root)
    inside.context.workspace = Workspace(inside.root, [inside.root / ".git"])
    who = "git -c user.name=Ada -c user.email=ada@example.org"
    inside.done("run_command", command=f"echo one > made.txt && git add made.txt && {who} commit -qm made")
    assert git(inside.root, "log", "--format=%s").splitlines() == ["made", "begun"]


def test_the_folder_of_a_repository_that_stands_elsewhere_in_the_workspace_stays_too(inside: Desk) -> None:
    made_repository(inside.root)
    (inside.root / "deep").mkdir()
    (inside.root / ".git").rename(inside.root / "deep" / "kept")
    inside.file(".git", "gitdir: deep/kept\n")
    inside.failed("run_command", command="echo evil >> deep/kept/config")
    inside.failed("run_command", command="mv deep old")
    inside.done("run_command", command="git status")


def test_a_file_that_names_the_repository_stays(inside: Desk) -> None:
    inside.file(".git", "gitdir: /elsewhere\n")
    inside.failed("run_command", command="rm .git")
    inside.failed("run_command", command="echo gitdir: evil > .git")
    assert (inside.root / ".git").read_text() == "gitdir: /elsewhere\n"


def test_at_a_stop_everything_inside_ends_also_what_hides_its_traces(inside: Desk) -> None:
    said = stopped(inside, f"env -i {DAEMON}")
    assert "and stopped with all that it had started]" in said
    mark = str(inside.root)

    def is_over() -> bool:
        left = subprocess.run(["/bin/ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        return not any(mark in line and "bwrap" in line for line in left.splitlines())

    until(is_over)


def test_root_inside_is_not_root_outside(inside: Desk) -> None:
    inside.failed("run_command", command="mount -o remount,rw /")
    same = "v=$(cat /proc/sys/kernel/printk) && echo $v > /proc/sys/kernel/printk"
    assert "exit code 0" not in inside.failed("run_command", command=same)


def test_commands_inside_run_unasked_only_where_the_user_chose_so_and_without_the_network(inside: Desk) -> None:
    inside.approvals = Approvals(refuse_everything())
    assert inside.run("run_command", command="true").outcome == "refused"
    inside.context.confinement = Confinement("auto", asks=False)
    assert inside.run("run_command", command="true").outcome == "done"
    assert inside.run("run_command", command="true", network=True).outcome == "refused"
    inside.context.confinement = Confinement("off", asks=False)
    assert inside.run("run_command", command="true").outcome == "refused"


# -- where there is none ----------------------------------------------------------------------------------------------


@pytest.fixture
def none_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    find_sandbox.cache_clear()


@pytest.fixture(autouse=True)
def _look_again() -> Iterator[None]:
    yield
    find_sandbox.cache_clear()


@pytest.mark.usefixtures("none_here")
def test_without_a_sandbox_auto_asks_and_says_so_and_on_refuses(desk: Desk) -> None:
    desk.context.confinement = Confinement("auto", asks=False)
    desk.run("run_command", command="true")
    assert "without a sandbox (" in desk.asked[-1].detail
    assert "it can do whatever you can" in desk.asked[-1].detail
    desk.context.confinement = Confinement("on")
    assert "no command may run without a sandbox" in desk.failed("run_command", command="touch made")
    assert len(desk.asked) == 1
    assert not (desk.root / "made").exists()


def test_a_sandbox_that_does_not_start_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho no permissions >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(processes, "SYSTEM_FOLDERS", (f"{tmp_path.resolve()}/",))
    monkeypatch.setattr(sys, "platform", "linux")
    find_sandbox.cache_clear()
    assert find_sandbox() == (None, "bubblewrap does not work here (no permissions)")


def test_no_program_of_a_project_is_taken_for_one_of_the_system(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "ran"
    planted = desk.root / ".venv" / "bin"
    for name in ("bwrap", "sandbox-exec", "wl-paste", "xclip", "pngpaste"):
        desk.file(f".venv/bin/{name}", f"#!/bin/sh\necho {name} >> {trace}\n").chmod(0o755)
    monkeypatch.chdir(planted)
    monkeypatch.setenv("PATH", f"{planted}:.::{os.environ['PATH']}")
    find_sandbox.cache_clear()
    desk.context.confinement = Confinement("auto")
    desk.done("run_command", command="true")
    assert not trace.exists(), trace.read_text()


def test_the_program_itself_cannot_be_changed_where_it_stands_in_the_workspace(
    inside: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside.file("app/.venv/lib/everlong/loaded_later.py", "")
    monkeypatch.setattr(sys, "prefix", str(inside.root / "app" / ".venv"))
    inside.failed("run_command", command="echo evil > app/.venv/lib/everlong/loaded_later.py")
    for name in ("app", "app/.venv"):
        inside.failed("run_command", command=f"mv {name} old")
    inside.context.workspace = Workspace(inside.root, [inside.root / "app" / ".venv"])
    inside.done("run_command", command="echo made > app/.venv/made")  # where the user allows it


def test_the_rules_of_macos_say_the_same(tmp_path: Path) -> None:
    secret = tmp_path / 'a "quoted" secret'
    secret.mkdir()
    line = Sandbox("sandbox-exec", "/usr/bin/sandbox-exec").command(["true"], [tmp_path / "ws"], hidden=[secret])
    assert line[0::3] == ["/usr/bin/sandbox-exec", "true"]
    rules = line[2].splitlines()
    assert rules[:3] == ["(version 1)", "(allow default)", "(deny file-write*)"]
    assert f'(allow file-read* file-write* (subpath "{tmp_path}/ws"))' in rules
    assert f'(deny file-write* (subpath "{tmp_path}/ws/.git"))' in rules
    assert f'(deny file-read* file-write* (subpath "{tmp_path}/a \\"quoted\\" secret"))' in rules
    assert rules[-1] == "(deny network*)"


def test_addresses_pass_without_the_password_in_them() -> None:
    given = {
        "HTTPS_PROXY": "http://me:hunter2@proxy.example:8080",
        "PIP_INDEX_URL": "https://hunter2@index.example/simple",
        "PIP_EXTRA_INDEX_URL": "https://a:hunter2@one.example/s https://b:hunter2@two.example/s",
        "GOPROXY": "https://u:hunter2@go.example,direct",
        "UV_DEFAULT_INDEX": "https://u:hunter2@uv.example/simple?x=@1",
        "PATH": "/opt/a@b/bin",
    }
    passed = command_environment(env=given)
    assert "hunter2" not in str(passed)
    assert passed["HTTPS_PROXY"] == "http://proxy.example:8080"
    assert passed["PIP_EXTRA_INDEX_URL"] == "https://one.example/s https://two.example/s"
    assert passed["GOPROXY"] == "https://go.example,direct"
    assert passed["PATH"] == "/opt/a@b/bin"
    assert command_environment(["HTTPS_PROXY"], given)["HTTPS_PROXY"] == given["HTTPS_PROXY"]
