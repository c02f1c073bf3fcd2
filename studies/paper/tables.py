"""The paper's experiments as lists of jobs: what is to be run for each table and figure, and how it is drawn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.paper import pictures as pictures
from studies.paper.jobs import AUTOSLIM, METHODS, USUAL, Job
from studies.paper.networks import (
    AUTOSLIM_MOBILENETV2,
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
from studies.paper.numbers import (
    TABLE_1,
    TABLE_2,
    TABLE_3,
    TABLE_4,
    TABLE_4_NETWORKS,
    TABLE_5,
    TABLE_5_NETWORKS,
    TABLE_8,
    Reported,
)
from studies.paper.workshop import Plan, Workshop
from studies.shared.cells import Cell

M = 10**6
G = 10**9
GROUP_SIZES = (5, 10, 14, 18, 20, 22, 26, 30)  # K of Fig. 4
EVALUATED = (100, 200, 500, 1000, 1500, 2000)  # of Fig. 6, the last being the whole search
SUPERNET_EPOCHS = (30, 60, 120, 180, 240, 300)  # of Fig. 8, the last being the recipe's


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper: `show(rows, file)` draws the rows of finished cells."""

    title: str
    jobs: Sequence[Job]
    show: Callable[[Sequence[pictures.Row], Path], None]

    @property
    def work(self) -> dict[str, int]:
        """How much is trained and searched at the scale of the paper, once for all cells that share it."""
        searching = [job for job in self.jobs if METHODS[job.method].searches]
        plans = {(j.network, j.plan.strategy, j.plan.num_choices, j.plan.training) for j in searching}
        return {
            "cells": len(self.jobs),
            "supernets": len(plans),
            "searches": len({(j.network, j.budget, j.plan) for j in searching}),
            "networks": sum(job.trained for job in self.jobs),
        }


def _table(lines: Sequence[Reported]) -> list[Job]:
    jobs = []
    for line in lines:
        paper = {"params": line.params, "top1": line.top1, "top5": line.top5}
        plan = AUTOSLIM if line.method == "autoslim" else USUAL
        jobs.append(Job(line.network, line.method, line.budget, plan, paper=paper))
    return jobs


def _table_3() -> list[Job]:
    """What says most comes first: VGGNet at half with all that it is held against, AutoSlim, MobileNetV2 at 44M."""
    lines = _table(TABLE_3)
    half = 199 * M
    beside = [
        Job(VGG19, "published", published="vgg19_cifar10:0.5"),
        Job(VGG19, "balanced", half),
        Job(VGG19, "autoslim", half, AUTOSLIM),
        Job(CIFAR_MOBILENETV2, "balanced", 44 * M),
        Job(CIFAR_MOBILENETV2, "published", published="mobilenetv2_cifar10:44M"),
        Job(CIFAR_MOBILENETV2, "autoslim", 44 * M, AUTOSLIM),
    ]
    first = [
        *((VGG19, 197 * M, "bcnet"), (VGG19, half, "uniform"), (VGG19, None, "published"), (VGG19, half, "balanced")),
        *((VGG19, None, "original"), (VGG19, half, "autoslim"), (VGG19, half, "random")),
        *((CIFAR_MOBILENETV2, 44 * M, method) for method in ("bcnet", "uniform", "balanced")),
        *((CIFAR_MOBILENETV2, None, method) for method in ("published", "original")),
        *((CIFAR_MOBILENETV2, 44 * M, method) for method in ("autoslim", "random")),
    ]
    places = {line: place for place, line in enumerate(first)}
    return sorted([*lines, *beside], key=lambda j: places.get((j.network, j.budget, j.method), len(places)))


def _table_4() -> list[Job]:
    """The paper's seven lines, then the other combinations of supernet and search."""
    strategies = ("unilateral", "unilateral-complementary", "bilateral", "complementary")
    searchers = ("greedy", "evolution-without-prior", "evolution")
    lines = dict.fromkeys([*TABLE_4, *((strategy, searcher) for strategy in strategies for searcher in searchers)])
    return [
        Job(
            network,
            "search",
            budget,
            Plan(*line),
            paper={"top1": TABLE_4[line][column]} if line in TABLE_4 else {},
        )
        for column, (network, budget) in enumerate(TABLE_4_NETWORKS.items())
        for line in lines
    ]


def _table_5() -> list[Job]:
    return [
        Job(
            network,
            "search",
            budget,
            Plan("unilateral", "evolution-without-prior", training=training, searching=searching),
            paper={"top1": top1[column]},
        )
        for column, (network, budget) in enumerate(TABLE_5_NETWORKS.items())
        for (training, searching), top1 in TABLE_5.items()
    ]


def _table_6() -> list[Job]:
    published = "mobilenetv2_imagenet:305M"
    autoslim = {"params": "5.8", "top1": "73.1", "top5": "91.1"}
    return [
        Job(AUTOSLIM_MOBILENETV2, "published", published=published, paper=autoslim),
        Job(WIDE_MOBILENETV2, "bcnet", 305 * M, paper={"params": "4.8", "top1": "73.9", "top5": "92.2"}),
    ]


def _figure_3() -> list[Job]:
    searchers = ("evolution", "evolution-without-prior")
    return [Job(RESNET50, "search", 2 * G, Plan(searcher=searcher), trained=False) for searcher in searchers]


def _figure_4() -> list[Job]:
    networks = {VGG19: 199 * M, MOBILENETV2: 150 * M}
    return [Job(n, "bcnet", budget, Plan(num_choices=k)) for n, budget in networks.items() for k in GROUP_SIZES]


def _figure_6() -> list[Job]:
    searchers = ("evolution-without-prior", "evolution", "prior-only")
    return [
        Job(RESNET50, "search", 2 * G, Plan(searcher=searcher), first=count / EVALUATED[-1])
        for searcher in searchers
        for count in EVALUATED
    ]


def _figure_8() -> list[Job]:
    networks = {MOBILENETV2: 150 * M, CIFAR_MOBILENETV2: 146 * M}
    shares = [epochs / SUPERNET_EPOCHS[-1] for epochs in SUPERNET_EPOCHS]
    return [Job(n, "bcnet", budget, Plan(training=s)) for n, budget in networks.items() for s in shares]


def _kept(network: Network, *budgets: int) -> list[Job]:
    return [Job(network, "bcnet", budget, trained=False) for budget in budgets]


def _published(network: Network, entry: str, *variants: str) -> list[Job]:
    return [Job(network, "published", published=f"{entry}:{v}", trained=False) for v in variants]


_AUTOSLIM_305M = _published(AUTOSLIM_MOBILENETV2, "mobilenetv2_imagenet", "305M")


def _figure_5() -> list[Job]:
    return [
        *_kept(RESNET50, 3 * G, 2 * G, G, 570 * M),
        *_published(RESNET50, "resnet50_imagenet", "3005M", "2006M", "1000M", "570M"),
        *_kept(WIDE_MOBILENETV2, 305 * M),
        *_kept(MOBILENETV2, 207 * M, 105 * M, 50 * M),
        *_published(AUTOSLIM_MOBILENETV2, "mobilenetv2_imagenet", "305M", "207M"),
        *_kept(CIFAR_MOBILENETV2, 200 * M, 146 * M, 44 * M, 28 * M),
        *_published(CIFAR_MOBILENETV2, "mobilenetv2_cifar10", "200M", "144M", "44M", "28M"),
        *_kept(WIDE_EFFICIENTNET, 385 * M),
        *_kept(EFFICIENTNET, 192 * M),
    ]


def _figure_10() -> list[Job]:
    return [
        *_kept(VGG19, 197 * M, 185 * M, 138 * M, 77 * M),
        *_published(VGG19, "vgg19_cifar10", "0.5", "0.464", "0.35", "0.197"),
        *_kept(WIDE_PROXYLESSNAS, 320 * M),
        *_kept(PROXYLESSNAS, 160 * M),
        *_kept(RESNET34, 2_700 * M, 1_800 * M, 900 * M, 360 * M),
        *_kept(RESNET18, 1_200 * M, 900 * M, 450 * M),
        *_kept(MOBILENETV2, 217 * M, 150 * M),
    ]


def _figure_9() -> list[Job]:
    """The searched networks of the tables, with the originals."""
    networks = {RESNET50, MOBILENETV2, CIFAR_MOBILENETV2, VGG19}
    lines = [line for line in (*TABLE_1, *TABLE_3, *TABLE_8) if line.network in networks]
    return _table([line for line in lines if line.method in ("original", "bcnet")])


STUDIES = {
    "table1": Study("ResNet50 and MobileNetV2 on ImageNet", _table(TABLE_1), pictures.accuracy),
    "table2": Study("EfficientNet-B0 and ProxylessNAS on ImageNet", _table(TABLE_2), pictures.accuracy),
    "table3": Study("MobileNetV2 and VGGNet on CIFAR-10", _table_3(), pictures.accuracy),
    "table4": Study("Supernets and searches at half the MACs", _table_4(), pictures.combinations),
    "table5": Study("UA with more training and search", _table_5(), pictures.more_effort),
    "table6": Study("AutoSlim's widths with our recipe", _table_6(), pictures.accuracy),
    "table8": Study("ResNet34, ResNet18 and MobileNetV2 on ImageNet", _table(TABLE_8), pictures.accuracy),
    "figure3": Study("Scores of all candidates, from the prior and from random widths", _figure_3(), pictures.scores),
    "figure4": Study("The number of widths per group", _figure_4(), pictures.group_sizes),
    "figure5": Study("What each layer keeps", _figure_5(), pictures.kept),
    "figure6": Study("The best after so many candidates", _figure_6(), pictures.candidates),
    "figure7": Study(
        "What each layer keeps: BCNet and AutoSlim at 305M", [*_kept(WIDE_MOBILENETV2, 305 * M), *_AUTOSLIM_305M],
        pictures.kept,
    ),
    "figure8": Study("Epochs of the supernet's training", _figure_8(), pictures.supernet_epochs),
    "figure9": Study("Accuracy at all budgets", _figure_9(), pictures.accuracy),
    "figure10": Study("What each layer keeps, more networks", _figure_10(), pictures.kept),
}  # fmt: skip


def jobs_at(study: Study, *, stand_in: bool, seeds: int) -> list[Job]:
    """The jobs of a study, without those of published widths where another network stands in."""
    jobs = [job for job in study.jobs if not stand_in or not job.published]
    return [dataclasses.replace(job, seed=seed) for seed in range(seeds) for job in jobs]


def cells_of(study: Study, workshop: Workshop, *, seeds: int, one_of_each: bool = False) -> list[Cell]:
    """The cells of a study at the workshop's scale; a short scale may make one of several jobs.

    With `one_of_each` the first cell of every method and plan.
    """
    return [cell for cell, _ in work_of(study, workshop, seeds=seeds, one_of_each=one_of_each)]


def work_of(study: Study, workshop: Workshop, *, seeds: int, one_of_each: bool = False) -> list[tuple[Cell, Job]]:
    """The cells, as of `cells_of`, each with its job."""
    jobs = jobs_at(study, stand_in=workshop.scale.stand_in is not None, seeds=seeds)
    if one_of_each:
        jobs = list({(job.method, job.plan): job for job in reversed(jobs)}.values())[::-1]
    pairs = [(job.cell(workshop), job) for job in jobs]
    return list({cell.name: (cell, job) for cell, job in pairs}.values())
