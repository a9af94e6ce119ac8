"""Policies for use outside of a learner."""
