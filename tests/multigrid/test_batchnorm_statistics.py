"""Statistics of BN groups that are shared by the processes, or kept."""

import pytest
import torch
import torch.distributed as dist
from test_batchnorm import BUFFERS, make_clips, make_norm
from torch import nn

from mgexp.multigrid.batchnorm import keeping, set_num_groups, share_statistics


def share_block(rank, folder):
    """What one of two processes has after three steps on its half of the clips, in groups of its own."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
    )
    torch.save(
        statistics_after(lambda seed: make_clips(8, seed=seed).chunk(2)[rank], 2),
        f"{folder}/{rank}.pt",
    )
    dist.destroy_process_group()


def statistics_after(clips_of, num_groups):
    """Running statistics of two layers of different width after three steps."""
    model = nn.Sequential(make_norm(), nn.Conv3d(3, 5, 1).double(), make_norm(5))
    nn.init.constant_(model[1].weight, 0.3)
    nn.init.zeros_(model[1].bias)
    set_num_groups(model, num_groups)
    for seed in range(3):
        model(clips_of(seed))
        share_statistics(model)
    return [getattr(model[place], name) for place in (0, 2) for name in BUFFERS]


@pytest.mark.slow
def test_shared_statistics_are_those_of_the_groups_of_all_processes(tmp_path):
    torch.multiprocessing.spawn(share_block, (str(tmp_path),), nprocs=2)
    wanted = statistics_after(lambda seed: make_clips(8, seed=seed), 4)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for one, other, alone in zip(first, second, wanted, strict=True):
        assert torch.equal(one, other)
        torch.testing.assert_close(one, alone, rtol=1e-12, atol=1e-12)


def test_one_process_has_nothing_to_share():
    norm = make_norm()
    norm(make_clips(4))
    before = norm.running_var.clone()
    share_statistics(norm)
    assert torch.equal(norm.running_var, before)


@pytest.mark.parametrize("momenta", [(0.1, 0.2), (None, None), (0.0, 0.0)])
def test_statistics_of_several_momenta_or_none_cannot_be_shared(momenta, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="one momentum above 0"):
        share_statistics(nn.Sequential(*(make_norm(momentum=one) for one in momenta)))


@pytest.mark.parametrize("num_groups", [1, 4])
def test_kept_statistics_move_nothing(num_groups):
    norm = make_norm(num_groups=num_groups)
    x = make_clips(8)
    with keeping(norm) as (layer,):
        norm(x)
        (found,) = layer.kept
    assert norm.kept is None and norm.running_mean.abs().sum() == 0
    blocks = torch.stack(x.chunk(num_groups)).transpose(1, 2).flatten(2)
    assert found.num_values == blocks.shape[2]
    torch.testing.assert_close(found.means, blocks.mean(2))
    torch.testing.assert_close(found.biased_variances(), blocks.var(2, correction=0))
