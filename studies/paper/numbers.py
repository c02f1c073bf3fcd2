"""What the paper reports for its own runs and its baselines, to be printed beside ours.

A line is: budget in MACs, method, millions of parameters, top-1 and top-5 in percent; "-" where the paper has none.
AutoSlim's figures are those of its authors, with distillation. Accuracies on CIFAR-10 are top-1.
"""

from __future__ import annotations

from dataclasses import dataclass

from studies.paper.networks import (
    CIFAR_MOBILENETV2,
    EFFICIENTNET,
    MOBILENETV2,
    PROXYLESSNAS,
    RESNET18,
    RESNET34,
    RESNET50,
    VGG19,
    WIDE_EFFICIENTNET,
    WIDE_MOBILENETV2,
    WIDE_PROXYLESSNAS,
    Network,
)


@dataclass(frozen=True)
class Reported:
    """One line of a table of the paper; `budget` is None for the original network."""

    network: Network
    budget: int | None
    method: str
    params: str
    top1: str
    top5: str


_UNITS = {"M": 10**6, "G": 10**9}


def _lines(network: Network, text: str) -> list[Reported]:
    found = []
    for line in text.strip().splitlines():
        budget, *rest = line.split()
        macs = None if budget == "-" else round(float(budget[:-1]) * _UNITS[budget[-1]])
        found.append(Reported(network, macs, *("" if part == "-" else part for part in rest)))
    return found


TABLE_1 = [
    *_lines(
        RESNET50,
        """
        -    original 25.5 77.5 -
        3G   autoslim 23.1 76.0 -
        3G   uniform  19.1 75.9 93.0
        3G   random   -    75.2 92.5
        3G   bcnet    22.6 77.3 93.7
        2G   autoslim 20.6 75.6 -
        2G   uniform  13.3 75.1 92.7
        2G   random   -    74.6 92.2
        2G   bcnet    18.4 76.9 93.3
        1G   autoslim 13.3 74.0 -
        1G   uniform  6.9  73.1 91.8
        1G   random   -    72.2 91.4
        1G   bcnet    12   75.2 92.6
        570M autoslim 7.4  72.2 -
        570M uniform  6.9  71.6 90.6
        570M random   -    69.4 90.3
        570M bcnet    12.0 73.2 91.1
        """,
    ),
    *_lines(MOBILENETV2, "- original 3.5 72.6 -"),
    *_lines(
        WIDE_MOBILENETV2,
        """
        305M autoslim         5.7 74.2 -
        305M uniform          3.6 72.7 90.7
        305M random           -   71.8 90.2
        305M bcnet            4.8 73.9 91.5
        305M bcnet-distilled  4.8 74.7 92.2
        """,
    ),
    *_lines(
        MOBILENETV2,
        """
        217M uniform          2.7 71.6 89.9
        217M random           -   71.1 89.6
        217M bcnet            3.0 72.5 90.6
        217M bcnet-distilled  3.0 73.5 91.3
        207M autoslim         4.1 73.0 -
        207M uniform          2.7 71.2 89.6
        207M random           -   70.5 89.2
        207M bcnet            3.1 72.3 90.4
        207M bcnet-distilled  3.1 73.4 91.2
        105M uniform          1.5 65.1 89.6
        105M random           -   63.9 89.2
        105M bcnet            2.3 68.0 89.1
        105M bcnet-distilled  2.3 69.0 89.9
        50M  uniform          0.9 59.7 82.0
        50M  random           -   57.4 81.2
        50M  bcnet            1.6 62.7 83.7
        50M  bcnet-distilled  1.6 63.8 84.6
        """,
    ),
]
TABLE_2 = [
    *_lines(
        WIDE_EFFICIENTNET,
        """
        385M uniform 5.3 76.88 92.64
        385M random  5.1 76.37 92.25
        385M bcnet   6.9 77.36 93.17
        """,
    ),
    *_lines(
        EFFICIENTNET,
        """
        192M uniform 2.7 74.26 92.24
        192M random  2.9 73.82 91.86
        192M bcnet   3.8 74.92 92.06
        """,
    ),
    *_lines(
        WIDE_PROXYLESSNAS,
        """
        320M uniform 4.1 74.62 91.78
        320M random  4.3 74.16 91.23
        320M bcnet   5.4 75.07 91.97
        """,
    ),
    *_lines(
        PROXYLESSNAS,
        """
        160M uniform 2.2 71.16 89.49
        160M random  2.5 70.89 89.12
        160M bcnet   2.9 71.87 89.96
        """,
    ),
]
TABLE_3 = [
    *_lines(
        CIFAR_MOBILENETV2,
        """
        -    original 2.2 94.81 -
        200M uniform  1.5 94.57 -
        200M random   -   94.20 -
        200M bcnet    1.5 95.44 -
        146M uniform  1.1 94.32 -
        146M random   -   93.85 -
        146M bcnet    1.2 95.42 -
        88M  autoslim 1.5 93.20 -
        59M  autoslim 0.7 93.00 -
        44M  uniform  0.3 92.88 -
        44M  random   -   92.31 -
        44M  bcnet    0.4 94.42 -
        28M  autoslim 0.3 92.00 -
        28M  uniform  0.2 92.37 -
        28M  random   -   91.69 -
        28M  bcnet    0.2 94.02 -
        """,
    ),
    *_lines(
        VGG19,
        """
        -    original 20   93.99 -
        199M uniform  10.0 93.45 -
        199M random   -    93.02 -
        197M bcnet    3.1  94.36 -
        185M uniform  9.3  93.30 -
        185M random   -    92.71 -
        185M bcnet    6.7  94.14 -
        138M uniform  6.8  93.14 -
        138M random   -    92.17 -
        138M bcnet    3.3  94.09 -
        77M  uniform  3.9  92.38 -
        77M  random   -    91.72 -
        77M  bcnet    1.2  93.53 -
        """,
    ),
]
TABLE_8 = [
    *_lines(
        RESNET34,
        """
        -     original 21.8 74.9 -
        2.7G  uniform  -    72.3 90.8
        2.7G  random   -    71.4 90.6
        2.7G  bcnet    20.2 74.9 92.4
        2.5G  bcnet    20.0 74.6 92.2
        1.8G  uniform  -    71.5 90.2
        1.8G  random   -    70.9 89.8
        1.8G  bcnet    16.9 73.3 91.4
        0.9G  uniform  -    69.6 89.5
        0.9G  random   -    68.8 88.7
        0.9G  bcnet    9.6  72.2 89.8
        0.36G uniform  -    59.6 82.1
        0.36G random   -    56.4 80.7
        0.36G bcnet    3.6  64.4 85.7
        """,
    ),
    *_lines(
        MOBILENETV2,
        """
        150M uniform          2.0 69.3 88.9
        150M random           -   68.8 88.7
        150M bcnet            2.9 70.2 89.2
        150M bcnet-distilled  2.9 71.2 89.6
        """,
    ),
    *_lines(
        RESNET18,
        """
        -    original 11.7 71.5 -
        1.2G uniform  8.5  68.8 88.5
        1.2G random   -    68.4 88.1
        1.2G bcnet    11.6 71.3 90.1
        0.9G uniform  6.0  67.1 87.5
        0.9G random   -    66.7 87.1
        0.9G bcnet    9.8  69.9 89.1
        450M uniform  2.9  61.6 83.6
        450M random   -    59.8 82.3
        450M bcnet    4.9  65.8 86.4
        """,
    ),
]

# Top-1 of Table 4 in the order of its lines, each a supernet's strategy and the search: networks in columns.
TABLE_4_NETWORKS = {MOBILENETV2: 150_000_000, RESNET50: 2 * 10**9, EFFICIENTNET: 192_000_000, PROXYLESSNAS: 160_000_000}
TABLE_4 = {
    ("unilateral", "greedy"): ("69.52", "75.64", "74.02", "70.97"),
    ("bilateral", "greedy"): ("69.87", "76.30", "74.39", "71.24"),
    ("complementary", "greedy"): ("69.91", "76.42", "74.51", "71.33"),
    ("unilateral", "evolution-without-prior"): ("69.64", "76.12", "74.35", "71.13"),
    ("bilateral", "evolution-without-prior"): ("69.92", "76.41", "74.63", "71.48"),
    ("complementary", "evolution-without-prior"): ("70.04", "76.56", "74.73", "71.62"),
    ("complementary", "evolution"): ("70.20", "76.90", "74.92", "71.87"),
}

# Table 5: training and searching of a UA supernet, times the usual, and top-1 of ResNet50 and MobileNetV2.
TABLE_5_NETWORKS = {RESNET50: 2 * 10**9, MOBILENETV2: 150_000_000}
TABLE_5 = {
    (1.0, 1.0): ("75.63", "68.95"),
    (2.0, 1.0): ("75.65", "68.98"),
    (1.0, 2.0): ("75.74", "69.03"),
    (2.0, 2.0): ("75.72", "69.06"),
}
