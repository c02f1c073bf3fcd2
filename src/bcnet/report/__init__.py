"""The report: one self-contained page about a run, or about several side by side."""

from bcnet.report.write import finish, report_outcome, write_comparison, write_report

__all__ = ["finish", "report_outcome", "write_comparison", "write_report"]
