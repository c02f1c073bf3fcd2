"""Scores of the baseline "random": what a network does on held-out images after a short training of its own.

A trial is trained as a final network would be, by the same recipe and seed, but for fewer epochs and without the images
that score it. It is trained by one process, so that candidates can be shared out among several. The test images take no
part.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass

from bcnet.space import Widths
from bcnet.stages.base import Context
from bcnet.stages.room import training_bytes
from bcnet.stages.search import Judge, network_score
from bcnet.stages.start import starting_network
from bcnet.train import NetworkTrainee, train


def trial_judge(context: Context) -> Judge:
    """Scores by short trainings, or by the user's own function of widths. The networks are not kept."""
    of_widths = context.subject.source.own.of_widths
    if of_widths is not None:
        return Judge(of_widths)
    context.directory.checkpoint("trial")  # makes the folder, which all processes do together
    context.directory.check_room("trials", training_bytes(context.subject.model, context.settings.trial))
    return Judge(_Trials(context))


@dataclass(frozen=True)
class _Trials:
    context: Context

    def __call__(self, widths: Widths) -> float:
        """The score of `widths`, in the units of the run's metric."""
        settings, subject = self.context.settings, self.context.subject
        network = starting_network(settings, subject, None, widths)
        directory = self.context.directory.alone()  # of whichever process trains it
        name = "trial-" + hashlib.sha256(repr(tuple(widths)).encode()).hexdigest()[:12]
        about = {"classes": subject.data.num_classes, "widths": list(widths)}
        checkpoints = directory.checkpoints(name, about)
        train(
            NetworkTrainee(network, subject.source.own.loss),
            subject.training,
            settings.trial,
            seed=settings.seed_of_networks,
            stage="final",
            checkpoints=dataclasses.replace(checkpoints, every_seconds=self.context.checkpoint_seconds),
        )
        score = network_score(self.context, network.eval())
        directory.drop_checkpoints(name)
        return score
