"""Upload a network to the Hugging Face hub with the user's own token, on explicit request."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from bcnet.errors import ExportError
from bcnet.run import names
from bcnet.run.directory import run_path

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def push_run(
    run: str | os.PathLike[str], exported: str | Path, repository: str, *, private: bool = True, client: Any = None
) -> str:
    """Upload an exported file with the model card, the architecture and the run's result, as one commit.

    The repository `ORG/NAME` is created if it does not exist: private unless `private` is False. The token is that of
    `hf auth login` or of the variable HF_TOKEN.

    Args:
        run: the run directory, with its model card.
        exported: the file to upload.
        repository: name of the repository.
        private: whether a new repository is private.
        client: client of the hub; by default a `huggingface_hub.HfApi`.

    Returns:
        The URL of the commit.

    Raises:
        ExportError: an invalid name, no token, or a hub that cannot be reached or refuses.

    """
    check_repository(repository)
    client = client if client is not None else hub_client()
    from huggingface_hub import CommitOperationAdd

    folder = run_path(run)
    files = {
        Path(exported).name: Path(exported),
        "README.md": folder / "model_card.md",
        names.ARCHITECTURE: folder / names.ARCHITECTURE,
    }
    operations = [CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(file)) for name, file in files.items()]
    try:
        client.create_repo(repository, private=private, exist_ok=True)
        commit = client.create_commit(repository, operations, commit_message=f"Add {Path(exported).name}")
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ExportError(
            f"the hub must take {repository!r}; it answered with {type(error).__name__}: {reason}: check the name, the "
            f"rights of your token and the connection; what was exported is kept in {exported}"
        ) from error
    return str(commit.commit_url)


def check_repository(name: str) -> None:
    """Raise ExportError unless `name` is `ORG/NAME`."""
    if not _NAME.fullmatch(name):
        raise ExportError(f"a repository of the hub must be ORG/NAME, for instance me/narrow-resnet; got {name!r}")


def hub_client() -> Any:
    """Return a client with the user's own token.

    Raises:
        ExportError: there is no token.
    """
    from huggingface_hub import HfApi, get_token

    token = get_token()
    if not token:
        raise ExportError(
            "pushing needs your token of the Hugging Face hub; there is none: run `hf auth login`, or set HF_TOKEN"
        )
    return HfApi(token=token)
