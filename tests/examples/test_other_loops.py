"""Lightning and the Trainer of transformers compute what the plain loop computes, also after a stop.

A ViT of timm learns on two sizes.
"""

import lightning
import lightning_module
import plain_pytorch
import pytest
import timm_loop
import torch
import transformers_trainer
from bars import RECIPE, Bars, small_network

from mgexp.multigrid import LONG_SHORT, build_schedule, check_shapes


def network():
    torch.manual_seed(0)
    return small_network()


def trained(folder, **more):
    """The network after a run of the Trainer, to its end or to a checkpoint at step 20 and on from there."""
    bars = Bars(RECIPE)
    schedule = build_schedule(RECIPE, LONG_SHORT, len(bars))
    resume = more.pop("resume", None)
    args = transformers_trainer.arguments(schedule, folder, use_cpu=True, disable_tqdm=True, **more)
    trainer = transformers_trainer.MultigridTrainer(network(), bars, schedule, args)
    trainer.train(resume_from_checkpoint=resume)
    assert trainer.state.global_step == more.get("max_steps", 48)
    return trainer.model.network.state_dict()


@pytest.fixture(scope="module")
def plain():
    model = network()
    assert len(list(plain_pytorch.train(model))) == 48
    return model.state_dict()


def unequal(found, wanted):
    assert found.keys() == wanted.keys()
    return [name for name in wanted if not torch.equal(found[name], wanted[name])]


def test_the_trainer_goes_on_from_a_checkpoint(plain, tmp_path):
    trained(tmp_path, save_steps=20, max_steps=20)
    found = trained(tmp_path, save_strategy="no", resume=str(tmp_path / "checkpoint-20"))
    assert unequal(found, plain) == []


def test_lightning_goes_on_from_a_checkpoint(plain, tmp_path):
    """Its module holds the network as ``model``."""
    bars = Bars(RECIPE)
    schedule = build_schedule(RECIPE, LONG_SHORT, len(bars))
    for steps, checkpoint in ((20, None), (48, tmp_path / "at20.ckpt")):
        module = lightning_module.MultigridModule(network(), bars, schedule)
        trainer = lightning.Trainer(
            max_steps=steps,
            use_distributed_sampler=False,
            accelerator="cpu",
            enable_checkpointing=False,
            default_root_dir=tmp_path,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=False,
        )
        trainer.fit(module, ckpt_path=checkpoint)
        trainer.save_checkpoint(tmp_path / f"at{steps}.ckpt")
    assert trainer.global_step == 48
    assert unequal(module.model.state_dict(), plain) == []


def test_a_vit_of_timm_is_right_at_both_sizes_and_learns():
    torch.manual_seed(0)
    run = timm_loop.Training(timm_loop.network())
    model, found = run.model, list(timm_loop.train(run))
    sizes = {(plan.crop, plan.clips) for plan, _ in found}
    assert sizes == {(16, 32), (32, 8)}
    assert found[0][0].lr == pytest.approx(2 * 0.001)  # 4 times the pictures
    assert sum(loss for _, loss in found[-5:]) < sum(loss for _, loss in found[:5])

    class OfClips(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, clips):
            return self.model(clips[:, :, 0])

    checks = check_shapes(OfClips(), [(1, 16), (1, 32)])
    assert [one.problem for one in checks] == ["", ""]
