"""Stands in for the package `gfootball`, which has to be built."""
