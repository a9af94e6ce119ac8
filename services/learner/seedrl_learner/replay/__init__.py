"""Replay: keeps unrolls and samples them again by priority."""
