"""Rows and pages belong to requests: a step that finds another one's, or nobody's, is stale in every order.

Everything here runs on one stream and is well ordered; only what the engine says of its state can tell.
"""

from __future__ import annotations

import pytest
import torch

from racecheck import audit
from racecheck.engine import Engine, Parts, Request
from racecheck.engine.resources import KV, Sampler
from racecheck.engine.state import History
from racecheck.virtual import virtual_cuda


class RowKept(Sampler):
    """Leaves every third row as its last request left it."""

    admitted = 0

    def admit(self, request: Request, row: int) -> None:
        """Forgets about some."""
        self.admitted += 1
        if self.admitted % 3:
            super().admit(request, row)


class NextRow(Sampler):
    """Writes the settings of a request one row off."""

    def admit(self, request: Request, row: int) -> None:
        """Where they land on another request's, sooner or later."""
        super().admit(request, max(1, row - 1))


class TextOfNextRow(History):
    """Writes a request's text one row off."""

    def admit(self, request: Request, row: int) -> None:
        """As above."""
        super().admit(request, max(1, row - 1))


class Unpadded(Sampler):
    """Stages the rows of the batch, and leaves the rest of the bucket as an earlier step had it."""

    def layout(self, batch):
        """No padding."""
        return (torch.tensor([entry.row for entry in batch.entries]),)


class FreedWhileShared(KV):
    """Takes back all pages of a request, and hands them out at once."""

    def release(self, request_id: str) -> None:
        """Whoever else uses them."""
        pages = self._pages.get(request_id, [])
        super().release(request_id)
        self._free.extendleft(page for page in pages if page not in self._free)
        self._prefixes = {prefix: page for prefix, page in self._prefixes.items() if page not in pages}


class HandedOutTwice(KV):
    """Gives the last page of a request to the next one, too."""

    def reserve(self, request_id, prompt, length):
        """It stays in the list of free pages."""
        cached = super().reserve(request_id, prompt, length)
        if cached is not None:
            self._free.appendleft(self._pages[request_id][-1])
        return cached


def alike(requests: list[Request]) -> list[Request]:
    """The same requests, whose prompts begin alike."""
    prefix = requests[0].text[:8]
    return [Request(**vars(one) | {"prompt_tokens": 9, "text": [*prefix, *one.text[8:]]}) for one in requests]


@pytest.mark.parametrize(
    ("kind", "part", "buffer", "lag"),
    [
        ("sampler", RowKept, "sampler.rows.temperature", "latest"),
        ("sampler", NextRow, "sampler.rows.temperature", "seed:3"),
        ("sampler", Unpadded, "sampler.gather_indices (device)", "eager"),
        ("history", TextOfNextRow, "history.text", "latest"),
        ("kv", FreedWhileShared, "kv.keys", "latest"),
        ("kv", HandedOutTwice, "kv.keys", "eager"),
    ],
)
def test_state_of_others_is_stale(make, config, kind, part, buffer, lag):
    """The buffer is named, whatever the lag."""
    requests = alike(make(14, model="orpheus", last_arrival=20))
    with virtual_cuda(lag=lag), audit() as verdict:
        Engine(config("orpheus"), Parts(**{kind: part})).run(requests)
    assert (verdict.verdict, verdict.first.buffer) == ("stale", buffer)


@pytest.mark.parametrize("model", ["qwen3-tts", "orpheus"])
def test_shared_pages_and_rows_given_again_are_not(make, config, model):
    """The same requests on the engine as it is: prefixes are shared, rows go to the next request."""
    requests = alike(make(14, model=model, last_arrival=20))
    with virtual_cuda(lag="latest"), audit() as verdict:
        engine = Engine(config(model))
        engine.run(requests)
        (kv,) = [one for node in engine.model.nodes for one in node.resources if isinstance(one, KV)]
        assert (kv._pages, kv._contents, kv._prefixes) == ({}, {}, {})
    assert verdict.findings == []
