"""Known regressions of real engines, each as parts that replace right ones of the reference engine."""
