"""Parts of an evaluation on disk: of the same evaluation, and whole."""

import pytest

from mgexp.train.scores import Partial


class Scores:
    """As ``evaluate.Scores`` for what a part needs of them."""

    def __init__(self, value=0):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "parts" / "one.pt"
    part = Partial(path, "these videos")
    part.num_batches = 5
    part.save(Scores(7))
    return path


def test_a_part_is_gone_on_with(saved):
    scores, part = Scores(), Partial(saved, "these videos")
    assert part.go_on(scores) >= 0
    assert (scores.value, part.num_batches) == (7, 5)


def test_one_of_other_videos_is_not(saved):
    scores, part = Scores(), Partial(saved, "others")
    part.go_on(scores)
    assert (scores.value, part.num_batches) == (0, 0)


def test_a_damaged_one_is_done_again_with_a_warning(saved, caplog):
    saved.write_bytes(saved.read_bytes()[:-300])
    scores, part = Scores(), Partial(saved, "these videos")
    part.go_on(scores)
    assert (scores.value, part.num_batches) == (0, 0)
    assert "one.pt cannot be read" in caplog.text
    assert "this part of the evaluation is done again" in caplog.text
