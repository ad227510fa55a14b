"""Evaluation: scores of views computed by hand, scores saved on the way, and a model that stays unchanged."""

import pytest
import torch
import torch.nn.functional as F
from tiny import tiny_config
from torch.distributed import ReduceOp
from view_batches import FirstPixels, Views, views

from mgexp.data.batches import Batch
from mgexp.data.records import VideoRecord
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError
from mgexp.models.build import build_model
from mgexp.optim.build import build_optimizer
from mgexp.run.clock import Clock
from mgexp.run.folder import RunDir
from mgexp.train.checkpoint import State
from mgexp.train.evaluate import Evaluator, Protocol, Scores, check_decoded, score_views
from mgexp.train.precise_bn import PreciseBn
from mgexp.train.step import Normalizer
from mgexp.train.task import build_task, many_labels, one_label

CPU = torch.device("cpu")
IDENTITY = Normalizer((0.0,), (1 / 255,), CPU)
NORMALIZER = Normalizer((0.45,) * 3, (0.225,) * 3, CPU)


def evaluate(batches, num_videos, task, model=None):
    scores = Scores(num_videos, task, CPU)
    check_decoded(score_views(model or FirstPixels(), batches, scores, IDENTITY))
    return scores.reduce(Processes())


def test_softmax_scores_of_the_views_are_summed():
    """One view of video 0 favours class 0 strongly, two favour class 1 weakly: class 1 has the larger sum."""
    batches = [
        views([[9, 0, 0], [0, 9, 0]], [0, 1], [1, 0]),
        views([[0, 2, 0], [0, 2, 0]], [0, 0], [1, 1]),
    ]
    found = evaluate(batches, 2, one_label(3, "sum"))
    assert found.metrics == {"top1": 50.0, "top5": 100.0}
    wanted = torch.tensor([[9.0, 0, 0], [0, 2, 0], [0, 2, 0]]).softmax(1).sum(0)
    torch.testing.assert_close(found.scores[0], wanted)
    assert found.labels.tolist() == [1, 0]
    logits = torch.tensor([[9.0, 0, 0], [0, 9, 0], [0, 2, 0], [0, 2, 0]])
    wanted = F.cross_entropy(logits, torch.tensor([1, 0, 1, 1])).item()
    assert found.loss == pytest.approx(wanted, rel=1e-6)


def test_max_takes_the_best_score_of_the_views():
    """Class 1 has the larger sum, but class 0 has the single best view."""
    batches = [views([[9, 0, 0]], [0], [1]), views([[0, 2, 0], [0, 2, 0]], [0, 0], [1, 1])]
    found = evaluate(batches, 1, one_label(3, "max"))
    assert found.metrics["top1"] == 0.0
    logits = torch.tensor([[9.0, 0, 0], [0, 2, 0]])
    torch.testing.assert_close(found.scores[0], logits.softmax(1).amax(0))


def test_sigmoid_scores_and_many_labels():
    labels = [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    batches = [views([[1, 0, 2], [3, 1, 0]], [0, 1], labels), views([[0, 4, 0]], [0], labels[:1])]
    found = evaluate(batches, 2, many_labels(3, "max"))
    logits = torch.tensor([[1.0, 4.0, 2.0], [3.0, 1.0, 0.0]])
    torch.testing.assert_close(found.scores, 1 / (1 + (-logits).exp()))
    assert found.labels.tolist() == labels
    assert found.metrics == {"map": 100.0}  # by hand: in each class the right video is first
    rows = torch.tensor([[1.0, 0, 2], [3, 1, 0], [0, 4, 0]])
    truth = torch.tensor([labels[0], labels[1], labels[0]])
    signed = torch.where(truth == 1, rows, -rows)
    assert found.loss == pytest.approx((1 + (-signed).exp()).log().mean().item(), rel=1e-6)


@pytest.mark.parametrize(("ensemble", "wanted"), [("sum", 2 * 0.9), ("max", 0.9)])
def test_views_of_one_video_may_be_in_two_processes(ensemble, wanted, monkeypatch):
    """The processes add up the scores of a video, but not its label."""
    task = one_label(3, ensemble)
    parts = [Scores(1, task, CPU) for _ in range(2)]
    logits = torch.tensor([[0.05, 0.9, 0.05]]).log()
    for part in parts:
        part.add(logits, torch.tensor([0]), torch.tensor([1]))
    own, other = parts
    others = {
        getattr(own, name).data_ptr(): getattr(other, name) for name in ("sums", "labels", "loss")
    }

    def all_reduce(values, op=ReduceOp.SUM):
        from_other = others[values.data_ptr()]
        values.copy_(values + from_other if op == ReduceOp.SUM else values.maximum(from_other))

    monkeypatch.setattr("torch.distributed.all_reduce", all_reduce)
    found = parts[0].reduce(Processes(0, 2))
    assert found.metrics["top1"] == 100.0
    assert found.scores[0, 1].item() == pytest.approx(wanted)
    assert found.loss == pytest.approx(-torch.tensor(0.9).log().item(), 1e-5)


def test_every_broken_video_is_named_once():
    broken = ((0, "a.mp4: is broken"),)
    more = ((0, "a.mp4: is broken"), (1, "b.mp4: is empty"))
    batches = [views([[1, 0, 0]], [2], [0], broken), views([[1, 0, 0]], [3], [0], more)]
    with pytest.raises(InputError, match="2 validation videos") as caught:
        evaluate(batches, 4, one_label(3, "sum"))
    assert "a.mp4: is broken, b.mp4: is empty" in str(caught.value)


def test_evaluation_is_in_eval_mode_and_leaves_no_gradients():
    seen = []

    class Spy(FirstPixels):
        def forward(self, clips):
            seen.append((self.training, torch.is_grad_enabled()))
            return super().forward(clips)

    evaluate([views([[1, 0, 0]], [0], [0])], 1, one_label(3, "sum"), Spy().train())
    assert seen == [(False, False)]


def batches():
    generator = torch.Generator().manual_seed(0)
    clips = torch.randint(0, 256, (4, 3, 8, 32, 32), dtype=torch.uint8, generator=generator)
    return [Batch(clips, torch.zeros(4, dtype=torch.long), ())]


def ready(tmp_path, precise):
    cfg = tiny_config(tmp_path)
    model = build_model(cfg).train()
    state = State(model, build_optimizer(cfg, model), Clock())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluator = Evaluator(RunDir(tmp_path), NORMALIZER, Processes(), build_task(cfg), precise)
    return state, before, evaluator.ready_model(state)


def differing(model, before):
    return {
        name for name, value in model.state_dict().items() if not torch.equal(value, before[name])
    }


def test_precise_statistics_change_only_the_copy(tmp_path):
    state, before, found = ready(tmp_path, PreciseBn(batches, 1))
    assert differing(state.model, before) == set()
    assert state.model.training
    changed = differing(found, before)
    assert changed
    assert all("running" in name or "num_batches" in name for name in changed)
    assert state.clock.seconds("precise_bn") > 0


def test_an_evaluation_whose_loss_is_no_number_ends_the_run_with_a_message(tmp_path):
    cfg = tiny_config(tmp_path)
    model = build_model(cfg)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    clips = torch.zeros(1, 3, 8, 32, 32, dtype=torch.uint8)
    view = Views(clips, torch.arange(1), torch.arange(1))
    protocol = Protocol(lambda: [view], (VideoRecord("a.mp4", 0),), 1, 1, is_full=True)
    evaluator = Evaluator(RunDir(tmp_path), NORMALIZER, Processes(), build_task(cfg), None)
    state = State(model, build_optimizer(cfg, model), Clock())
    with pytest.raises(TrainingError, match="evaluation after step 0 has the loss nan, and is not"):
        evaluator.evaluate(model, state, protocol)
    assert not evaluator.run_dir.evaluations_jsonl.exists()


def test_without_precise_statistics_the_copy_is_the_model(tmp_path):
    state, before, found = ready(tmp_path, None)
    assert found is not state.model
    assert differing(found, before) == set()
    assert state.clock.seconds("precise_bn") == 0
