"""Report of one run, finished or not."""

from __future__ import annotations

from bcnet.methods import SupernetMethod, Trainings
from bcnet.report import candidates, latency, losses, provenance
from bcnet.report.candidates import profile_data
from bcnet.report.evidence import Evidence
from bcnet.report.generations import progress_section, word_for, worth_section
from bcnet.report.html import page_heading, paragraph
from bcnet.report.images import classes_section, examples_section
from bcnet.report.layers import layers_section, ratios_section
from bcnet.report.page import page
from bcnet.report.summary import facts, headline, results, stage_states, tiles
from bcnet.report.supernet import fairness_section, prior_section


def report_page(evidence: Evidence) -> str:
    """Return the HTML page about a run."""
    sections = [results(evidence), candidates.section(evidence), ratios_section(evidence), layers_section(evidence)]
    sections.append(latency.section(evidence))
    by_class = classes_section(evidence)
    if by_class is not None:
        sections.append(by_class)
    if evidence.settings.options.examples:
        sections.append(examples_section(evidence))
    settings = evidence.settings
    if word_for(settings) is not None:
        sections.append(progress_section(evidence))
    if isinstance(settings.method, Trainings) and settings.method.searcher == "model":
        sections.append(worth_section(evidence))
    if isinstance(settings.method, SupernetMethod) and settings.method.needs_prior:
        sections.append(prior_section(evidence))
    sections.append(losses.section(evidence))
    if settings.method.trains_supernet:
        sections.append(fairness_section(evidence))
    sections += [provenance.time_section(evidence), provenance.configuration_section(evidence)]
    top = page_heading(evidence.name) + paragraph(headline(evidence), "headline")
    top += stage_states(evidence) + tiles(evidence) + facts(evidence)
    return page(evidence.name, top, sections, _footer(evidence), profile_data(evidence))


def _footer(evidence: Evidence) -> str:
    made = "Made by bcnet" if evidence.result is None else f"Made by bcnet {evidence.result.versions['bcnet']}"
    return f"{made} from the run's files only; MACs are multiply-adds of convolutions and linear layers."
