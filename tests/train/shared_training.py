"""Helpers that train the tiny row in any number of processes, on clips computed from their requests."""

import copy

import torch
from run_files import moments
from tiny import tiny_config

from mgexp import dist
from mgexp.data.batches import Batch
from mgexp.models.build import build_model
from mgexp.models.layers import Draws
from mgexp.multigrid.phases import count_bn_groups
from mgexp.multigrid.sampler import StepSampler
from mgexp.optim.build import build_optimizer
from mgexp.run.clock import Clock
from mgexp.run.files import read_jsonl
from mgexp.run.log import Progress
from mgexp.run.other_programs import OtherPrograms
from mgexp.stop import StopRequest
from mgexp.train.checkpoint import State, WeightAverage
from mgexp.train.loop import LoadedClips, Loop
from mgexp.train.precise_bn import PreciseBn, precise_requests, with_precise_bn
from mgexp.train.precision import Precision
from mgexp.train.setup import build_row_schedule
from mgexp.train.step import Normalizer, build_step
from mgexp.train.task import build_task

CPU = torch.device("cpu")
NUM_VIDEOS, SEED = 128, 3


class Training:
    """One process of a run, built as ``job.py`` builds it, but without videos and run folder."""

    def __init__(self, processes, folder, dtype, **changes):
        self.processes, self.folder = processes, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.cfg = tiny_config(folder, changes)
        self.schedule = build_row_schedule(self.cfg, NUM_VIDEOS, processes.count)
        self.normalizer = Normalizer(self.cfg.DATA.MEAN, self.cfg.DATA.STD, CPU, dtype)
        model = build_model(self.cfg).to(dtype)
        decay = self.cfg.TRAIN.EMA_DECAY
        average = WeightAverage(model, decay) if decay else None
        optimizer = build_optimizer(self.cfg, model)
        self.state = State(model, optimizer, Clock(), average=average)
        model, task = dist.shared(processes, model), build_task(self.cfg)
        self.step = build_step(self.cfg, model, self.state, task, self.normalizer, Precision())
        self.requests = list(
            StepSampler(self.schedule, SEED, 0, processes.rank, self.cfg.AUG.REPEATS)
        )

    def train(self):
        path = self.folder / "metrics.jsonl"
        loop = Loop(
            state=self.state,
            train_step=self.step,
            schedule=self.schedule,
            processes=self.processes,
            stop=StopRequest(),
            seed=SEED,
            milestones=(),
            settle_steps=1,
            evaluate=lambda: True,
            write_checkpoint=lambda: None,
            checkpoint_seconds=1e9,
            loaded=LoadedClips(self.state, self.processes, lambda reasons: None),
            others=OtherPrograms(self.state.clock, lambda: None),
        )
        with Progress(path, 0, self.schedule.total_steps, 1) as progress:
            assert loop.run(map(batch_of, self.requests), progress)
        return [line["loss"] for line in read_jsonl(path)]

    def first_gradient(self):
        share = len(self.requests[0])
        draws = Draws(SEED, 0, self.processes.rank * share)
        self.step.backward(
            batch_of(self.requests[0]), self.schedule.plan_at(0).num_bn_groups, draws
        )
        return {name: p.grad for name, p in self.state.model.named_parameters()}

    def tensors(self):
        """Return every tensor of the state, and the precise statistics that an evaluation computes from it."""
        return {
            **{f"model {name}": value for name, value in self.state.model.state_dict().items()},
            **(self.state.average.weights if self.state.average else {}),
            **dict(moments(self.state.state_dict()["optimizer"])),
            **self.precise_statistics(4),  # groups that span two processes
            **self.precise_statistics(2),  # and that do not
        }

    def precise_statistics(self, base):
        """Compute the precise statistics of three mini-batches of 4 clips in groups of ``base`` clips."""
        requests = precise_requests(
            self.schedule.recipe, self.schedule.num_videos, SEED, 3, self.processes
        )
        groups = count_bn_groups(self.schedule.recipe.clips, self.processes.count, base)
        model = copy.deepcopy(self.state.model)
        source = PreciseBn(lambda: map(batch_of, requests), groups)
        found = with_precise_bn(model, source, self.normalizer)
        state = found.state_dict().items()
        return {f"precise {base} {name}": value for name, value in state if "running" in name}


def batch_of(requests):
    """Compute clips from their requests: noise, which is brighter for one class."""
    clips = torch.stack([_clip(request) for request in requests])
    return Batch(
        clips.permute(0, 4, 1, 2, 3),
        torch.tensor([request.index % 2 for request in requests]),
        (),
        flipped=torch.tensor([request.seed[1] % 3 == 0 for request in requests]),
    )


def _clip(request):
    generator = torch.Generator().manual_seed(request.seed[1])
    size = (request.frames, request.crop, request.crop, 3)
    noise = torch.randint(0, 200, size, dtype=torch.uint8, generator=generator)
    return noise + 50 * (request.index % 2)
