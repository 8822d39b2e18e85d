"""`racecheck litmus --device cuda`: litmus programs on a real GPU."""

from __future__ import annotations

import faulthandler
import json as jsonlib
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date
from typing import TYPE_CHECKING, Any

from racecheck.errors import UsageError
from racecheck.litmus import Judgement

if TYPE_CHECKING:
    from racecheck.litmus.on_gpu import Row
    from racecheck.litmus.witness import Bench

FORMAT = "racecheck-litmus-cuda/1"
#: Seconds for one program, after which the process ends with a traceback: the GPU hangs.
HARD_LIMIT_S = 180


def on_cuda(judged: list[Judgement], tries: int, *, json: bool) -> bool:
    """Run the programs on the GPU and print a line each as they end (with `json` to stderr); all as expected?

    Raises:
        UsageError: there is no GPU, or none of the programs can be written in PyTorch.
    """
    from racecheck.litmus.on_gpu import gpu_bench

    with _hard_limit() as again, gpu_bench() as bench:
        return report(judged, bench, tries, again, json=json)


def report(judged: list[Judgement], bench: Bench, tries: int, again: Any, *, json: bool = False) -> bool:
    """Run the programs on `bench`; `again()` is called before each."""
    width = max((len(each.program.path) for each in judged), default=0)
    done: list[tuple[Judgement, Row]] = []
    for each, row in _rows(judged, bench, tries, again):
        done.append((each, row))
        outcome = "--" if row.skipped else "ok" if row.ok else "FAIL"
        line = f"{each.program.path:{width}}  {each.program.expect:5}  {outcome:4}  {row}"
        print(line, file=sys.stderr if json else sys.stdout, flush=True)
    if json:
        print(jsonlib.dumps(record(done, len(judged), tries), indent=2, ensure_ascii=False))
    else:
        print(f"\n{_summary(done, len(judged))}")
    if judged and all(row.skipped for _, row in done):
        raise UsageError("none of these programs can be written in PyTorch; judge them without --device")
    return len(done) == len(judged) and all(row.ok for _, row in done)


def _rows(
    judged: Iterable[Judgement], bench: Bench, tries: int, again: Any
) -> Iterator[tuple[Judgement, Row]]:
    """A row for each program, up to one after which the GPU is lost."""
    from racecheck.litmus.on_gpu import row

    for each in judged:
        again()
        made = row(each, bench, tries)
        yield each, made
        if made.fatal:
            print("the GPU is lost to this process; what was done so far is above", file=sys.stderr)
            return


def _summary(done: list[tuple[Judgement, Row]], asked: int) -> str:
    run = [row for _, row in done if not row.skipped]
    shown = [row.witness for row in run if row.witness]
    text = [
        f"expected and seen: {sum(row.ok for row in run)} of {len(run)}",
        f"wrong bytes in {sum(bool(w.wrong) for w in shown)}",
        f"never wrong in {sum(not w.wrong and not w.not_forced and w.inconclusive < w.tries for w in shown)}",
        f"not forced {sum(bool(w.not_forced) for w in shown)}",
        f"inconclusive {sum(bool(w.inconclusive) for w in shown)}",
        f"cannot be written in PyTorch {len(done) - len(run)}",
    ]
    if len(done) < asked:
        text.append(f"not run {asked - len(done)}")
    return "; ".join(text)


def record(done: list[tuple[Judgement, Row]], asked: int, tries: int) -> dict[str, Any]:
    """Everything as plain data, with the versions it was seen with."""
    import torch

    programs = [
        {"path": each.program.path, "expected": each.program.expect, "judged": each.verdict, **asdict(row)}
        for each, row in done
    ]
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    if torch.cuda.is_available():
        versions |= {"driver": _driver(), "gpu": torch.cuda.get_device_name()}
    head = {"format": FORMAT, "date": date.today().isoformat(), **versions, "tries": tries}
    return {**head, "summary": _summary(done, asked), "programs": programs}


def _driver() -> str:
    command = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return said.split("\n")[0].strip()


@contextmanager
def _hard_limit() -> Iterator[Any]:
    """End the process when it hangs: calling the value gives it `HARD_LIMIT_S` seconds from now."""

    def again() -> None:
        faulthandler.dump_traceback_later(HARD_LIMIT_S, exit=True, file=2)

    again()
    try:
        yield again
    finally:
        faulthandler.cancel_dump_traceback_later()
