"""Evaluation reports: one self-contained HTML file with tables and plots."""

from ramify.report.contents import ModelReport, Report, Subject, make_report
from ramify.report.page import render_report

__all__ = ["ModelReport", "Report", "Subject", "make_report", "render_report"]
