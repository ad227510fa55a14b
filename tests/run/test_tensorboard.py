"""Events as TensorBoard itself reads them."""

import pytest
from tracked import RESULT, evaluation_line, step_line

from mgexp.run.trackers import TensorBoard

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

CONFIG = {"SOLVER.BASE_LR": 0.1, "SOLVER.STEPS": (0, 3), "ROW": "long+short", "BN.ON": True}


def board(folder, evaluations=()):
    return TensorBoard(folder, CONFIG, {"torch": "2.15"}, lambda: evaluations)


def read(folder):
    """What TensorBoard makes of the folder, all events kept."""
    found = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    return found.Reload()


def scalars(folder, tag):
    return [(event.step, event.value) for event in read(folder).Scalars(tag)]


@pytest.fixture
def folder(tmp_path):
    """Of a run of six steps, evaluated after three, with a result."""
    told = board(tmp_path / "events")
    told.start(0)
    for step in range(6):
        if step == 3:
            told.evaluation(evaluation_line(3, 50.0))
        told.step(step_line(step, loss=0.5 * step))
    told.result(RESULT)
    told.close(failed=False)
    return tmp_path / "events"


def test_lines_are_scalars_over_their_step(folder):
    assert scalars(folder, "train/loss") == [(step, 0.5 * step) for step in range(6)]
    assert scalars(folder, "train/clips") == [(step, 4) for step in range(6)]
    assert scalars(folder, "evaluation/top1") == [(3, 50.0)]
    assert scalars(folder, "evaluation/train_seconds") == [(3, 7.0)]
    assert scalars(folder, "final/top1") == [(6, 75.0)]
    assert scalars(folder, "final/train_seconds") == [(6, 12.5)]


def test_the_configuration_is_hyper_parameters(folder):
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    contents = read(folder).summary_metadata["_hparams_/session_start_info"].plugin_data.content
    found = HParamsPluginData.FromString(contents).session_start_info.hparams
    assert found["SOLVER.BASE_LR"].number_value == 0.1
    assert found["ROW"].string_value == "long+short"
    assert found["SOLVER.STEPS"].string_value == "(0, 3)"


def test_steps_done_again_are_there_once(folder):
    """The checkpoint was that of step 3, and steps 3 to 5 with the result come again, otherwise."""
    told = board(folder, [evaluation_line(3, 50.0), evaluation_line(6, 75.0, full_protocol=True)])
    told.start(3)
    for step in (3, 4):
        told.step(step_line(step, loss=9.0))
    told.close(failed=True)
    wanted = [(0, 0.0), (1, 0.5), (2, 1.0), (3, 9.0), (4, 9.0)]
    assert scalars(folder, "train/loss") == wanted
    assert scalars(folder, "evaluation/top1") == [(3, 50.0)]
    assert len(list(folder.iterdir())) == 2


def test_each_line_is_on_the_disk_at_once(tmp_path):
    """What is not is lost when the run is killed."""
    told = board(tmp_path)
    told.start(0)
    told.step(step_line(0))
    assert scalars(tmp_path, "train/loss") == [(0, 1.0)]
