"""The contract of context engines, as tests that an author runs on an engine.

    from everlong.testing import EngineContract

    class TestMyEngine(EngineContract):
        make_engine = MyEngine

`check_engine` does the same without pytest and returns the breaches as sentences. Each names its clause, which
docs/engine-contract.md explains. Needs ``everlong[testing]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from everlong.plugins.running import CALL_SECONDS
from everlong.testing.engine_contract.compacting import COMPACTING
from everlong.testing.engine_contract.hosting import LIVING, SHAPE
from everlong.testing.engine_contract.subject import CallOverran, ContractBroken, MakeEngine, Workbench

__all__ = ["CLAUSES", "EngineContract", "check_engine"]

CLAUSES: dict[str, tuple[Callable[[Workbench], None], ...]] = {**SHAPE, **COMPACTING, **LIVING}
"""Every clause of the contract, by its heading in docs/engine-contract.md, with its checks."""

CONTEXT_LENGTH = 16_000
EXAMPLES = 12
MOST_SECONDS = 1_000_000


def check_engine(
    make: MakeEngine,
    *,
    context_length: int = CONTEXT_LENGTH,
    examples: int = EXAMPLES,
    clause: str | None = None,
    seconds: float | None = CALL_SECONDS,
) -> list[str]:
    """Return an engine's breaches of the contract, a sentence each that begins with the clause.

    Args:
        make: the engine's class, or a function that makes a new one; called with ``context_length`` if it takes that.
        context_length: the window of the engines; choose a larger one for an engine that needs it.
        examples: the number of generated conversations for each rule; they are always the same.
        clause: check this clause only.
        seconds: the time for one call of the engine; a call that takes longer is the last finding, because it may
            still be running. None for no limit, as for a debugger.
    """
    if clause is not None and clause not in CLAUSES:
        raise ValueError(f"clause is {clause!r}; the clauses are {', '.join(CLAUSES)}")
    if seconds is not None and not 0 < seconds <= MOST_SECONDS:
        raise ValueError(f"seconds is {seconds!r}; use a number above 0, up to {MOST_SECONDS:,}, or None for no limit")
    bench = Workbench(make, context_length, examples, seconds)
    try:
        return list(dict.fromkeys(_findings(bench, list(CLAUSES) if clause is None else [clause])))
    finally:
        bench.close()


def _findings(bench: Workbench, clauses: Sequence[str]) -> Iterator[str]:
    """Yield the breaches; the last one if a call does not return."""
    try:
        bench.bare()
    except ContractBroken as broken:
        yield f"Making one: {broken}"
        return
    for clause in clauses:
        for check in CLAUSES[clause]:
            try:
                check(bench)
            except ContractBroken as broken:
                yield f"{clause}: {broken}"
                if isinstance(broken, CallOverran):
                    return


class EngineContract:
    """The base of a test class for an engine; pytest runs a test for every clause.

    ``make_engine`` is the engine's class, or a method that makes a new engine each time. If engines keep files, give
    each a folder of its own.
    """

    make_engine: ClassVar[Any] = None
    context_length: ClassVar[int] = CONTEXT_LENGTH
    examples: ClassVar[int] = EXAMPLES
    seconds: ClassVar[float | None] = CALL_SECONDS

    def _check(self, clause: str) -> None:
        __tracebackhide__ = True  # show the author what the engine did, not where the kit noticed it
        make = self.make_engine
        if make is None:
            raise AssertionError(f"{type(self).__name__} has no make_engine; set it to the class of your engine")
        findings = check_engine(
            make, context_length=self.context_length, examples=self.examples, clause=clause, seconds=self.seconds
        )
        if findings:
            raise AssertionError("\n\n".join(findings))


def _test_of(clause: str) -> Callable[[EngineContract], None]:
    def test(self: EngineContract) -> None:
        __tracebackhide__ = True
        self._check(clause)

    test.__name__ = f"test_{clause.lower().replace(' ', '_')}"
    test.__qualname__ = f"EngineContract.{test.__name__}"
    test.__doc__ = f"The clause {clause!r} of docs/engine-contract.md."
    return test


for _clause in CLAUSES:
    _made = _test_of(_clause)
    setattr(EngineContract, _made.__name__, _made)
