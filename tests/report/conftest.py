import pytest
from tiny_job import supernet_method
from tiny_job import tiny_supernet_search as tiny_search


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A finished run with its report."""
    return tiny_search(tmp_path_factory.mktemp("reports") / "whole", report=True)


@pytest.fixture(scope="session")
def other(tmp_path_factory):
    """Another one, of other settings."""
    return tiny_search(
        tmp_path_factory.mktemp("reports") / "other", report=True, seed=1, method=supernet_method(strategy="unilateral")
    )
