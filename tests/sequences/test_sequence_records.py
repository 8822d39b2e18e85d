"""What the pages say of the right engine's sequences is what the record has."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pages_quote_the_record() -> None:
    """Sequences, steps, rewrites and open windows; as many as asked for in each setting, and no finding."""
    record = json.loads((ROOT / "benchmarks" / "results" / "sequences_right.json").read_text("utf-8"))
    campaigns = record["campaigns"].values()
    totals = {
        name: sum(campaign[name] for campaign in campaigns)
        for name in ("sequences", "steps", "rewrites", "open_windows")
    }
    page, readme = ((ROOT / name).read_text("utf-8") for name in ("docs/sequences.md", "README.md"))
    assert all(f"{total:,}" in page for total in totals.values())
    assert f"{totals['sequences']:,} sequences found nothing" in readme
    assert len(campaigns) == 6
    assert all(campaign["sequences"] >= 10_000 and not campaign["findings"] for campaign in campaigns)
