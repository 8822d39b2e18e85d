"""The folder that `racecheck exec` puts on a program's path."""
