"""What people do with a client, through the gateway as without it."""

from __future__ import annotations

import signal
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from bench.clients.programs import PROGRAMS, Place, Program
from bench.clients.script import Plan, expected_files, long_plan, plan_of_one_prompt, short_plan
from bench.clients.session import CENT, Desk, bill_of, open_desk, play, written

from everlong.agent.accounting import account
from everlong.config import Settings
from everlong.testing import Ask, Fault
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.matrix

WINDOW = 200_000
SMALL = 40_000
"""A window that a client is told so that it compacts long before the gateway would."""
RECALL = {"gateway": {"routes": {"*": {"recall": True}}}}
RESUMING = [name for name, program in PROGRAMS.items() if program.resumes]


def plan_for(program: Program) -> Plan:
    return short_plan() if program.resumes else plan_of_one_prompt(3, 300)


def answers_of(plan: Plan) -> list[str]:
    return [task.answer for task in plan.tasks if task.answer]


@pytest.mark.parametrize("recall", [False, True], ids=["", "recall"])
@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_a_client_does_and_says_the_same_as_without_a_gateway(program: Program, recall: bool) -> None:
    plan = plan_for(program)
    settings = RECALL if recall else None
    direct = play(program, plan, through_gateway=False, window=WINDOW)
    played = play(program, plan, through_gateway=True, window=WINDOW, settings=settings)
    assert played.files == direct.files == expected_files(plan)
    assert played.bill.refused == direct.bill.refused == []
    assert played.asked == direct.asked
    for answer in answers_of(plan):
        assert answer in " ".join(played.answers)
        assert answer in " ".join(direct.answers)
    assert played.problems == []


@pytest.mark.parametrize(
    "program", [name for name in RESUMING if name != "aider"], indirect=True
)  # aider reads its chat back from Markdown, as another text
def test_a_resumed_session_goes_on_in_the_same_conversation(program: Program) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        place = desk.place(plan)
        for number, task in enumerate(plan.tasks):
            assert task.answer in program.run(place, plan.prompt(number), resumes=number > 0)
        assert _conversations(desk) == 1
        has_one_row_and_every_dollar(desk, place)


def has_one_row_and_every_dollar(desk: Desk, place: Place) -> None:
    """The work is listed once, with its title and folder, and the books have what the upstream was paid."""
    with desk.store() as store:
        (one,) = store.conversations.newest()
        assert one.title
        assert one.folder == str(place.folder)
        paid = bill_of(desk.server.requests).dollars
        until(lambda: abs(account(store, Settings()).total.cost - paid) <= CENT)


def _conversations(desk: Desk) -> int:
    """Stored sessions in which something was done; titles are none."""
    sign = "call_at_" if desk.program.has_tools else "(task "
    with desk.store() as store:
        texts = [str(store.sessions.entries(session.id)) for session in store.sessions.newest()]
    return sum(sign in text for text in texts)


@pytest.mark.parametrize("program", RESUMING, indirect=True)
def test_a_cancelled_answer_does_not_stop_the_session(program: Program) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        place = desk.place(plan)
        _cancel_in_mid_stream(desk, place, plan.prompt(0))
        assert plan.tasks[0].answer in program.run(place, plan.prompt(0), resumes=True)
        assert plan.tasks[1].answer in program.run(place, plan.prompt(1), resumes=True)
        assert written(place) == expected_files(plan)
        assert desk.server.rejections == []
        with desk.store() as store:
            assert store.verify().problems == []


def _cancel_in_mid_stream(desk: Desk, place: Place, prompt: str) -> None:
    """Interrupt the client while the answer to its second request of work trickles in."""
    asked = threading.Event()
    slow_at = 2 if desk.program.has_tools else 1
    requests = 0

    def listen(ask: Ask) -> None:
        nonlocal requests
        if desk.program.has_tools and not ask.tools:
            return  # a title
        requests += 1
        if requests == slow_at:
            asked.set()
        elif requests == slow_at - 1:
            desk.server.fail_next(Fault("slow", seconds=1.0))

    if slow_at == 1:
        desk.server.fail_next(Fault("slow", seconds=1.0))
    desk.worker.listen = listen
    with desk.program.start(place, prompt) as process:
        assert asked.wait(PATIENCE)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2.0)  # it is reading the stream
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    desk.worker.listen = lambda _ask: None


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_two_at_once_with_the_same_words_do_not_disturb_each_other(program: Program) -> None:
    plan = plan_for(program)
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        places = [desk.place(plan, name) for name in ("left", "right")]
        prompts = [plan.prompt(number) for number in range(len(plan.tasks))]
        with ThreadPoolExecutor(2) as pool:
            printed = list(pool.map(lambda place: " ".join(program.talk(place, prompts)), places))
        for place, text in zip(places, printed, strict=True):
            assert all(answer in text for answer in answers_of(plan))
            assert written(place) == expected_files(plan)
        assert desk.server.rejections == []
        with desk.store() as store:
            assert store.verify().problems == []


@pytest.mark.parametrize("program", [name for name, program in PROGRAMS.items() if program.has_agents], indirect=True)
def test_a_sub_agent_works_in_a_conversation_of_its_own(program: Program) -> None:
    plan = short_plan(with_agent=True, waits=program.awaits_agents)
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        place = desk.place(plan)
        assert plan.tasks[0].answer in program.run(place, plan.prompt(0))
        assert desk.server.rejections == []
        assert any("Four hundred fish." in record.body.__str__() for record in desk.server.requests)
        assert _conversations(desk) == 2
        if program.names_agents:
            has_one_row_and_every_dollar(desk, place)


@pytest.mark.parametrize("program", ["claude-code"], indirect=True)
def test_the_clients_own_compaction_stays_in_its_conversation(program: Program) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        place = desk.place(plan)
        program.run(place, plan.prompt(0))
        program.run(place, "/compact", resumes=True)
        assert desk.worker.asked["own summary"] == 1
        assert plan.tasks[1].answer in program.run(place, plan.prompt(1), resumes=True)
        assert desk.server.rejections == []
        with desk.store() as store:
            assert store.verify().problems == []
            (one,) = store.conversations.newest()
            assert one.title is not None
            assert one.title.startswith(plan.tasks[0].words)
        has_one_row_and_every_dollar(desk, place)


@pytest.mark.parametrize("program", ["pi", "pi-openai", "opencode", "codex"], indirect=True)
def test_a_client_that_makes_room_for_itself_is_not_disturbed(program: Program) -> None:
    plan = long_plan(30, 3_000)
    played = play(program, plan, through_gateway=True, window=WINDOW, told_window=SMALL)
    assert played.own_compactions >= 1
    assert not played.compactions
    assert played.bill.refused == []
    assert played.files == expected_files(plan)
    assert played.problems == []
    assert played.rows == 1
    assert abs(played.booked - played.bill.dollars) <= CENT


@pytest.mark.parametrize("program", RESUMING, indirect=True)
def test_a_new_session_in_the_same_folder_knows_nothing_of_the_one_before(program: Program) -> None:
    plan = short_plan()
    # aider has neither a session's name nor a date in its requests: the same words again are the same request.
    numbers = (0, 0) if program.has_tools else (0, 1)
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        place = desk.place(plan)
        counts: list[int] = []
        for number in numbers:
            counts.append(len(desk.server.requests))
            assert plan.tasks[number].answer in program.run(place, plan.prompt(number))
        assert _conversations(desk) == 2
        first_of_second = desk.server.requests[counts[1]]
        assert plan.tasks[0].answer not in str(first_of_second.body)
        assert desk.server.rejections == []


@pytest.mark.parametrize("program", [name for name, program in PROGRAMS.items() if program.takes_lines], indirect=True)
def test_after_a_clear_typed_in_a_session_nothing_of_it_is_sent(program: Program) -> None:
    plan = short_plan()
    with open_desk(program, [plan], through_gateway=True, window=WINDOW) as desk:
        said = program.type_in(desk.place(plan), [plan.prompt(0), "/clear", plan.prompt(1)])
        assert all(task.answer in " ".join(said) for task in plan.tasks)
        assert _conversations(desk) == 2
        later = [record for record in desk.server.requests if plan.prompt(1) in str(record.body)]
        assert later
        assert not any(plan.tasks[0].answer in str(record.body) for record in later)
        assert desk.server.rejections == []
        with desk.store() as store:
            assert store.verify().problems == []
