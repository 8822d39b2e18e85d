"""The commands of the command line, one module each; `racecheck.cli` puts them together."""
