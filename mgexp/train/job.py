"""One process of one run: from a checked configuration to result.json. The only file that sees it all."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

import torch
from fvcore.common.config import CfgNode
from torch.nn.parallel import DistributedDataParallel

from mgexp import dist
from mgexp.config.load import to_yaml
from mgexp.data.build import build_decoder, build_train_loader
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.models.build import build_model
from mgexp.models.weights import Fit
from mgexp.multigrid.sampler import StepSampler
from mgexp.optim.build import build_optimizer
from mgexp.plan.step_shapes import step_counts
from mgexp.record.clock import Clock, seconds_since_process_start
from mgexp.record.environment import describe
from mgexp.record.files import read_json, write_json
from mgexp.record.flops import macs_by_shape, schedule_shapes, train_flops
from mgexp.record.model_table import num_params
from mgexp.record.progress import LOGGER, Progress, logging_to
from mgexp.record.run_dir import RunDir
from mgexp.record.schedule_table import schedule_table
from mgexp.stop import StopRequest
from mgexp.train.build import build_precision, build_step, build_task, compiled_step
from mgexp.train.checkpoint import State, load_checkpoint, load_torch, save_checkpoint
from mgexp.train.evaluate import Evaluation
from mgexp.train.evaluation.build import build_evaluator, build_protocol
from mgexp.train.evaluator import Evaluator, Protocol
from mgexp.train.folder import (
    check_folder,
    config_problems,
    cut_records,
    is_evaluated,
    write_folder,
)
from mgexp.train.inputs import Inputs, raise_problems, unusable_problem
from mgexp.train.loop import Loop
from mgexp.train.memory import keep_memory
from mgexp.train.milestones import milestones
from mgexp.train.precision import Precision
from mgexp.train.precision_check import require_precision
from mgexp.train.result import MISSED, Outcome, judge, seconds_record, summary
from mgexp.train.step import Normalizer


@dataclass(frozen=True)
class Job:
    """What is run: ``experiment`` such as quickstart/baseline, into ``run_dir``."""

    cfg: CfgNode
    experiment: str
    run_dir: RunDir
    inputs: Inputs
    processes: Processes
    override: bool = False
    initial: Fit | None = None  # weights to start from
    stop: StopRequest = field(default_factory=StopRequest)

    @property
    def device(self) -> torch.device:
        """The device of this process: its GPU where there is one and DEVICE allows it.

        Where DEVICE demands one, ``build_inputs`` made sure that it is there.
        """
        return dist.device_of(self.cfg.DEVICE, self.processes)

    @property
    def normalizer(self) -> Normalizer:
        """From decoded clips to the model's input."""
        return Normalizer(self.cfg.DATA.MEAN, self.cfg.DATA.STD, self.device)

    @property
    def precision(self) -> Precision:
        """What training computes with."""
        return build_precision(self.cfg, self.device)

    def protocol(self, full: bool) -> Protocol:
        """All views of all videos, or one centre view of some."""
        return build_protocol(self.cfg, self.inputs, full, self.device, self.processes)

    def evaluator(self) -> Evaluator:
        """Scores models of this run."""
        return build_evaluator(self.cfg, self.inputs, self.run_dir, self.normalizer, self.processes)


def run_job(job: Job) -> Outcome:
    """Trains, evaluates and judges; goes on where an earlier start of the same run stopped."""
    _prepare_torch(job)
    if not job.processes.is_main:
        return Outcome.OK if job.run_dir.result_json.exists() else _train(job)
    config, videos = to_yaml(job.cfg), job.inputs.fingerprint()
    changes = check_folder(job.run_dir, config, videos, job.override)
    with job.run_dir.locked():
        if job.run_dir.result_json.exists():
            return _already_finished(job.run_dir)
        with logging_to(job.run_dir.log_txt):
            write_folder(job.run_dir, config, videos, job.inputs.schedule, changes, job.initial)
            return _train(job)


def evaluate_job(job: Job) -> Outcome:
    """Evaluates the trained model of a finished run under the full protocol; changes no result.

    One process does it all; others that torchrun started have nothing to do.
    """
    if not job.processes.is_main:
        return Outcome.OK
    job = replace(job, processes=Processes())
    if not job.run_dir.model.exists():
        remedy = "train to the end before TRAIN.ENABLE False"
        raise InputError([f"{job.run_dir.model} does not exist: {remedy}"])
    raise_problems(config_problems(job.run_dir, to_yaml(job.cfg), ("TEST.", "DEVICE")))
    result = read_json(job.run_dir.result_json)
    model = build_model(job.cfg)
    model.load_state_dict(load_torch(job.run_dir.model))
    _prepare_torch(job)
    clock = Clock()
    clock.add("train", result["seconds"]["train"])
    state = State(model.to(job.device), build_optimizer(job.cfg, model), clock)
    state.step, state.epoch = result["steps"], result["epochs"]
    with job.run_dir.locked(), logging_to(job.run_dir.log_txt):
        job.evaluator().evaluate(model, state, job.protocol(full=True))
        job.run_dir.drop_evaluation_parts()
    return Outcome.OK


def _prepare_torch(job: Job) -> None:
    torch.set_num_threads(job.cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    job.precision.set_backends()
    if job.device.type == "cpu":
        keep_memory()


def _already_finished(run_dir: RunDir) -> Outcome:
    result = read_json(run_dir.result_json)
    print(f"{run_dir.root}: this run is complete: {summary(result)}")
    return Outcome.MISSED if result["verdict"] == MISSED else Outcome.OK


def _train(job: Job) -> Outcome:
    with dist.joined(job.processes, job.device):
        return _train_joined(job)


def _train_joined(job: Job) -> Outcome:
    clock = Clock()
    clock.add("program", seconds_since_process_start())
    with job.stop.listening() as stop, clock.measure("program"):
        loop = _build_loop(job, state := _new_state(job, clock), stop)
        _resume(job, state)
        _check_precision(job, state)
        if state.step in loop.milestones and not is_evaluated(job.run_dir, state.step):
            loop.evaluate()
        if not _run_loop(job, loop):
            LOGGER.info(
                "%s: saved after step %d; start again to go on", stop.signal_name, state.step
            )
            return Outcome.INTERRUPTED
        _save(job, state)
        found = job.evaluator().evaluate_finally(state, job.protocol(full=True))
    return _finish(job, state, found) if job.processes.is_main else Outcome.OK


def _new_state(job: Job, clock: Clock) -> State:
    model = build_model(job.cfg)
    if job.initial:
        job.initial.load_into(model)
    model = model.to(job.device)
    optimizer = build_optimizer(job.cfg, model)
    return State(model, optimizer, clock, scaler=job.precision.scaler(job.device))


def _resume(job: Job, state: State) -> None:
    """Goes on after the last checkpoint, and says what is run."""
    load_checkpoint(job.run_dir, state)
    if not job.processes.is_main:
        return
    cut_records(job.run_dir, state.step)
    schedule = job.inputs.schedule
    LOGGER.info("%s → %s\n%s", job.experiment, job.run_dir.root, schedule_table(schedule))
    LOGGER.info(
        "%d training videos (%d missing or quarantined), %d validation videos; decoder %s; %s, %d threads",
        *(len(job.inputs.train), len(job.inputs.missing), len(job.inputs.val)),
        *(build_decoder(job.cfg).name, job.device, torch.get_num_threads()),
    )
    if state.step:
        LOGGER.info("going on after step %d of %d", state.step, schedule.total_steps)


def _check_precision(job: Job, state: State) -> None:
    """Stops before the first step where a reduced precision goes wrong here."""
    shapes = [*step_counts(job.inputs.schedule, job.processes.count)]
    task = build_task(job.cfg)
    require_precision(state.model, shapes, task, job.normalizer, job.precision, job.processes)


def _build_loop(job: Job, state: State, stop: StopRequest) -> Loop:
    """Everything that lives from the first step to the last."""
    cfg, schedule = job.cfg, job.inputs.schedule
    evaluator, protocol = job.evaluator(), job.protocol(full=False)
    model = state.model
    if job.processes.count > 1:
        model = DistributedDataParallel(model, broadcast_buffers=False)
    return Loop(
        state=state,
        train_step=build_step(cfg, model, state, job.normalizer, job.precision),
        schedule=schedule,
        device=job.device,
        processes=job.processes,
        seed=cfg.RNG_SEED,
        milestones=milestones(schedule, cfg.TRAIN.NUM_EVALUATIONS)[:-1],
        checkpoint_seconds=60 * cfg.TRAIN.CHECKPOINT_MINUTES,
        settle_steps=1
        if job.device.type == "cpu"
        else cfg.LOG_PERIOD,  # a CPU has nothing to wait for
        stop=stop,
        save=partial(_save, job, state),
        evaluate=lambda: evaluator.evaluate(evaluator.ready_model(state), state, protocol),
        check_unusable=partial(_check_unusable, job, state),
    )


def _run_loop(job: Job, loop: Loop) -> bool:
    """Trains from the state's step to the end; False if a signal stopped it."""
    cfg, processes, schedule = job.cfg, job.processes, job.inputs.schedule
    sampler = StepSampler(schedule, cfg.RNG_SEED, loop.state.step, processes.rank, processes.count)
    loader = build_train_loader(cfg, job.inputs.train, sampler, job.device)
    with (
        Progress(
            job.run_dir.metrics_jsonl if processes.is_main else None,
            loop.state.step,
            schedule.total_steps,
            cfg.LOG_PERIOD,
        ) as progress,
        compiled_step(cfg, loop.train_step, loop.state, schedule, processes),
    ):
        return loop.run(iter(loader), progress)


def _save(job: Job, state: State) -> None:
    if job.processes.is_main:
        with state.clock.measure("checkpoint"):
            save_checkpoint(job.run_dir, state)


def _check_unusable(job: Job, state: State) -> None:
    """Stops where more videos fail than the configuration tolerates."""
    inputs, max_share = job.inputs, job.cfg.DATA.MAX_UNUSABLE_SHARE
    broken = [*state.unusable.values()]
    problem = unusable_problem(
        inputs.missing, inputs.num_listed, broken, len(inputs.train), max_share
    )
    if problem:
        raise InputError([problem])


def _finish(job: Job, state: State, found: Evaluation) -> Outcome:
    """Writes result.json, last, and judges."""
    cfg, schedule = job.cfg, job.inputs.schedule
    environment = describe()
    macs = macs_by_shape(state.model, schedule_shapes(schedule))
    result = {
        "experiment": job.experiment,
        "row": cfg.ROW or job.experiment.split("/")[-1],
        "seed": cfg.RNG_SEED,
        "commit": environment["commit"],
        "date": environment["date"],
        "num_train_videos": len(job.inputs.train),
        "num_unusable_videos": len(job.inputs.missing) + len(state.unusable),
        "steps": state.step,
        "epochs": state.epoch,
        "clips_seen": round(state.epoch * schedule.num_videos),
        "clips_by_level": dict(state.levels),
        "train_flops": train_flops(schedule, macs),
        "params": num_params(state.model),
        "metrics": found.metrics,
        "seconds": seconds_record(state.clock),
        "device": environment["gpu"] if job.device.type == "cuda" else environment["cpu"],
        "precision": job.precision.name,
        "expected": [list(row) for row in cfg.EXPECTED],
        "verdict": judge(found.metrics, cfg.EXPECTED),
    }
    write_json(job.run_dir.result_json, result)
    job.run_dir.drop_evaluation_parts()
    LOGGER.info("%s", summary(result))
    return Outcome.MISSED if result["verdict"] == MISSED else Outcome.OK
