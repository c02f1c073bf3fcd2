"""Images that stay in their files until a batch needs them: data sets such as ImageNet do not fit into memory."""

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
_SHARED_MEMORY = Path("/dev/shm")  # where workers leave their batches; of a container it is often 64 MiB
_STOPPING = (signal.SIGTERM, signal.SIGINT)
_PATIENCE = 900.0  # seconds that a batch may take


def _usual_workers() -> int:
    """One for each core that this process may use: under `taskset`, Slurm or a container's cpuset not the machine's."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_WORKERS, usable)


@dataclass(frozen=True, eq=False)
class FilePixels:
    """The content of a byte tensor of pixels `(n, 3, size, size)`, decoded when it is asked for.

    Indexing gives such tensors: the centre of every image. `workers` processes decode batches, by default one for each
    core that may be used, up to eight; how many there are changes nothing else.
    """

    files: tuple[Path, ...]
    size: int
    workers: int = field(default_factory=_usual_workers)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape that a tensor of all images would have."""
        return len(self), 3, self.size, self.size

    @property
    def device(self) -> torch.device:
        """Batches are decoded on the CPU."""
        return torch.device("cpu")

    def __getitem__(self, index: slice | torch.Tensor) -> torch.Tensor:
        places = range(len(self))[index] if isinstance(index, slice) else index.tolist()
        return torch.cat(list(self.batches([list(places)])))

    def subset(self, index: torch.Tensor) -> FilePixels:
        """The images at these places."""
        return replace(self, files=tuple(self.files[i] for i in index.tolist()))

    def check_readable(self) -> None:
        """Raise DataError for an image that cannot be read, all being read once."""
        places = range(len(self))
        for _ in self.batches([places[i : i + _READ_AT_ONCE] for i in range(0, len(self), _READ_AT_ONCE)]):
            pass

    def digest(self) -> str:
        """Tells these files from any others by their names and sizes: reading them all would take hours."""
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
        """Bytes `(batch, 3, size, size)` of the images at `places`, batch by batch, decoded by the workers.

        They are centres, or random crops by the draws of `generator`; in `pinned` memory for a GPU to read.

        Raises:
            DataError: a file that is no image.
        """
        base = 0 if crop is None or generator is None else draw_base(generator)
        items = _Decoded(self, crop, base)
        is_daemon = multiprocessing.current_process().daemon  # of a pool: it may have no processes of its own
        few = sum(map(len, places)) <= 2 * self.workers
        batch_bytes = max(map(len, places), default=0) * 3 * self.size**2
        workers = 0 if is_daemon or few else _workers_with_room(self.workers, batch_bytes)
        loader = DataLoader(
            items,
            batch_sampler=places,  # type: ignore[arg-type]
            num_workers=workers,
            # Workers of other kinds start anew, importing everything, at every pass. They decode, on the CPU alone.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            worker_init_fn=_leave_signals_to_the_run,
            collate_fn=_stack_or_fault,
            generator=torch.Generator(),  # else it would draw from the global one
            pin_memory=pinned,
            timeout=_PATIENCE if workers else 0,
        )
        for pixels in _answers(loader, workers) if workers else loader:
            if isinstance(pixels, str):
                raise DataError(pixels)
            yield pixels


def _workers_with_room(workers: int, batch_bytes: int) -> int:
    """Return how many of the workers have room in shared memory for two batches each, beside one that is read.

    Where there is none, a worker would be killed, or the run would wait for ever.
    """
    try:
        free = shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:  # other systems share memory in other ways
        return workers
    return max(0, min(workers, (free // max(1, batch_bytes) - 1) // 2))


def _answers(loader: DataLoader[torch.Tensor | str], workers: int) -> Iterator[torch.Tensor | str]:
    """The batches of a loader.

    Raises:
        DataError: its workers were killed, or do not answer.
    """
    with _hold_signals():  # a worker is born with them held, and lets go of them once it ignores them
        batches = iter(loader)
    while True:
        try:
            answer = next(batches)
        except StopIteration:
            return
        except RuntimeError as error:  # of the loader: what an image is at fault for comes as text
            first = str(error).partition("\n")[0]
            raise DataError(
                f"the {workers} processes that decode images failed, or gave nothing for {_PATIENCE:.0f} s: {first}; "
                "decode in the run's own process, options={'workers': 0} (--workers 0)"
            ) from error
        yield answer


def _leave_signals_to_the_run(worker: int) -> None:
    """Let the run's own process answer what is sent to all of them: it stops its workers itself."""
    for number in _STOPPING:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


@contextmanager
def _hold_signals() -> Iterator[None]:
    """Within the block what would stop this process waits, where the system can do that.

    A worker that is stopped before it ignores such signals may hold the lock of a queue, which the others wait for.
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
    """Images as bytes; a fault as its message, since exceptions do not come out of a worker as they are."""

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
