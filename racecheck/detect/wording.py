"""Repairs in words: what is to be synchronised, and where that goes."""

from __future__ import annotations

from racecheck.detect.finding import Finding


def in_one_launch(finding: Finding) -> bool:
    """Are both accesses nodes of one replay?"""
    first, second = finding.pairs[0]
    return first.record is second.record


def wait_text(finding: Finding) -> str:
    """The synchronisation that orders the two accesses, and where it goes."""
    first, second = finding.first, finding.second
    if in_one_launch(finding):
        return f"in the capture, record an event after {first.loc} and wait for it before {second.loc}"
    if not first.is_device:
        hand_over = "hand over from" if second.is_device else "synchronise with"
        return f"{hand_over} {first.chain} (after {first.line}) before {second.line}"
    waits_on_host = not second.is_device or reads_any_time(finding)
    wait = "wait for it on the host" if waits_on_host else f"make {second.chain} wait for it"
    return f"record an event on {first.chain} after {first.line} and {wait} before {second.line}"


def temporary_text(finding: Finding) -> str:
    """Where the rewrite would go instead."""
    second = finding.second
    if second.line == str(second.loc):
        return f"write a fresh pinned temporary at {second.loc} instead of {finding.buffer}"
    return f"fill a fresh pinned temporary instead of {second.line}"


def reads_any_time(finding: Finding) -> bool:
    """Does the second access follow only its call? Then the host must wait before that."""
    second = finding.pairs[0][1]
    return second.node is not None and bool(second.node.any_reads) and not second.is_write
