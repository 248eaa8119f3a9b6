"""Work in several processes, each with adapters of its own."""

from __future__ import annotations

import atexit
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from typing import NamedTuple, TypeVar

from bench.public.peers import Adapter, adapters

__all__ = ["WorkReport", "in_processes"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class WorkReport(NamedTuple):
    """The failures, missing methods and versions of some work, beside its results."""

    failures: dict[str, list[str]]
    """The reasons of compactions that did not come about, by method."""
    missing: dict[str, str]
    """The reasons why a method could not be had."""
    versions: dict[str, str]


def in_processes(
    name: str,
    items: Sequence[Item],
    methods: Sequence[str],
    work: Callable[[Item, Adapter], list[Result]],
    jobs: int = 2,
) -> tuple[list[Result], WorkReport]:
    """Return the results of every item with every method, process by process, and what the work told."""
    if jobs == 1:
        results, done = _work(name, items, work, *_kept_adapters(tuple(methods)))
        return results, done
    parts = [(name, items[first::jobs], tuple(methods), work) for first in range(jobs)]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        found = pool.starmap(_work_alone, [part for part in parts if part[1]], chunksize=1)
    failures: dict[str, list[str]] = {}
    missing: dict[str, str] = {}
    versions: dict[str, str] = {}
    for _, done in found:
        for method, reasons in done.failures.items():
            failures.setdefault(method, []).extend(reasons)
        missing.update(done.missing)
        versions.update(done.versions)
    return [result for results, _ in found for result in results], WorkReport(failures, missing, versions)


def _work_alone(
    name: str, items: Sequence[Item], methods: Sequence[str], work: Callable[[Item, Adapter], list[Result]]
) -> tuple[list[Result], WorkReport]:
    """Work in a process that was started for this."""
    with adapters(methods) as (running, missing):
        return _work(name, items, work, running, missing)


def _work(
    name: str,
    items: Sequence[Item],
    work: Callable[[Item, Adapter], list[Result]],
    running: Sequence[Adapter],
    missing: dict[str, str],
) -> tuple[list[Result], WorkReport]:
    results: list[Result] = []
    for adapter in running:
        adapter.failures.clear()
    for number, item in enumerate(items, 1):
        for adapter in running:
            results += work(item, adapter)
        print(f"public: {name}, {number} of {len(items)} in this process", file=sys.stderr, flush=True)
    failures = {adapter.method.name: list(adapter.failures) for adapter in running if adapter.failures}
    versions = {package: version for adapter in running for package, version in adapter.versions.items()}
    return results, WorkReport(failures, dict(missing), versions)


@cache
def _kept_adapters(methods: tuple[str, ...]) -> tuple[list[Adapter], dict[str, str]]:
    """Return adapters of this process, which stay for all parts of the benchmark."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(adapters(methods))
