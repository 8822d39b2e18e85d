"""Serve a workload on several ranks: as threads of this process, or as processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._C._distributed_c10d import TCPStore
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

from racecheck.engine.config import EngineConfig, Parts
from racecheck.engine.engine import Engine
from racecheck.engine.errors import CollectiveMismatch, RankLost
from racecheck.engine.ranks import Group, LocalGroup
from racecheck.engine.request import Request
from racecheck.engine.worker import OnStep, Tokens
from racecheck.errors import UsageError

#: How ranks may meet: in this process, or as processes over a backend of torch.distributed.
GROUPS = ("local", "gloo", "nccl")


@dataclass(frozen=True)
class Job:
    """What every rank does: the same engine over the same requests. `around` is entered by each process."""

    config: EngineConfig
    parts: Parts
    requests: Sequence[Request]
    steps: int | None
    around: Callable[[], AbstractContextManager[object]]

    def run(self, group: Group, on_step: OnStep | None = None) -> Tokens:
        """Serve as one rank of `group`, on the current device; leave it in the end."""
        with group:
            return Engine(self.config, self.parts, group).run(self.requests, self.steps, on_step)


def run_ranks(
    config: EngineConfig,
    requests: Sequence[Request],
    size: int,
    *,
    parts: Parts | None = None,
    group: str = "local",
    steps: int | None = None,
    on_step: OnStep | None = None,
    around: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> list[Tokens]:
    """What `requests` get on each of `size` ranks, by rank; equal lists, as all hand out rank 0's results.

    `group` is "local": a thread and a device for each rank, under whatever context is open; or "gloo" or
    "nccl": a process for each rank, which enters `around()` first, for example
    `functools.partial(racecheck.virtual_cuda, lag="latest")`. What processes get must be picklable, and a
    script needs its `if __name__ == "__main__"`. `on_step(batch)` is called for rank 0 of a local group.

    Raises:
        CollectiveMismatch: ranks made different calls. An error that made one leave is raised instead.
        RankLost: a process died.
        UsageError: an unknown group, or fewer devices than ranks.
    """
    if group not in GROUPS:
        raise UsageError(f"no group {group!r} of ranks; write one of {', '.join(GROUPS)}")
    if size < 1:
        raise UsageError(f"ranks must be 1 or more, not {size}")
    job = Job(config, parts or Parts(), requests, steps, around)
    if group == "local":
        return _outcomes([_Outcome(rank, job, own, on_step) for rank, own in enumerate(_local(size))])
    with tempfile.TemporaryDirectory(prefix="racecheck-ranks-") as folder:
        return _spawn(job, size, group, Path(folder))


# -- threads ---------------------------------------------------------------------------------------


def _local(size: int) -> Sequence[Group]:
    have = torch.cuda.device_count()
    if have < size:
        raise UsageError(
            f"{size} ranks in one process need {size} devices, and there are {have}; "
            f"on the virtual device write virtual_cuda(devices={size})"
        )
    return LocalGroup.create(size) if size > 1 else [Group()]


class _Outcome(threading.Thread):
    """One rank's thread, and what it came to."""

    def __init__(self, rank: int, job: Job, group: Group, on_step: OnStep | None) -> None:
        super().__init__(name=f"rank {rank}")
        self._rank, self._job, self._group = rank, job, group
        self._on_step = None if rank else on_step
        self.came_to: Tokens | BaseException = {}

    def run(self) -> None:
        """Serve on the device of the rank's number."""
        try:
            torch.cuda.set_device(self._rank)
            self.came_to = self._job.run(self._group, self._on_step)
        except BaseException as error:
            self.came_to = error


def _outcomes(threads: Sequence[_Outcome]) -> list[Tokens]:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _judge([thread.came_to for thread in threads])


def _judge(outcomes: Sequence[Tokens | BaseException]) -> list[Tokens]:
    """The tokens by rank; an error is raised, and rather a cause than the mismatch that follows from it."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    for error in sorted(errors, key=lambda error: isinstance(error, CollectiveMismatch)):
        raise error
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


# -- processes -------------------------------------------------------------------------------------


def _spawn(job: Job, size: int, backend: str, folder: Path) -> list[Tokens]:
    """A process for each rank. The store they compare their calls in is this process's."""
    # A server imports torch once, starts no device, and forks every rank.
    multiprocessing.set_forkserver_preload(["__main__", __name__])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    raised: Exception | None = None
    try:
        start_processes(_process, (size, job, backend, store.port, folder), size, start_method="forkserver")
    except ProcessExitedException as error:
        raise RankLost(
            f"the process of rank {error.error_index} has ended with exit code {error.exit_code} and said "
            "nothing; the other ranks were ended too: look for its last words on stderr"
        ) from None
    except ProcessRaisedException as error:
        raised = error
    tokens = _judge([pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())])
    if raised is not None:
        raise raised  # it could not even leave its error in the folder: this has it as text
    return tokens


def _process(rank: int, size: int, job: Job, backend: str, port: int, folder: Path) -> None:
    """One rank's process: what torchrun would set, then the same as in a thread."""
    from racecheck.engine.ranks.distributed import DistributedGroup

    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # the launcher has the store, as torchrun has
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    came_to: Tokens | BaseException
    try:
        with job.around():
            if backend == "nccl":
                torch.cuda.set_device(rank)
            came_to = job.run(DistributedGroup.join(backend))
    except BaseException as error:
        came_to = error
    (folder / f"{rank:05}").write_bytes(pickle.dumps(came_to))
    if isinstance(came_to, BaseException) and not isinstance(came_to, CollectiveMismatch):
        raise came_to  # the others may be waiting outside of every call, while the group forms
