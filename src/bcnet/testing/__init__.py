"""Tests that extensions of `bcnet` must pass, for use from pytest."""

from bcnet.testing.searchers import SEARCHER_CHECKS, toy_space

__all__ = ["SEARCHER_CHECKS", "toy_space"]
