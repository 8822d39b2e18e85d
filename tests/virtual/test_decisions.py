"""Decision lists and the tokens that spell them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import racecheck
from racecheck.errors import UsageError
from racecheck.virtual.lag import Recording, Seeded
from racecheck.virtual.token import decisions_of, token_of


def late_copy(lag) -> list[float]:
    """A pinned block is rewritten behind its copy, and the device says what it got."""
    with racecheck.virtual_cuda(lag):
        host = torch.zeros(4, pin_memory=True)
        device = host.to("cuda", non_blocking=True)
        host.fill_(7)
        return device.tolist()


def test_an_empty_list_is_latest_and_one_decision_retires_the_copy():
    """0 is nothing special; 1 retires the oldest item of the first ready stream."""
    assert late_copy([]) == late_copy("latest") == [7.0] * 4
    assert late_copy([1, 1]) == late_copy("eager") == [0.0] * 4


def test_what_a_seed_decided_replays_as_a_list_and_as_a_token():
    """A recorded run and its replay see the same bytes."""
    for seed in range(20):
        recording = Recording(Seeded(seed))
        seen = late_copy(recording)
        assert late_copy(recording.decisions) == seen == late_copy(token_of(recording.decisions))


@given(st.lists(st.integers(0, 300)))
def test_a_token_spells_its_list_up_to_the_zeros_at_the_end(decisions):
    """Trailing zeros are nothing special twice over."""
    back = decisions_of(token_of(decisions))
    assert back == decisions[: len(back)]
    assert not any(decisions[len(back) :])


@given(st.lists(st.integers(0, 3), min_size=1), st.data())
def test_a_token_that_lost_or_changed_a_letter_is_refused(decisions, data):
    """Never taken for another run."""
    token = token_of(decisions)
    at = data.draw(st.integers(3, len(token) - 1))
    for broken in (token[:at], token[:at] + "!" + token[at + 1 :]):
        with pytest.raises(UsageError, match="complete token"):
            decisions_of(broken)


@pytest.mark.parametrize("lag", ["d1.", "d1.AAAA", "d2.AAAA", "late", "seed:-1", [0, -1]])
def test_no_lag(lag):
    """One line that says what to write."""
    with pytest.raises(UsageError), racecheck.virtual_cuda(lag):
        pass
