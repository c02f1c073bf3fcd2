"""Images that stay in files until a batch needs them, for data sets that do not fit into memory, such as ImageNet."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from bcnet.data.big_images import ResizedCrop, draw_base, image_seed, middle
from bcnet.data.decoding import View, bytes_of, decode
from bcnet.errors import DataError

_MOST_WORKERS = 8
_READ_AT_ONCE = 256  # images
_SHARED_MEMORY = Path("/dev/shm")  # for workers' batches; often 64 MiB in a container
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_PATIENCE = 900.0  # longest time for a batch, in seconds


def _usual_workers() -> int:
    """Return one worker per usable core, respecting `taskset`, Slurm and a container's cpuset."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_WORKERS, usable)


@dataclass(frozen=True, eq=False)
class FilePixels:
    """A byte tensor of pixels `(n, 3, size, size)` that is decoded on access.

    Indexing returns tensors of centre crops. `workers` processes decode batches, by default one per usable core, up to
    eight; their number changes nothing else.

    """

    files: tuple[Path, ...]
    size: int
    workers: int = field(default_factory=_usual_workers)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of a tensor of all images."""
        return len(self), 3, self.size, self.size

    @property
    def device(self) -> torch.device:
        """The CPU, where batches are decoded."""
        return torch.device("cpu")

    def __getitem__(self, index: slice | torch.Tensor) -> torch.Tensor:
        places = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        return torch.cat(list(self.batches([list(places)])))

    def subset(self, index: torch.Tensor) -> FilePixels:
        """Return the images at these indices."""
        return replace(self, files=tuple(self.files[i] for i in index.tolist()))

    def check_readable(self) -> None:
        """Read every image once; raise DataError for one that is unreadable."""
        places = range(len(self))
        for _ in self.batches([places[i : i + _READ_AT_ONCE] for i in range(0, len(self), _READ_AT_ONCE)]):
            pass

    def digest(self) -> str:
        """Return a digest of the files' names and sizes, since reading all of them would take hours."""
        parts = "\n".join(f"{'/'.join(file.parts[-3:])} {file.stat().st_size}" for file in self.files)
        return hashlib.sha256(parts.encode()).hexdigest()

    def batches(
        self,
        places: Sequence[Sequence[int]],
        crop: ResizedCrop | None = None,
        generator: torch.Generator | None = None,
        *,
        pinned: bool = False,
    ) -> Iterator[torch.Tensor]:
        """Yield bytes `(batch, 3, size, size)` of the images at `places`, batch by batch, decoded by the workers.

        Images are centre crops, or random crops drawn from `generator`; in `pinned` memory if a GPU reads them.

        Raises:
            DataError: a file is not an image.
        """
        base = 0 if crop is None or generator is None else draw_base(generator)
        items = _Decoded(self, crop, base)
        is_daemon = multiprocessing.current_process().daemon  # daemonic pool processes cannot start processes
        few = sum(map(len, places)) <= 2 * self.workers
        batch_bytes = max(map(len, places), default=0) * 3 * self.size**2
        workers = 0 if is_daemon or few else _workers_with_room(self.workers, batch_bytes)
        loader = DataLoader(
            items,
            batch_sampler=places,  # type: ignore[arg-type]
            num_workers=workers,
            # Other start methods import everything again in every pass. Workers only decode, on the CPU.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            worker_init_fn=_leave_signals_to_the_run,
            collate_fn=_stack_or_fault,
            generator=torch.Generator(),  # otherwise it would draw from the global one
            pin_memory=pinned,
            timeout=_PATIENCE if workers else 0,
        )
        for pixels in _answers(loader, workers) if workers else loader:
            if isinstance(pixels, str):
                raise DataError(pixels)
            yield pixels


def _workers_with_room(workers: int, batch_bytes: int) -> int:
    """Return how many of the workers have room in shared memory for two batches each, plus one being read.

    Without room a worker would be killed, or the run would hang.
    """
    try:
        free = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:  # other systems share memory differently
        return workers
    return max(0, min(workers, (free // max(1, batch_bytes) - 1) // 2))


def _answers(loader: DataLoader[torch.Tensor | str], workers: int) -> Iterator[torch.Tensor | str]:
    """Yield the batches of a loader.

    Raises:
        DataError: its workers were killed, or do not respond.
    """
    with _hold_signals():  # workers start with signals blocked, and unblock them once they ignore them
        batches = iter(loader)
    while True:
        try:
            answer = next(batches)
        except StopIteration:
            return
        except RuntimeError as error:  # from the loader; faults of images come as text
            first = str(error).partition("\n")[0]
            raise DataError(
                f"the {workers} processes that decode images failed, or gave nothing for {_PATIENCE:.0f} s: {first}; "
                "decode in the run's own process, options={'workers': 0} (--workers 0)"
            ) from error
        yield answer


def _leave_signals_to_the_run(worker: int) -> None:
    """Make workers ignore signals that are sent to the whole process group; the main process stops them."""
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Block stop signals within the block, where the system supports it.

    A worker stopped before it ignores such signals may hold the lock of a queue that others wait for.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Decoded(Dataset[torch.Tensor | str]):
    """Images as bytes, or error messages, since exceptions do not leave a worker unchanged."""

    def __init__(self, pixels: FilePixels, crop: ResizedCrop | None, base: int) -> None:
        self._pixels = pixels
        self._crop = crop
        self._base = base

    def __getitem__(self, place: int) -> torch.Tensor | str:
        file = self._pixels.files[place]
        crop = self._crop
        size = self._pixels.size
        draw = random.Random(image_seed(self._base, place))

        def view(width: int, height: int) -> View:
            return middle(width, height, size) if crop is None else crop.view(width, height, size, draw)

        try:
            image = decode(str(file), file, view).convert("RGB")
        except DataError as error:
            return str(error)
        pixels = bytes_of(image)
        return pixels if crop is None else crop.finish(pixels, (size, size), draw)


def _stack_or_fault(items: list[torch.Tensor | str]) -> torch.Tensor | str:
    faults = [item for item in items if isinstance(item, str)]
    return faults[0] if faults else torch.stack([item for item in items if isinstance(item, torch.Tensor)])
