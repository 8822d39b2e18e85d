"""A small workload for several ranks, in a module that a spawned process can import."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from racecheck import audit
from racecheck.engine import EngineConfig, Request, preset
from racecheck.engine.models.spec import Qwen3TTSSpec
from racecheck.engine.ranks import Group
from racecheck.engine.runners import GraphKey, MainRunner
from racecheck.virtual import virtual_cuda


@contextmanager
def judged(folder: Path) -> Iterator[None]:
    """A late virtual device and an audit, whose verdict is left in `folder`."""
    try:
        with virtual_cuda(lag="latest"), audit() as judge:
            yield
    finally:
        story = "".join(finding.missing for finding in judge.findings)
        (folder / os.environ["RANK"]).write_text(f"{judge.verdict}: {story}")


def config(buckets: tuple[int, ...] = (4,), **changes: Any) -> EngineConfig:
    """The tiny model with few graphs: most of a test's time is capture."""
    spec = preset("qwen3-tts", "tiny")
    assert isinstance(spec, Qwen3TTSSpec)
    talker = replace(spec.talker, limits=replace(spec.talker.limits, buckets=buckets))
    return EngineConfig(
        spec=replace(spec, talker=talker, codec=replace(spec.codec, buckets=buckets)), **changes
    )


def requests() -> list[Request]:
    """Four that come one after another, and leave at different steps."""
    return [
        Request(f"r{i}", 2 * i, 8 + i % 2, 2 + i, 0.6 + 0.1 * i, 1000 + i, [3 * i + 1] * 20) for i in range(4)
    ]


class KilledMain(MainRunner):
    """Rank 1 is killed at its first capture, as by a kernel that is out of memory: it says nothing."""

    def try_capture(self, key: GraphKey, group: Group) -> bool:
        """Capture, or die."""
        if group.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().try_capture(key, group)
