"""Bisecting: which commit brought a race, which key of a configuration, and what one run says (`inside`).

`git bisect` chooses the commits, in a worktree of its own; racecheck gives the verdicts. docs/bisect.md has
the rules.
"""
