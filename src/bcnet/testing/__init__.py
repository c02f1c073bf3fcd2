"""Conformance tests for extensions of `bcnet`, for use with pytest."""

from bcnet.testing.searchers import SEARCHER_CHECKS, toy_space

__all__ = ["SEARCHER_CHECKS", "toy_space"]
