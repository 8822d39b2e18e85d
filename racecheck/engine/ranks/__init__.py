"""Ranks: what several devices or processes that run one model must do together.

Every rank has a whole replica of the model and runs the same loop over the same requests; sharded weights
(true tensor parallelism) are out of scope. Where ranks must not part ways they make a collective call:
before each capture, when failed captures are dropped, for each plan and each launch, and for the results,
which are rank 0's on every rank. A rank that makes another call than the others, or none any more, is found
when it does so, by comparing names: nobody waits for a timeout.

    group.py         a group of one, and what all groups share
    local.py         ranks as threads of one process, each with a device of its own
    distributed.py   ranks as processes, over torch.distributed
"""

from racecheck.engine.ranks.group import Group
from racecheck.engine.ranks.local import LocalGroup

__all__ = ["Group", "LocalGroup"]
