"""One kind of file that is fuzzed: how it is made, changed and read."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import torch

from tests.robustness import mutations as m


class Target(ABC):
    """One kind of file. `file` is its path in the folder that `change` fills and `read` reads."""

    name: ClassVar[str]
    file: ClassVar[str]
    checked: ClassVar[bool] = False
    refuses: ClassVar[bool] = True  # whether there is anything that it refuses: a status tells what is wrong instead
    ways: ClassVar[tuple[m.Mutation, ...]] = m.BYTES

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        torch.manual_seed(0)
        self.prepare()
        self.original = (folder / self.file).read_bytes()
        self.value = self.read()

    @abstractmethod
    def prepare(self) -> None:
        """Write the good file, and what it needs beside it."""

    @abstractmethod
    def read(self) -> Any:
        """The file's content as the library reads it, comparable with `==`."""

    def change(self, rng: random.Random) -> bool:
        """Write a changed copy; whether it differs."""
        content = rng.choice(self.ways)(self.original, rng)
        (self.folder / self.file).write_bytes(content)
        return content != self.original

    def as_it_was(self, value: Any) -> bool:
        """Whether a value read from a changed file is what the good file says."""
        return bool(value == self.value)
