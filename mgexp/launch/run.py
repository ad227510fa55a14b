"""A copy of the code, that later changes of the working tree do not reach."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mgexp.config.keys import Config
from mgexp.config.load import experiment_name, read_config, smoke, to_yaml
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, collected
from mgexp.failure import failing_together
from mgexp.launch.resources import Resources
from mgexp.plan.workers import with_workers
from mgexp.run.environment import REPOSITORY, git_commit
from mgexp.run.folder import COMMIT_TXT, RunDir, default_run_dir
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.job import Job, evaluate_job, run_job
from mgexp.train.result import Outcome
from mgexp.train.resume import check_folder
from mgexp.train.setup import build_initial_weights, build_inputs


@dataclass(frozen=True)
class RunOptions:
    """What is run: the options of run_net.py but those of its launcher. ``config``: the YAML.

    ``output`` None: the default run folder. ``override``: go on although the configuration changed.
    ``given``: KEY VALUE pairs that the YAML holds already, as that of a point of a sweep does.
    """

    config: Path
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    output: Path | None = None
    is_smoke: bool = False
    max_clips_per_gpu: int | None = None
    override: bool = False
    given: tuple[str, ...] = ()

    @property
    def experiment(self) -> str:
        """Its name, such as quickstart/baseline."""
        return experiment_name(self.config)


def build_job(
    options: RunOptions, processes: Processes, problems: Sequence[str] = (), is_here: bool = True
) -> Job:
    """Reads and checks everything; raises InputError, with ``problems`` too, before a file is written.

    ``is_here`` False: the run is for another machine, whose devices and memory are not looked at.
    """
    pairs = _pairs(options)
    whole, found = read_config(options.config, options.overrides, pairs)
    given = (*options.given, *options.overrides, *pairs)[::2]
    cfg = smoke(whole) if options.is_smoke else whole
    default = default_run_dir(options.experiment, cfg.RNG_SEED, options.is_smoke)
    run_dir = RunDir(options.output) if options.output else default
    problems, initial = [*problems, *found], None
    with collected(problems):
        initial = build_initial_weights(whole, run_dir)
    if options.is_smoke:
        initial = None  # they fit all channels; that they do was worth knowing
    inputs = build_inputs(cfg, problems, processes.count, processes.local_count, is_here)
    return Job(
        cfg, options.experiment, run_dir, inputs, processes, options.override, initial, given
    )


def _pairs(options: RunOptions) -> list[str]:
    seed, limit = options.seed, options.max_clips_per_gpu
    return [
        *([] if seed is None else ["RNG_SEED", str(seed)]),
        *([] if limit is None else ["TRAIN.MAX_CLIPS_PER_GPU", str(limit)]),
    ]


def run_in_process(
    options: RunOptions,
    processes: Processes,
    say: Callable[[str], None],
    stop: StopRequest | None = None,
    problems: Sequence[str] = (),
) -> Outcome:
    """Runs, and turns an error into an exit code and one message, that ``say`` gets.

    ``problems`` that are known already join those that are found here.
    """
    stop, job = stop or StopRequest(), None
    try:
        with stop.listening(), failing_together(processes) as explained:
            with stop.at_once():  # nothing to save yet
                made = build_job(options, processes, problems)
                cfg = with_workers(made.cfg, made.inputs, processes, made.device)
            job = replace(made, cfg=cfg)
            if not cfg.TRAIN.ENABLE:
                return evaluate_job(job, stop)
            return run_job(job, stop, explained)
    except InputError as error:
        say(str(error) if job else f"nothing was written; {error}")
        return Outcome.BAD_INPUT
    except TrainingError as error:
        say(str(error))
        return Outcome.FAILED
    except Interrupted as error:
        say(f"{error}: start again to go on")
        return Outcome.INTERRUPTED


def check_submission(
    options: RunOptions, processes: Processes, is_here: bool, problems: Sequence[str]
) -> RunDir:
    """The checks of a run that can be made before it is submitted; its folder. Raises InputError."""
    job = build_job(options, processes, problems, is_here)
    check_folder(job.run_dir, to_yaml(job.cfg), job.inputs.fingerprint(), options.override)
    return job.run_dir


def with_cpus(options: RunOptions, resources: Resources) -> Resources:
    """``resources`` with the number of CPUs that a process of the run uses, where none was given.

    Raises InputError where the number of loader workers is measured on the machine.
    """
    if resources.cpus_per_task:
        return resources
    cfg, _ = read_config(options.config, options.overrides)
    if cfg.DATA_LOADER.NUM_WORKERS == "auto":
        problem = (
            "--cpus-per-task is not given, and DATA_LOADER.NUM_WORKERS = auto needs to know it"
        )
        raise InputError([f"{problem}: give one of them as a number"])
    return replace(resources, cpus_per_task=_num_cpus(cfg))


def _num_cpus(cfg: Config) -> int:
    return int(cfg.DATA_LOADER.NUM_WORKERS) + max(1, int(cfg.TRAIN.NUM_THREADS))


def frozen_yaml(options: RunOptions) -> tuple[str, list[str]]:
    """The whole configuration as YAML, and what is wrong with its keys and values."""
    cfg, problems = read_config(options.config, options.overrides)
    return to_yaml(cfg), problems


FROZEN = ("mgexp", "tools")


def freeze_code(target: Path, source: Path = REPOSITORY) -> str:
    """Copies the package and the tools from ``source``, with their commit; returns the commit.

    A copy that is there already stays as it is. A kill leaves none or a whole one.
    """
    if not target.exists():
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        for name in FROZEN:
            if (source / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source / name, temporary / name, ignore=ignored)
        (temporary / COMMIT_TXT).write_text(git_commit(source) + "\n", encoding="utf-8")
        temporary.rename(target)
    return git_commit(target)


def require_frozen(code: Path) -> None:
    """Raises InputError where this process runs other code than the copy in ``code``."""
    if code.resolve() != REPOSITORY:
        raise InputError(
            [
                f"mgexp was imported from {REPOSITORY}, not from the frozen copy in {code}: unset "
                "PYTHONSAFEPATH, and keep PYTHONPATH from naming another copy"
            ]
        )
