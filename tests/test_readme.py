"""The README shows what the tool prints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/bisect.md"])
def test_outputs_in_pages_are_current(page):
    """Every command's output is what the command prints today."""
    done = subprocess.run(
        [sys.executable, "docs/refresh.py", "--check", page],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_links_in_the_readme_exist():
    """Relative links lead somewhere."""
    import re

    text = (ROOT / "README.md").read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
