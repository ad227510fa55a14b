"""One process of one run, from a checked configuration to result.json."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import av
import torch

from mgexp import dist
from mgexp.config.keys import Config
from mgexp.config.load import flatten, fold_of, in_fold, to_yaml
from mgexp.data.loader import build_train_loader, worker_count
from mgexp.dist import Processes
from mgexp.errors import InputError, raise_problems
from mgexp.failure import Explained
from mgexp.models.build import build_to_look_at
from mgexp.models.weights import Fit
from mgexp.multigrid.batchnorm import grouped_layers
from mgexp.multigrid.sampler import StepSampler
from mgexp.multigrid.schedule import step_counts
from mgexp.run.clock import Clock, seconds_since_process_start
from mgexp.run.environment import describe, num_cores, within_quota
from mgexp.run.files import (
    atomic_write_text,
    read_json,
    read_jsonl,
    understanding,
    write_json,
)
from mgexp.run.folder import RunDir
from mgexp.run.log import LOGGER, Progress, logging_to
from mgexp.run.other_programs import OtherPrograms, core_seconds_of_others
from mgexp.run.schedule_table import schedule_table
from mgexp.run.trackers import NOBODY, TensorBoard, Tracker, Trackers, WandbRun
from mgexp.stop import Interrupted, StopRequest, leaving_together
from mgexp.text import counted
from mgexp.train import resume
from mgexp.train.checkpoint import (
    State,
    build_first_state,
    build_last_state,
    is_out_of_patience,
    save_checkpoint,
)
from mgexp.train.compiled import compiled_step, settle_buckets, take_graph_forms
from mgexp.train.evaluate import Evaluator, build_protocol
from mgexp.train.faults import explaining_faults
from mgexp.train.loop import LoadedClips, Loop, milestones
from mgexp.train.precise_bn import build_precise_bn
from mgexp.train.precision import Precision, resolve_precision
from mgexp.train.precision_check import require_precision
from mgexp.train.result import Outcome, build_result, flops_counter, outcome_of, summary
from mgexp.train.resume import Choice
from mgexp.train.setup import Inputs
from mgexp.train.step import Normalizer, TrainStep, build_step, keep_memory
from mgexp.train.task import build_task


@dataclass(frozen=True)
class Job:
    """One process's share of a run of ``experiment``, such as quickstart/baseline, in ``run_dir``.

    With ``override`` the run resumes although the configuration, the videos or the schedule
    changed. ``initial`` are the weights to start from. ``given`` are the keys that the user gave on
    the command line.
    """

    cfg: Config
    experiment: str
    run_dir: RunDir
    inputs: Inputs
    processes: Processes
    override: bool = False
    initial: Fit | None = None
    given: tuple[str, ...] = ()

    @property
    def device(self) -> torch.device:
        """Return the GPU of this process if it has one and DEVICE allows it, else the CPU."""
        return dist.device_of(self.cfg.DEVICE, self.processes)


def run_job(job: Job, stop: StopRequest, explained: Explained = nullcontext) -> Outcome:
    """Train, evaluate and judge; resume where an earlier start of the same run stopped.

    ``explained`` returns a context manager. An error inside it gets the message of the process that
    failed first, because the other processes see only a broken connection.
    """
    run_dir, processes = job.run_dir, job.processes
    precision = _prepare_torch(job)
    with (
        explaining_faults(run_dir),
        dist.joined(processes, job.device),
        _opened_folder(job, explained) as choice,
    ):
        # Rank 0 alone reports a run that is complete, so the user reads it once.
        if choice is None and not processes.is_main:
            return Outcome.OK
        if choice is None:
            result = read_json(run_dir.result_json)
            with understanding(run_dir.result_json):
                print(f"{run_dir.root}: this run is complete: {summary(result)}")
                return outcome_of(result)
        dist.check_same(processes, job.inputs.identity(), "the list of videos")
        with build_trackers(job.cfg, job.experiment, run_dir, processes.is_main) as trackers:
            return _train(job, stop, precision, choice, trackers)


def _prepare_torch(job: Job) -> Precision:
    """Set threads, backends and memory of this process; return the precision of training."""
    # torch knows which cores it may use, but not how much time a container may take on them.
    torch.set_num_threads(job.cfg.TRAIN.NUM_THREADS or within_quota(torch.get_num_threads()))
    precision = resolve_precision(job.cfg.TRAIN.PRECISION, job.device)
    precision.set_backends()
    keep_memory(job.device)
    return precision


@contextmanager
def _opened_folder(job: Job, explained: Explained) -> Iterator[Choice | None]:
    """Lock the run folder for the block. Yield where to resume, or None if the run is complete.

    Rank 0 alone checks, locks and writes the folder and its log. It sends the other processes
    whether to train. ``resume.take_over`` later sends them the checkpoint to resume from.
    """
    run_dir, processes = job.run_dir, job.processes
    if not processes.is_main:
        # These processes give False, so all get the answer that rank 0 gives below.
        (is_complete,) = dist.any_true(processes, (False,), job.device)
        yield None if is_complete else Choice()
        return
    # All checks come before ``set_aside``, so a refused start changes no record.
    config, videos = to_yaml(job.cfg), job.inputs.fingerprint()
    changes = resume.check_folder(run_dir, config, videos, job.override)
    with run_dir.locked():
        is_complete = run_dir.result_json.exists()
        # The others wait for this answer. If a check above has failed, they report that failure in place of a
        # lost connection: see failure.py.
        dist.any_true(processes, (is_complete,), job.device)
        if is_complete:
            yield None
            return
        choice, schedule = resume.choose_checkpoint(run_dir), job.inputs.schedule
        if choice.checkpoint:
            # A custom model is built whole for this, which may take a while.
            model = build_to_look_at(job.cfg)
            resume.require_same_network(choice.checkpoint, model)
            has_batchnorm = bool(grouped_layers(model))
            fingerprint = resume.fingerprint(schedule, job.cfg.RNG_SEED, has_batchnorm)
            changes += resume.schedule_problems(choice.checkpoint, fingerprint, job.override)

        # The log is the outermost block, so it records an error after the others have explained it.
        # A fault of this machine is explained first, so that the other processes get the explanation too.
        with logging_to(run_dir.log_txt), explained(), explaining_faults(run_dir):
            resume.set_aside(run_dir, choice)
            resume.mend_records(run_dir)
            resume.forget_failures(run_dir, job.inputs.check_unusable)
            yield replace(choice, changes=tuple(changes))


def _train(
    job: Job, stop: StopRequest, precision: Precision, choice: Choice, trackers: Trackers
) -> Outcome:
    """Build everything once, train from the checkpoint to the last step, evaluate, and write the result."""
    cfg, run_dir, device = job.cfg, job.run_dir, job.device
    inputs, processes = job.inputs, job.processes
    schedule, clock = inputs.schedule, Clock()
    # Imports and checks took time too, before there was a clock.
    clock.add("program", seconds_since_process_start())
    with stop.listening(), clock.measure("program"), ExitStack() as opened:
        # Until the first step there is nothing to save, so a signal may end the process at once.
        with stop.at_once():
            task = build_task(cfg)
            normalizer = Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
            state = build_first_state(cfg, job.initial, precision, device, clock)
            # What cannot be counted is told now, and not at the first evaluation, which may come after hours.
            flops = flops_counter(state.model, schedule) if processes.is_main else None
            model = dist.shared(processes, state.model, in_bf16=cfg.TRAIN.BF16_ALLREDUCE)
            weights = inputs.class_weights() if cfg.SOLVER.CLASS_WEIGHTS == "loss" else None
            step = build_step(cfg, model, state, task, normalizer, precision, weights)
            # After DDP and the optimizer took hold of the parameters: loading copies into the same tensors.
            resume.take_over(run_dir, state, choice, processes)
            # The check follows ``take_over``, so that it sees the weights of the first step.
            shapes = [*step_counts(schedule)]
            parts = step.part_shapes(shapes)
            if cfg.TRAIN.COMPILE == "cuda_graphs":
                take_graph_forms(state.model)
            require_precision(state.model, parts, normalizer, precision, processes)
            # Shapes of phases that are over, or all if only the final evaluation is left, are not warmed up.
            counts = step_counts(schedule, state.step)
            left = {shape: num for shape, num in counts.items() if num}
            settle_buckets(step, [*left][:1], task, processes, clock)
            opened.enter_context(
                compiled_step(cfg.TRAIN.COMPILE, step, state, task, left, processes.is_main)
            )
            precise = build_precise_bn(cfg, inputs, device, processes, run_dir.failures_jsonl)
            evaluator = Evaluator(
                run_dir, normalizer, processes, task, precise, stop, trackers.evaluation, flops
            )
            loop = _build_loop(job, stop, state, step, evaluator)
            if processes.is_main:
                # What a checkpoint, the precision or the compiler refuses has changed no record.
                config, videos = to_yaml(cfg), inputs.fingerprint()
                resume.write_folder(run_dir, config, videos, schedule, choice.changes, job.given)
                resume.write_initial(run_dir, job.initial, cfg.TRAIN.INIT_WEIGHTS)
                # Steps after the checkpoint will be done again, so their records go.
                trackers.start(state.step)
                resume.cut_records(run_dir, state.step)
                _log_start(job, state.step)
        try:
            if _goes_on_after_start(loop, job) and not _run_loop(job, stop, loop, trackers):
                raise Interrupted(stop.signal_name or "a signal to another process")
            protocol = build_protocol(cfg, inputs, run_dir, True, device, processes)
            evaluation = evaluator.evaluate_finally(state, protocol)
        except Interrupted as error:
            text = f"saved after step {state.step}" if state.step else "nothing to save yet"
            LOGGER.info("%s: %s; start the same command again to continue", error.signal_name, text)
            return Outcome.INTERRUPTED
    if flops is None:
        return Outcome.OK
    # The presence of result.json says that the run is complete.
    result = build_result(
        cfg,
        job.experiment,
        device,
        precision,
        inputs,
        state,
        flops(state.step),
        evaluation.metrics,
    )
    write_json(run_dir.result_json, result)
    trackers.result(result)
    LOGGER.info("%s", summary(result))
    return outcome_of(result)


def _run_loop(job: Job, stop: StopRequest, loop: Loop, trackers: Trackers) -> bool:
    """Train to the last step, or return False at a signal. The workers of training end here."""
    cfg, inputs, processes = job.cfg, job.inputs, job.processes
    first, total = loop.state.step, inputs.schedule.total_steps
    metrics = job.run_dir.metrics_jsonl if processes.is_main else None
    weights = inputs.draw_weights(cfg.SOLVER.CLASS_WEIGHTS)
    sampler = StepSampler(
        inputs.schedule, cfg.RNG_SEED, first, processes.rank, cfg.AUG.REPEATS, weights
    )
    failures = job.run_dir.failures_jsonl
    loader = build_train_loader(cfg, inputs.train, sampler, job.device, inputs.opener, failures)
    with Progress(metrics, first, total, cfg.LOG_PERIOD, trackers.step) as progress:
        # iter() starts the workers. Meanwhile a signal may still end the run at once, in all processes.
        with leaving_together(processes, job.device), stop.at_once():
            batches = iter(loader)
        return loop.run(batches, progress)


def _goes_on_after_start(loop: Loop, job: Job) -> bool:
    """Evaluate now if a kill came between the save at a milestone and its evaluation. Return whether to train."""
    # Rank 0 decides for all, because on a shared disk the others may still see an older file.
    is_evaluated = job.processes.is_main and resume.is_evaluated(job.run_dir, loop.state.step)
    if loop.state.step in loop.milestones and not dist.from_main(job.processes, is_evaluated):
        return loop.evaluate()
    return not _is_out_of_patience(job)


def _is_out_of_patience(job: Job) -> bool:
    """Let rank 0 decide whether training ends early."""
    patience = job.cfg.TRAIN.PATIENCE
    if not patience:
        return False
    is_over = job.processes.is_main and is_out_of_patience(job.run_dir, patience)
    return dist.from_main(job.processes, is_over)


def _build_loop(
    job: Job, stop: StopRequest, state: State, step: TrainStep, evaluator: Evaluator
) -> Loop:
    """Build the loop, and the functions that save and evaluate at its milestones."""
    cfg, inputs, run_dir, processes = job.cfg, job.inputs, job.run_dir, job.processes
    protocol = build_protocol(cfg, inputs, run_dir, False, job.device, processes)
    fingerprint = resume.fingerprint(inputs.schedule, cfg.RNG_SEED, step.has_batchnorm)

    def save() -> None:
        if processes.is_main:
            with state.clock.measure("checkpoint"):
                save_checkpoint(run_dir, state, fingerprint, cfg.TRAIN.CHECKPOINTS_KEPT)

    def evaluate() -> bool:
        evaluator.evaluate(evaluator.ready_model(state), state, protocol)
        is_over = _is_out_of_patience(job)
        if is_over and processes.is_main:
            LOGGER.info(
                "TRAIN.PATIENCE = %d: training ends after step %d", cfg.TRAIN.PATIENCE, state.step
            )
        return not is_over

    return Loop(
        state=state,
        train_step=step,
        schedule=inputs.schedule,
        processes=processes,
        stop=stop,
        seed=cfg.RNG_SEED,
        # The last milestone is the end, which has the final evaluation instead.
        milestones=milestones(inputs.schedule, cfg.TRAIN.NUM_EVALUATIONS)[:-1],
        # On a CPU a step is finished when its call returns, so reading its loss waits for nothing.
        settle_steps=1 if job.device.type == "cpu" else cfg.LOG_PERIOD,
        evaluate=evaluate,
        write_checkpoint=save,
        checkpoint_seconds=60 * cfg.TRAIN.CHECKPOINT_MINUTES,
        loaded=LoadedClips(state, processes, inputs.check_unusable),
        others=OtherPrograms(state.clock, partial(_seconds_of_others, processes)),
    )


def _seconds_of_others(processes: Processes) -> float | None:
    """Read what others use of our cores in rank 0, which writes the result. The other ranks know nothing."""
    # The launcher of several processes is the parent of all of them. So rank 0 sees them all as ours.
    root = os.getppid() if processes.local_count > 1 else os.getpid()
    return core_seconds_of_others(root) if processes.is_main else None


def build_trackers(cfg: Config, experiment: str, run_dir: RunDir, is_main: bool) -> Trackers:
    """Build the trackers that TENSORBOARD.ENABLE and WANDB.ENABLE ask for. Only rank 0 has any."""
    if not is_main or not (cfg.TENSORBOARD.ENABLE or cfg.WANDB.ENABLE):
        return NOBODY
    values, environment = dict(flatten(cfg)), describe()
    trackers: dict[str, Tracker] = {}
    if cfg.TENSORBOARD.ENABLE:
        log_dir = cfg.TENSORBOARD.LOG_DIR
        # TensorBoard names a run after the folder of its events: quickstart/baseline/seed0 below runs/.
        folder = run_dir.tensorboard_in(Path(log_dir)) if log_dir else run_dir.root
        evaluations = partial(read_jsonl, run_dir.evaluations_jsonl)
        trackers["TensorBoard"] = TensorBoard(folder, values, environment, evaluations)
    if cfg.WANDB.ENABLE:
        trackers["W&B"] = WandbRun(
            run_dir,
            name=f"{experiment}/seed{cfg.RNG_SEED}",
            project=cfg.WANDB.PROJECT,
            entity=cfg.WANDB.ENTITY,
            mode=cfg.WANDB.MODE,
            config={**values, "environment": environment},
        )
    return Trackers(trackers)


def _log_start(job: Job, first_step: int) -> None:
    """Log what runs and on what, and write the names of the classes. Only rank 0 calls this."""
    schedule = job.inputs.schedule
    LOGGER.info("%s → %s\n%s", job.experiment, job.run_dir.root, schedule_table(schedule))
    if job.cfg.DATA.NUM_FOLDS:
        data, seed = in_fold(job.cfg).DATA, job.cfg.RNG_SEED
        fold = f"RNG_SEED {seed} modulo DATA.NUM_FOLDS {data.NUM_FOLDS}"
        lists = f"{data.TRAIN_LIST} and {data.VAL_LIST}"
        LOGGER.info("fold %d (%s): %s", fold_of(seed, data.NUM_FOLDS), fold, lists)
    num_workers = worker_count(job.cfg.DATA_LOADER.NUM_WORKERS, job.processes.local_count)
    threads = counted(torch.get_num_threads(), "thread")
    cores = f"{threads} on {num_cores()} of {counted(os.cpu_count() or 1, 'core')}"
    machine = f"{job.device}, {cores}, {counted(num_workers, 'loader worker')}"
    LOGGER.info("%s; PyAV %s; %s", job.inputs.summary(), av.__version__, machine)
    for warning in job.inputs.warnings:
        LOGGER.warning("%s", warning)
    if names := job.inputs.class_names:
        atomic_write_text(job.run_dir.classes_txt, "".join(f"{name}\n" for name in names))
    else:
        # An earlier start may have had names. With a checkpoint, the videos and so the names are the same.
        job.run_dir.classes_txt.unlink(missing_ok=True)
    if first_step:
        LOGGER.info("resuming after step %d of %d", first_step, schedule.total_steps)


def evaluate_job(job: Job, stop: StopRequest) -> Outcome:
    """Evaluate the model of a finished run under the full protocol; result.json stays as it is.

    Rank 0 evaluates alone. If torchrun started other processes, they return at once.
    """
    if not job.processes.is_main:
        return Outcome.OK
    cfg, run_dir, device, alone = job.cfg, job.run_dir, job.device, Processes()
    for path in (run_dir.model, run_dir.result_json):
        if not path.exists():
            raise InputError([f"{path} does not exist: train to the end before TRAIN.ENABLE False"])
    # The trained model may be evaluated under another protocol and on another device, which may not have the
    # precision or the compiler of training. No other key that can change the result may differ.
    free = ("TEST.", "DEVICE", "TRAIN.PRECISION", "TRAIN.COMPILE")
    problems = resume.config_problems(run_dir, to_yaml(cfg), free)
    if problems:
        problems.append("an evaluation takes the keys of its run: leave these out")
    raise_problems(problems)
    with explaining_faults(run_dir):
        state = build_last_state(cfg, run_dir, device)
        _prepare_torch(job)
        task, normalizer = build_task(cfg), Normalizer(cfg.DATA.MEAN, cfg.DATA.STD, device)
        with run_dir.locked(), logging_to(run_dir.log_txt), stop.listening():
            resume.mend_records(run_dir)
            evaluator = Evaluator(run_dir, normalizer, alone, task, None, stop)
            protocol = build_protocol(cfg, job.inputs, run_dir, True, device, alone)
            evaluator.evaluate(state.model, state, protocol)
    return Outcome.OK
