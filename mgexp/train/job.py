"""One process of one run: from a checked configuration to result.json. The only file that sees it all."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.config.load import flatten, to_yaml
from mgexp.data.loader import build_decoder, build_time_limit, build_train_loader
from mgexp.dist import Processes
from mgexp.errors import InputError
from mgexp.failure import Explained
from mgexp.models.weights import Fit
from mgexp.multigrid.sampler import StepSampler
from mgexp.multigrid.steps import step_counts
from mgexp.run.clock import Clock, seconds_since_process_start
from mgexp.run.environment import describe
from mgexp.run.files import read_json, read_jsonl, write_json
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER, Progress, logging_to
from mgexp.run.schedule_table import schedule_table
from mgexp.run.trackers import NOBODY, TensorBoard, Tracker, Trackers, WandbRun
from mgexp.stop import Interrupted, StopRequest
from mgexp.train import resume
from mgexp.train import start as folder
from mgexp.train.checkpoint import State, save_checkpoint
from mgexp.train.evaluator import Evaluator, Protocol, build_evaluator, build_protocol
from mgexp.train.faults import faults_told
from mgexp.train.loop import Loop, milestones
from mgexp.train.precision import Precision
from mgexp.train.precision_check import require_precision
from mgexp.train.result import Outcome, judge, numbers, outcome_of, seconds_record, summary
from mgexp.train.resume import (
    build_first_state,
    build_last_state,
    fingerprint,
    require_same_network,
)
from mgexp.train.scores import Evaluation
from mgexp.train.setup import (
    Inputs,
    build_precision,
    build_step,
    build_task,
    compiled_step,
    raise_problems,
)
from mgexp.train.step import Normalizer, keep_memory


@dataclass(frozen=True)
class Job:
    """What is run: ``experiment`` such as quickstart/baseline, into ``run_dir``."""

    cfg: Config
    experiment: str
    run_dir: RunDir
    inputs: Inputs
    processes: Processes
    override: bool = False
    initial: Fit | None = None  # weights to start from
    given: tuple[str, ...] = ()  # keys whose values were given beside the YAML
    stop: StopRequest = field(default_factory=StopRequest)
    explained: Explained = nullcontext
    trackers: Trackers = NOBODY

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
        return build_protocol(
            self.cfg, self.inputs, self.run_dir, full, self.device, self.processes
        )

    def evaluator(self) -> Evaluator:
        """Scores models of this run."""
        parts = (self.cfg, self.inputs, self.run_dir, self.normalizer, self.processes, self.stop)
        return replace(build_evaluator(*parts), tell=self.trackers.evaluation)

    def fingerprint(self) -> dict[str, object]:
        """Of the schedule, as checkpoints hold it."""
        return fingerprint(self.inputs.schedule, self.cfg.RNG_SEED)


def run_job(job: Job) -> Outcome:
    """Trains, evaluates and judges; goes on where an earlier start of the same run stopped."""
    _prepare_torch(job)
    with faults_told(job.run_dir), dist.joined(job.processes, job.device):
        return _lead(job) if job.processes.is_main else _follow(job)


def _lead(job: Job) -> Outcome:
    """Of the process that writes the files: it tells the others whether there is anything to do."""
    config, videos = to_yaml(job.cfg), job.inputs.fingerprint()
    changes = folder.check_folder(job.run_dir, config, videos, job.override)
    with job.run_dir.locked():
        is_finished = job.run_dir.result_json.exists()
        dist.any_true(job.processes, (is_finished,), job.device)
        if is_finished:
            result = read_json(job.run_dir.result_json)
            print(f"{job.run_dir.root}: this run is complete: {summary(result)}")
            return outcome_of(result)
        choice = resume.choose_checkpoint(job.run_dir)
        require_same_network(job.cfg, choice)
        changes += resume.schedule_problems(choice, job.fingerprint(), job.override)
        with logging_to(job.run_dir.log_txt), job.explained(), faults_told(job.run_dir):
            resume.set_aside(job.run_dir, choice)
            folder.write_folder(
                job.run_dir, config, videos, job.inputs.schedule, changes, job.initial, job.given
            )
            return _train(job, choice)


def _follow(job: Job) -> Outcome:
    (is_finished,) = dist.any_true(job.processes, (False,), job.device)
    return Outcome.OK if is_finished else _train(job)


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
    raise_problems(folder.config_problems(job.run_dir, to_yaml(job.cfg), ("TEST.", "DEVICE")))
    state = build_last_state(job.cfg, job.run_dir, job.device)
    _prepare_torch(job)
    with (
        faults_told(job.run_dir),
        job.run_dir.locked(),
        logging_to(job.run_dir.log_txt),
        job.stop.listening(),
    ):
        job.evaluator().evaluate(state.model, state, job.protocol(full=True))
        job.run_dir.drop_evaluation_parts()
    return Outcome.OK


def _prepare_torch(job: Job) -> None:
    torch.set_num_threads(job.cfg.TRAIN.NUM_THREADS or torch.get_num_threads())
    job.precision.set_backends()
    if job.device.type == "cpu":
        keep_memory()


def build_trackers(cfg: Config, experiment: str, run_dir: RunDir, is_main: bool) -> Trackers:
    """Make the trackers that TENSORBOARD.ENABLE and WANDB.ENABLE ask for; none but in the main process."""
    if not is_main or not (cfg.TENSORBOARD.ENABLE or cfg.WANDB.ENABLE):
        return NOBODY
    values, environment = dict(flatten(cfg)), describe()
    found: dict[str, Tracker] = {}
    if cfg.TENSORBOARD.ENABLE:
        log_dir = cfg.TENSORBOARD.LOG_DIR
        folder = run_dir.tensorboard_in(Path(log_dir)) if log_dir else run_dir.tensorboard
        evaluations = partial(read_jsonl, run_dir.evaluations_jsonl)
        found["TensorBoard"] = TensorBoard(folder, values, environment, evaluations)
    if cfg.WANDB.ENABLE:
        found["W&B"] = WandbRun(
            run_dir,
            name=f"{experiment}/seed{cfg.RNG_SEED}",
            project=cfg.WANDB.PROJECT,
            entity=cfg.WANDB.ENTITY,
            mode=cfg.WANDB.MODE,
            config={**values, "environment": environment},
        )
    return Trackers(found)


def _train(job: Job, choice: resume.Choice = resume.NO_CHOICE) -> Outcome:
    """``choice``: where to go on, as the main process chose; the others learn it from that."""
    dist.check_same(job.processes, job.inputs.identity(), "the list of videos")
    with build_trackers(job.cfg, job.experiment, job.run_dir, job.processes.is_main) as trackers:
        return _train_told(replace(job, trackers=trackers), choice)


def _train_told(job: Job, choice: resume.Choice) -> Outcome:
    clock = Clock()
    clock.add("program", seconds_since_process_start())
    with job.stop.listening(), clock.measure("program"):
        with job.stop.at_once():  # nothing to save yet
            state = build_first_state(job.cfg, job.initial, job.device, clock)
            loop = _build_loop(job, state)
            _resume(job, state, choice)
            _check_precision(job, state)
        try:
            found = _train_and_evaluate(job, loop)
        except Interrupted as error:
            text = f"saved after step {state.step}" if state.step else "nothing to save yet"
            LOGGER.info("%s: %s; start again to go on", error.signal_name, text)
            return Outcome.INTERRUPTED
    return _finish(job, state, found) if job.processes.is_main else Outcome.OK


def _train_and_evaluate(job: Job, loop: Loop) -> Evaluation:
    """Raises Interrupted in every process, with everything saved, where a signal stops one."""
    state = loop.state
    if state.step in loop.milestones and not folder.is_evaluated(job.run_dir, state.step):
        loop.evaluate()
    if not _run_loop(job, loop):
        raise Interrupted(job.stop.signal_name or "a signal to another process")
    _save(job, state)
    return job.evaluator().evaluate_finally(state, job.protocol(full=True))


def _resume(job: Job, state: State, choice: resume.Choice) -> None:
    """Goes on after the last checkpoint, and says what is run."""
    resume.take_over(job.run_dir, state, choice, job.processes)
    if not job.processes.is_main:
        return
    job.trackers.start(state.step)
    folder.cut_records(job.run_dir, state.step)
    schedule = job.inputs.schedule
    LOGGER.info("%s → %s\n%s", job.experiment, job.run_dir.root, schedule_table(schedule))
    machine = f"{job.device}, {torch.get_num_threads()} threads"
    LOGGER.info("%s; decoder %s; %s", job.inputs.summary(), build_decoder(job.cfg).name, machine)
    if state.step:
        LOGGER.info("going on after step %d of %d", state.step, schedule.total_steps)


def _check_precision(job: Job, state: State) -> None:
    """Stops before the first step where a reduced precision goes wrong here."""
    shapes = [*step_counts(job.inputs.schedule, job.processes.count)]
    task = build_task(job.cfg)
    require_precision(state.model, shapes, task, job.normalizer, job.precision, job.processes)


def _build_loop(job: Job, state: State) -> Loop:
    """Everything that lives from the first step to the last."""
    cfg, schedule = job.cfg, job.inputs.schedule
    evaluator, protocol = job.evaluator(), job.protocol(full=False)
    model = dist.shared(job.processes, state.model)
    return Loop(
        state=state,
        train_step=build_step(cfg, model, state, job.normalizer, job.precision),
        schedule=schedule,
        device=job.device,
        processes=job.processes,
        seed=cfg.RNG_SEED,
        milestones=milestones(schedule, cfg.TRAIN.NUM_EVALUATIONS)[:-1],
        checkpoint_seconds=60 * cfg.TRAIN.CHECKPOINT_MINUTES,
        settle_steps=1 if job.device.type == "cpu" else cfg.LOG_PERIOD,  # a CPU waits for nothing
        stop=job.stop,
        save=partial(_save, job, state),
        evaluate=lambda: evaluator.evaluate(evaluator.ready_model(state), state, protocol),
        check_unusable=lambda: job.inputs.check_unusable(
            [*state.unusable.values()], cfg.DATA.MAX_UNUSABLE_SHARE
        ),
    )


def _run_loop(job: Job, loop: Loop) -> bool:
    """Trains from the state's step to the end; False if a signal stopped it, saved."""
    cfg, processes, schedule = job.cfg, job.processes, job.inputs.schedule
    sampler = StepSampler(schedule, cfg.RNG_SEED, loop.state.step, processes.rank)
    limit = build_time_limit(cfg, job.run_dir.timeouts_jsonl)
    loader = build_train_loader(cfg, job.inputs.train, sampler, job.device, limit)
    with (
        Progress(
            job.run_dir.metrics_jsonl if processes.is_main else None,
            loop.state.step,
            schedule.total_steps,
            cfg.LOG_PERIOD,
            job.trackers.step,
        ) as progress,
        job.stop.at_once(),
        compiled_step(cfg, loop.train_step, loop.state, schedule, processes),
    ):
        batches = iter(loader)
        with job.stop.deferred():
            return loop.run(batches, progress)


def _save(job: Job, state: State) -> None:
    if job.processes.is_main:
        with state.clock.measure("checkpoint"):
            kept = job.cfg.TRAIN.CHECKPOINTS_KEPT
            save_checkpoint(job.run_dir, state, job.fingerprint(), kept)


def _finish(job: Job, state: State, found: Evaluation) -> Outcome:
    """Writes result.json, last, and judges."""
    cfg = job.cfg
    environment = describe()
    result = {
        "experiment": job.experiment,
        "row": cfg.ROW or job.experiment.split("/")[-1],
        "seed": cfg.RNG_SEED,
        "commit": environment["commit"],
        "date": environment["date"],
        **numbers(state, job.inputs),
        "metrics": found.metrics,
        "seconds": seconds_record(state.clock),
        "device": environment["gpu"] if job.device.type == "cuda" else environment["cpu"],
        "precision": job.precision.name,
        "expected": [list(row) for row in cfg.EXPECTED],
        "verdict": judge(found.metrics, cfg.EXPECTED),
    }
    write_json(job.run_dir.result_json, result)
    job.trackers.result(result)
    job.run_dir.drop_evaluation_parts()
    LOGGER.info("%s", summary(result))
    return outcome_of(result)
