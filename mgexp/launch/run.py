"""Make a checked job from the options of a command line, run it in this process, and freeze its code."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mgexp.config.check import cross_problems
from mgexp.config.keys import Config
from mgexp.config.load import experiment_name, read_config, smoke, to_yaml
from mgexp.data.loader import MOST_AUTO_WORKERS
from mgexp.dist import Processes
from mgexp.errors import InputError, TrainingError, collected
from mgexp.failure import failing_together
from mgexp.launch.resources import Resources
from mgexp.models.build import build_problems
from mgexp.registry import OwnFile, import_file, imported
from mgexp.run.environment import COMMIT_TXT, REPOSITORY, git_commit
from mgexp.run.folder import SMOKE_GIVEN, RunDir, default_run_dir
from mgexp.stop import Interrupted, StopRequest
from mgexp.train.job import Job, evaluate_job, run_job
from mgexp.train.result import Outcome
from mgexp.train.resume import check_folder
from mgexp.train.setup import build_initial_weights, build_inputs


@dataclass(frozen=True)
class RunOptions:
    """The options of run_net.py that say what to run. The options of its launcher are ``Resources``."""

    config: Path
    overrides: tuple[str, ...] = ()
    seed: int | None = None
    output: Path | None = None  # None: the default run folder
    is_smoke: bool = False
    override: bool = False  # continue a run whose configuration changed
    given: tuple[str, ...] = ()  # KEY VALUE pairs that a frozen YAML contains
    imports: tuple[OwnFile, ...] = field(default_factory=imported)
    experiment: str = ""  # "": named after the YAML

    def __post_init__(self) -> None:
        # A task could not name its experiment, since the frozen copy of the code has no rows.
        if not self.experiment:
            object.__setattr__(self, "experiment", experiment_name(self.config))

    def read(self) -> Config:
        """Return the configuration without the seed. A key with a problem has its default."""
        cfg, _ = read_config(self.config, self.overrides)
        return cfg

    def frozen_as(self, config: Path) -> RunOptions:
        """Return the options of the same run with ``config``, a YAML that has the overrides."""
        return replace(self, config=config.absolute(), overrides=(), given=self.overrides)


def build_job(
    options: RunOptions, processes: Processes, problems: Sequence[str] = (), is_here: bool = True
) -> Job:
    """Read and check everything that a run needs, before any file is written.

    Raises InputError with ``problems`` and those that are found here. With ``is_here`` False the devices and the
    memory of this machine do not matter.
    """
    for file in options.imports:
        import_file(file.path, file.digest)
    pairs = [] if options.seed is None else ["RNG_SEED", str(options.seed)]
    if pairs and "RNG_SEED" in options.overrides[::2]:
        problems = [*problems, f"RNG_SEED is given beside the seed {options.seed}"]
    whole, key_problems = read_config(options.config, options.overrides, pairs)
    # Every second word of KEY VALUE KEY VALUE … is a key.
    keys = (*options.given, *options.overrides, *pairs)[::2]
    given = (*keys, *((SMOKE_GIVEN,) if options.is_smoke else ()))
    cfg = smoke(whole) if options.is_smoke else whole
    default = default_run_dir(options.experiment, cfg.RNG_SEED, options.is_smoke)
    run_dir = RunDir(options.output) if options.output else default
    # One message lists all problems, so a check that fails does not end the others.
    problems, initial = [*problems, *key_problems], None
    with collected(problems):
        initial = build_initial_weights(whole, run_dir)
    if options.is_smoke:
        # A smoke run has fewer channels, which may be legal where those of the row are not.
        problems += [*cross_problems(whole), *build_problems(whole, (), runs_own=False)]
        # The weights were checked. A smoke run does not load them, because its network has fewer channels.
        initial = None
    inputs = build_inputs(
        cfg, problems, processes.count, processes.local_count, is_here, processes.is_main
    )
    return Job(
        cfg, options.experiment, run_dir, inputs, processes, options.override, initial, given
    )


def run_in_process(
    options: RunOptions,
    processes: Processes,
    say: Callable[[str], None],
    stop: StopRequest | None = None,
    problems: Sequence[str] = (),
) -> Outcome:
    """Run, and turn an error into an exit code and one message for ``say``, with the caller's ``problems``."""
    stop, job = stop or StopRequest(), None
    try:
        with stop.listening(), failing_together(processes) as explained:
            # There is nothing to save yet, so a signal may end the run at once.
            with stop.at_once():
                job = build_job(options, processes, problems)
            if not job.cfg.TRAIN.ENABLE:
                return evaluate_job(job, stop)
            return run_job(job, stop, explained)
    except InputError as error:
        say(str(error) if job else f"nothing was written; {error}")
        return Outcome.BAD_INPUT
    except TrainingError as error:
        say(str(error))
        return Outcome.FAILED
    except Interrupted as error:
        say(f"{error}: start the same command again to continue")
        return Outcome.INTERRUPTED


def check_submission(
    options: RunOptions, resources: Resources, is_here: bool, problems: Sequence[str] = ()
) -> RunDir:
    """Check a run before it is submitted, and return its folder. Raises InputError with all problems."""
    processes = Processes(count=resources.num_processes, local_count=resources.tasks_per_node)
    job = build_job(options, processes, problems, is_here)
    # A trained run may be evaluated in other ways than its YAML says, which `evaluate_job` checks.
    if job.cfg.TRAIN.ENABLE:
        check_folder(job.run_dir, to_yaml(job.cfg), job.inputs.fingerprint(), options.override)
    return job.run_dir


def with_cpus(options: RunOptions, resources: Resources) -> Resources:
    """Unless a number was given, ask for a CPU for each loader worker and each thread of a process."""
    if resources.cpus_per_task:
        return resources
    cfg = options.read()
    given = cfg.DATA_LOADER.NUM_WORKERS
    num_workers = MOST_AUTO_WORKERS if given == "auto" else given
    num_cpus = num_workers + max(1, cfg.TRAIN.NUM_THREADS)
    return replace(resources, cpus_per_task=num_cpus)


def freeze_code(target: Path, source: Path = REPOSITORY) -> None:
    """Copy the package, the tools, the bases and their commit, unless there is a copy already."""
    # Copy to another name first. So a kill leaves no copy or a complete one.
    if not target.exists():
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        # In a container, a start that was killed may have had the same number.
        shutil.rmtree(temporary, ignore_errors=True)
        for name in ("mgexp", "tools", "experiments/base"):
            # An installed package has no tools beside it.
            if (source / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source / name, temporary / name, ignore=ignored)
        (temporary / COMMIT_TXT).write_text(git_commit(source) + "\n", encoding="utf-8")
        temporary.rename(target)


def require_frozen(code: Path) -> None:
    """Raise InputError if this process runs other code than the copy in ``code``."""
    if code.resolve() != REPOSITORY:
        problem = f"mgexp was imported from {REPOSITORY}, not from the frozen copy {code}"
        raise InputError([f"{problem}: unset PYTHONSAFEPATH and PYTHONPATH"])
