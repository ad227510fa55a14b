"""The Lightning module computes what the plain loop computes, and goes on where it was stopped."""

import lightning
import lightning_module
import plain_pytorch
import pytest
import torch
from bars import RECIPE, Bars, small_network

from mgexp.multigrid import LONG_SHORT, build_schedule


def network():
    torch.manual_seed(0)
    return small_network()


@pytest.fixture
def fit(tmp_path):
    """Trains to ``max_steps``; gives the trainer and the trained network."""

    def run(max_steps, checkpoint=None, num_processes=1):
        bars = Bars(RECIPE)
        schedule = build_schedule(RECIPE, LONG_SHORT, len(bars), num_processes)
        module = lightning_module.MultigridModule(network(), bars, schedule)
        quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
        trainer = lightning.Trainer(
            max_steps=max_steps,
            use_distributed_sampler=False,
            accelerator="cpu",
            enable_checkpointing=False,
            default_root_dir=tmp_path,
            **quiet,
        )
        trainer.fit(module, ckpt_path=checkpoint)
        return trainer, module.model

    return run


@pytest.fixture(scope="module")
def plain():
    """The network that the plain loop trains."""
    model = network()
    assert len(list(plain_pytorch.train(model))) == 48
    return model


def assert_equal(model, other):
    found, wanted = model.state_dict(), other.state_dict()
    assert found.keys() == wanted.keys()
    assert [name for name in wanted if not torch.equal(found[name], wanted[name])] == []


def test_a_run_that_was_stopped_goes_on(fit, plain, tmp_path):
    trainer, _ = fit(20)
    trainer.save_checkpoint(tmp_path / "at20.ckpt")
    trainer, model = fit(48, tmp_path / "at20.ckpt")
    assert trainer.global_step == 48
    assert_equal(model, plain)
