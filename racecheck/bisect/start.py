"""From what was typed to a finished bisection: check, lock, make the worktree, run, clean up."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from racecheck.bisect.child import Interrupts
from racecheck.bisect.chooser import make_chooser
from racecheck.bisect.git import Repository
from racecheck.bisect.judge import Judge
from racecheck.bisect.options import Asked, check_new, check_resumed
from racecheck.bisect.places import in_worktree, python_path
from racecheck.bisect.report import markdown
from racecheck.bisect.runner import Copied, Runner, copy_scenario
from racecheck.bisect.session import OnStep, Result, Session
from racecheck.bisect.state import Settings, State, Store
from racecheck.bisect.worktree import Worktree, choose_place
from racecheck.errors import BisectError, UsageError
from racecheck.words import counted

#: Beside the worktree, in the temporary folder.
CHOOSER = ".bisect"

Say = Callable[[str], None]


def bisect(path: Path, asked: Asked, *, resume: bool, say: Say, on_step: OnStep) -> tuple[bool, str]:
    """Bisect the repository at `path`: was the first bad commit found, and the report in Markdown.

    Raises:
        UsageError: an option, the repository or an end is wrong (one line).
        KeyboardInterrupt: a signal came; the state is kept, the worktree is gone.
    """
    repository = Repository(path)
    store = Store(repository.common)
    interrupts = Interrupts()
    with interrupts.caught(), store.locked():
        left = store.load() if resume else _leftover(store)
        if left is not None:
            Worktree(repository, Path(left.worktree)).remove()
        state = (
            check_resumed(repository, left, asked) if resume else _new(repository, store, asked, left, say)
        )
        state.worktree = str(choose_place(repository))
        store.save(state)
        result = _run(repository, store, state, interrupts, on_step, say)
        report = markdown(repository, state, result)
        _write(state.settings.output, report)
        _write(state.settings.log, result.log)
        store.drop()
    return result.first is not None, report


def _run(
    repository: Repository, store: Store, state: State, interrupts: Interrupts, on_step: OnStep, say: Say
) -> Result:
    worktree = Worktree(repository, Path(state.worktree))
    runner = _runner(state, worktree, repository.checkouts())
    judge = Judge(repository, worktree, runner, state, interrupts)
    try:
        worktree.create(state.settings.bad)
        session = Session(
            judge,
            store,
            state,
            interrupts,
            lambda: _announce(repository, state.settings, say),
            on_step,
            make_chooser(repository, worktree.path.parent / CHOOSER, state.settings.bad),
        )
        return session.run()
    except KeyboardInterrupt:
        kept = counted(len(state.records), "verdict")
        say(f"interrupted with {kept}, which stay; the same command with --resume goes on")
        raise
    except UsageError as error:
        if isinstance(error, BisectError) or not state.records:
            store.drop()  # going on would end the same way
        raise
    finally:
        worktree.remove()


def _runner(state: State, worktree: Worktree, checkouts: list[Path]) -> Runner:
    settings, scenario = state.settings, None
    if state.scenario is not None and settings.scenario is not None:
        told = in_worktree(os.path.dirname(settings.scenario), checkouts)
        scenario = Copied(Path(state.scenario), state.steps, told)
    path = python_path(state, checkouts)
    return Runner(settings, scenario, worktree.path, path, worktree.path.parent)


def _leftover(store: Store) -> State | None:
    """What a killed run left, to be cleaned up; a state file nobody can read is simply replaced."""
    try:
        return store.load()
    except UsageError:
        return None


def _new(repository: Repository, store: Store, asked: Asked, left: State | None, say: Say) -> State:
    settings = check_new(repository, asked)
    if left is not None:
        kept = counted(len(left.records), "verdict")
        say(f"an unfinished bisection ({kept}) is given up; --resume would have gone on")
        store.drop()
    state = State(settings=settings, worktree="")
    if settings.scenario is not None:
        shutil.rmtree(store.folder / "scenario", ignore_errors=True)
        copy, state.steps = copy_scenario(Path(settings.scenario), store.folder)
        state.scenario = str(copy)
    return state


def _announce(repository: Repository, settings: Settings, say: Say) -> None:
    """How long it may take, and what the user may not expect."""
    count = repository.count(
        settings.good, settings.bad, first_parent=settings.first_parent, paths=settings.paths
    )
    runs = math.ceil(math.log2(count)) + 2
    say(f"{counted(count, 'commit')} could be the first bad one: about {runs} runs, both ends included")
    held = repository.git.lines(
        "ls-tree", "-r", "--name-only", "-z", settings.bad, "--", ".gitmodules", "racecheck/cli.py"
    )
    if ".gitmodules" in held and settings.setup is None:
        say("submodules are not checked out; --setup 'git submodule update --init' does that")
    if "racecheck/cli.py" in held:
        say("this repository holds racecheck itself: each commit is judged by its own")


def _write(path: str | None, text: str) -> None:
    if path is None:
        return
    try:
        Path(path).write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(
            f"{path}: cannot be written ({error.strerror}); name another file, with --resume"
        ) from None
