"""Bisecting: which commit brought a race, and which key of a configuration.

`git bisect` chooses the commits, in a worktree of its own; racecheck gives the verdicts. docs/bisect.md has
the rules.
"""
