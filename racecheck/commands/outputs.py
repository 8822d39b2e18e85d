"""Files that commands write besides what they print, and the baseline that they compare with.

Files are opened before the work, not after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from racecheck.commands.paths import typed_path
from racecheck.errors import UsageError
from racecheck.report import markdown, sarif
from racecheck.report.outcome import Outcome

if TYPE_CHECKING:
    from racecheck.report.baseline import Baseline

SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", parser=typed_path, metavar="FILE", help="Write what was found as SARIF 2.1.0."),
]
MarkdownOption = Annotated[
    Path | None,
    typer.Option("--markdown", parser=typed_path, metavar="FILE", help="Write a summary in Markdown."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option("--baseline", parser=typed_path, metavar="FILE", help="The findings in FILE are known."),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", parser=typed_path, metavar="FILE", help="Write the report as one HTML file."),
]


def reserve(option: str, path: Path | None) -> None:
    """Make sure that `path` can be written; it is created if it is not there.

    Raises:
        UsageError: it cannot; the message names `option`.
    """
    if path is not None:
        _open(option, path, "a", "")


def save(option: str, path: Path | None, text: str) -> None:
    """Write `text` to `path`, if there is one. What UTF-8 cannot say is escaped."""
    if path is not None:
        _open(option, path, "w", text)


def _open(option: str, path: Path, mode: str, text: str) -> None:
    try:
        with path.open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(
            f"{option} {path}: cannot be written ({error.strerror}); name another file"
        ) from None


def save_for_ci(outcomes: Sequence[Outcome], *, to_sarif: Path | None, to_markdown: Path | None) -> None:
    """Write the formats that are wanted, and the summary of a step of GitHub Actions if this is one."""
    save("--sarif", to_sarif, sarif.render(outcomes))
    save("--markdown", to_markdown, markdown.render(outcomes))
    markdown.append_to_step_summary(outcomes)


def load_baseline(path: Path | None) -> Baseline | None:
    """The baseline in `path`, if there is one."""
    from racecheck.report import baseline

    return None if path is None else baseline.load(path)


def compared(outcomes: Sequence[Outcome], known: Baseline | None) -> Sequence[Outcome]:
    """`outcomes` with what the baseline knows of them."""
    from racecheck.report import baseline

    return outcomes if known is None else known.apply(outcomes, baseline.today())


def reasons(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Why findings are known, by fingerprint."""
    return {name: why for outcome in outcomes for name, why in outcome.known.items()}


def tell(outcomes: Sequence[Outcome], known: Baseline | None, file: IO[str]) -> None:
    """What the baseline comes to, a line an entry: known, expired, or not seen by this run."""
    from racecheck.report import baseline

    if known is not None:
        for line in baseline.described(known, outcomes, baseline.today()):
            print(line, file=file)
