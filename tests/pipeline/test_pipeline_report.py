from xml.etree import ElementTree

import pytest

from bcnet.pipeline.html import page, scatter
from bcnet.searchers import Candidate, SearchResult
from bcnet.space import Budget, Cost

EVALUATIONS = tuple(Candidate((n, 4), 90.0 + n, Cost(100 * n, 10 * n)) for n in (1, 2, 3))


def found(evaluations=EVALUATIONS) -> SearchResult:
    best = evaluations[-1]
    return SearchResult(best, evaluations, evaluations, (1.0,), Budget(macs=300), Cost(600, 60), seed=0)


def document(name="net") -> dict:
    networks = {
        key: {"macs": 600, "macs_ratio": 1.0, "params": 60, "test_top1": 99.5} for key in ("original", "uniform")
    }
    return {
        "model": name,
        "data": "digits",
        "networks": networks
        | {"searched": {"widths": [3, 4], "macs": 300, "macs_ratio": 0.5, "params": 30, "test_top1": 99.0}},
        "groups": [{"name": "first", "max_width": 8, "uniform": 5, "searched": 3}],
        "search": {
            "metric": "accuracy",
            "score": 97.0,
            "fresh_score": 96.0,
            "fresh_interval": [94.0, 98.0],
            "fresh_images": 144,
        },
        "seed": 0,
        "device": {"name": "CPU", "threads": 1},
        "versions": {"torch": "2"},
        "seconds": {"supernet": 3.0},
        "skipped_steps": {"supernet": 2, "final": 0},
    }


def test_the_scatter_has_a_dot_for_every_candidate():
    picture = ElementTree.fromstring(scatter(EVALUATIONS, EVALUATIONS, (2, 4)))
    assert len(picture.findall("g/circle")) == 3
    line = picture.find("polyline").attrib["points"].split()
    assert line == sorted(line, key=lambda point: float(point.split(",")[0]))
    assert len(line) == 3


def test_the_ring_is_around_the_trained_widths_not_the_best_score():
    picture = ElementTree.fromstring(scatter(EVALUATIONS, EVALUATIONS, (2, 4)))
    dots = [(dot.attrib["cx"], dot.attrib["cy"]) for dot in picture.findall("g/circle")]
    ring = picture.find("circle")
    assert (ring.attrib["cx"], ring.attrib["cy"]) == dots[1]


def test_one_candidate_is_no_division_by_zero():
    ElementTree.fromstring(scatter(EVALUATIONS[:1], EVALUATIONS[:1], (1, 4)))


def test_the_page_says_what_came_out():
    text = page(document(), found(), "<svg></svg>")
    for part in (
        "50% of the multiply-adds",
        "99.00 %",
        "99.50 %",
        "94.00 to 98.00",
        "144 images",
        "3 candidates",
        "supernet 2",
    ):
        assert part in text


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", '"><img src=x>'])
def test_names_are_text_not_markup(name):
    text = page(document(name), found(), "<svg></svg>")
    assert name not in text
