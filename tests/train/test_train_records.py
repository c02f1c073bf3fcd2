import numpy as np
import pytest

from bcnet.errors import RunError
from bcnet.train import LossRecords


def filled(count: int) -> LossRecords:
    records = LossRecords(2)
    for step in range(count):
        records.append(step, (step % 7 + 1, 3), step / 10)
    return records


@pytest.mark.parametrize("count", [0, 5, 1024, 3000])
def test_records_survive_a_file_and_go_on(tmp_path, count):
    filled(count).save(tmp_path / "records.safetensors", {"run": "a"})
    loaded = LossRecords.load(tmp_path / "records.safetensors", {"run": "a"})
    loaded.append(99, (1, 2), 0.5)
    reference = filled(count)
    reference.append(99, (1, 2), 0.5)
    for name in ("steps", "widths", "losses"):
        assert np.array_equal(getattr(loaded, name), getattr(reference, name))
    assert loaded.widths.shape == (count + 1, 2)
    with pytest.raises(RunError, match="belongs to"):
        LossRecords.load(tmp_path / "records.safetensors", {"run": "b"})


def test_arrays_that_do_not_belong_together_are_refused():
    tensors = filled(3).tensors()
    with pytest.raises(RunError, match="none named 'losses'"):
        LossRecords.from_tensors({name: tensors[name] for name in ("steps", "widths")})
    with pytest.raises(RunError, match="loss records must be arrays"):
        LossRecords.from_tensors(tensors | {"steps": tensors["steps"][:2]})
