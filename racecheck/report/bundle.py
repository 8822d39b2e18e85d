"""Every format of a run's outcomes, as files of one folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from racecheck.report import markdown, pages, sarif
from racecheck.report.outcome import Outcome, as_dict


def write(folder: Path, outcomes: Sequence[Outcome], chapters: Sequence[str]) -> None:
    """Write `report.json`, `.sarif` and `.md` to `folder`; and of `chapters`, if there are any, `.html`."""
    plain = json.dumps(as_dict(outcomes), indent=2, ensure_ascii=False) + "\n"
    files = {"json": plain, "sarif": sarif.render(outcomes), "md": markdown.render(outcomes)}
    if chapters:
        files["html"] = pages.render(chapters)
    for ending, text in files.items():
        (folder / f"report.{ending}").write_text(text, encoding="utf-8")
