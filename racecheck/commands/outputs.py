"""Files that a command writes besides what it prints, and the baseline that it compares with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from racecheck.commands.paths import typed_path
from racecheck.errors import UsageError
from racecheck.report import markdown, sarif
from racecheck.report.outcome import Outcome

if TYPE_CHECKING:
    from racecheck.report import baseline

Sarif = Annotated[
    Path | None,
    typer.Option("--sarif", parser=typed_path, metavar="FILE", help="Write what was found as SARIF 2.1.0."),
]
Markdown = Annotated[
    Path | None,
    typer.Option("--markdown", parser=typed_path, metavar="FILE", help="Write a summary in Markdown."),
]
Baseline = Annotated[
    Path | None,
    typer.Option("--baseline", parser=typed_path, metavar="FILE", help="Findings in FILE are known."),
]

_FORMATS: dict[str, Callable[[Sequence[Outcome]], str]] = {
    "--sarif": sarif.render,
    "--markdown": markdown.render,
}


def checked(files: Mapping[str, Path | None]) -> dict[str, Path]:
    """The files that are wanted, by option. What cannot be written is refused now, not after a long run."""
    wanted = {option: path for option, path in files.items() if path is not None}
    for option, path in wanted.items():
        if path.is_dir() or not path.parent.is_dir():
            wrong = "is a folder" if path.is_dir() else "lies in a folder that does not exist"
            raise UsageError(f"{path}:1: {wrong}; give {option} a file in an existing folder")
    return wanted


def write(outcomes: Sequence[Outcome], files: Mapping[str, Path]) -> None:
    """Write each of `files` in the format of its option; and the summary of a GitHub workflow's step."""
    for option, path in files.items():
        try:
            path.write_text(_FORMATS[option](outcomes), encoding="utf-8")
        except OSError as error:
            why = error.strerror
            raise UsageError(f"{path}:1: cannot be written ({why}); give {option} another file") from None
    markdown.append_to_step_summary(outcomes)


def load_baseline(path: Path | None) -> baseline.Baseline | None:
    """The baseline in `path`, if there is one."""
    from racecheck.report import baseline

    return None if path is None else baseline.load(path)


def compared(outcomes: Sequence[Outcome], known: baseline.Baseline | None) -> Sequence[Outcome]:
    """`outcomes` with what the baseline knows of them."""
    from racecheck.report import baseline

    return outcomes if known is None else known.apply(outcomes, baseline.today())


def reasons(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Why findings are known, by fingerprint."""
    return {name: why for outcome in outcomes for name, why in outcome.known.items()}


def tell(outcomes: Sequence[Outcome], known: baseline.Baseline | None, file: IO[str]) -> None:
    """What the baseline comes to, a line an entry: known, expired, or not seen by this run."""
    from racecheck.report import baseline

    if known is not None:
        for line in baseline.described(known, outcomes, baseline.today()):
            print(line, file=file)
