"""Known regressions of staging, each one wrong engine part, and what must be found of it."""
