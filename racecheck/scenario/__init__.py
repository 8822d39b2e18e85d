"""Scenario files: a model, a workload and the verdicts its runners must come to."""
