"""The report: one self-contained page about a run, or about several side by side."""

from bcnet.report.write import finish, reported, write_comparison, write_report

__all__ = ["finish", "reported", "write_comparison", "write_report"]
