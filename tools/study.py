#!/usr/bin/env python3
"""Run a study and write its page: the rows, seeds and claims of study.yaml in a folder of rows.

    python tools/study.py experiments/quickstart
    python tools/study.py experiments/quickstart --minutes 50     start no run that would end later
    python tools/study.py experiments/quickstart --status         what is done; exit 2 if it cannot go on
    python tools/study.py experiments/quickstart --only-page      train nothing, write README.md and its figures
    python tools/study.py experiments/quickstart --launcher slurm --partition gpu --gpus-per-node 1

Start the same command again to continue.
Exit codes: 0 complete; 1 a run failed; 2 bad input; 3 an EXPECTED value was missed; 4 runs are left (start again).

In detail:
If study.py is killed, its run continues, and the next start waits for it.
The runs are interleaved: every row with seed 0, then every row with seed 1, and so on. Each is a run of run_net.py
in runs/<experiment>/seed<N>. For a FOLDER outside experiments/, such as tools/own_data.py writes, it is in
FOLDER/runs/<row>/seed<N>. After each run, its result is stored in runs.jsonl beside study.yaml, and exported to
results.csv of experiments/. Then README.md is written, and at the end the verdicts are printed. A run that is
stored is done, also without its folder.
The code of all runs of one call is the code at its start.
With Slurm, a call submits the runs that are missing, collects those that are finished, and returns 0. It uses the
code and the YAMLs of an earlier call while runs of that call are queued or running.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mgexp.config.check import differing_keys
from mgexp.config.load import experiment_name, flatten, load_config, read_config
from mgexp.config.study import Study, Task, read_study
from mgexp.config.values import EXPERIMENTS
from mgexp.data.classes import read_class_names
from mgexp.errors import InputError, raise_problems
from mgexp.figures.report_figures import draw_figures, drawn_before, remove_others
from mgexp.launch.resources import (
    RESOURCE_OPTIONS,
    Resources,
    add_resource_arguments,
    read_resources,
)
from mgexp.launch.run import RunOptions, with_cpus
from mgexp.launch.submit import to_local
from mgexp.launch.sweep import Sweep, SweepRun, age_of_code, check_sweep, freeze, submit_array, thaw
from mgexp.launch.sweep_state import IN_HAND, states
from mgexp.options import ToolParser, add_import_option, not_positive, run_tool, say
from mgexp.plan.row_schedules import load_schedules
from mgexp.registry import imported
from mgexp.results.comparison import row_order
from mgexp.results.render import HEAD, Picture, render_study
from mgexp.results.report import write_pictures
from mgexp.results.store import StudyRuns, gather_runs, store_gathered
from mgexp.results.study_state import (
    check_unchanged,
    describe_left,
    few_steps_text,
    new_budgets,
    seconds_of,
    status_text,
    verdict_table,
)
from mgexp.run.files import atomic_write_text, lock_file, short_path, text_of
from mgexp.run.folder import RUNS, RunDir, RunsDir, SweepDir, default_run_dir
from mgexp.text import counted, duration
from mgexp.train.result import Outcome

# What writes the page of all experiments is beside them. A copy of the code for queued runs lacks it.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "experiments"))

WAIT_SECONDS = 5.0
"""How often to look whether a run that an earlier start left going has ended."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = ToolParser(__doc__, "FOLDER [options] [KEY VALUE ...]")
    add = parser.add_argument
    add_import_option(parser)
    add("folder", type=Path, metavar="FOLDER", help="folder of rows with a study.yaml")
    text = (
        "local: one run after another on this machine (default); slurm: submit all runs, and return"
    )
    add("--launcher", choices=("local", "slurm"), default="local", help=text)
    text = (
        "start no run that would end later than in M minutes (the time of the first run is unknown)"
    )
    add("--minutes", type=float, metavar="M", help=text)
    instead = parser.add_mutually_exclusive_group().add_argument
    text = "train nothing, and write the page and its figures"
    instead("--only-page", action="store_true", help=text)
    text = "train and write nothing, and print how far each run is, and how much is left"
    instead("--status", action="store_true", help=text)
    add("--parallel", type=int, metavar="N", help="runs at a time on Slurm (default: all)")
    add_resource_arguments(parser)
    text = "keys of all runs that cannot change a result, such as DATA.PATH_PREFIX"
    add("overrides", nargs="*", metavar="KEY VALUE", help=text)
    return parser.parse_intermixed_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    # SIGTERM then works as Ctrl-C: the active run saves and ends.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(options)
    finally:
        signal.signal(signal.SIGTERM, before)


def run(options: argparse.Namespace) -> int:
    resources, problems = read_resources(options)
    problems += not_positive({"--minutes": options.minutes, "--parallel": options.parallel})
    unused = "minutes" if options.launcher == "slurm" else "parallel"
    if getattr(options, unused) is not None:
        problems.append(f"--{unused}: --launcher {options.launcher} cannot use it; leave it out")
    if options.only_page or options.status:
        option = "--status" if options.status else "--only-page"
        names = ["minutes", "parallel", *RESOURCE_OPTIONS]
        given = [name.replace("_", "-") for name in names if getattr(options, name)]
        given += ["launcher"] if options.launcher == "slurm" else []
        problems += [f"--{name}: {option} trains nothing; leave one of them out" for name in given]
    raise_problems(problems)
    board = Board(read_study(options.folder), tuple(options.overrides))
    board.check_overrides()
    if options.status:
        print(status_text(board.gathered, board.left(), board.run_dirs))
        board.check(trains=True)
        return 0
    board.place.mkdir(parents=True, exist_ok=True)
    busy = f"{options.folder}: another study.py runs this study; wait for it, or stop it"
    with lock_file(board.place / "study_lock", busy):
        board.check(trains=not options.only_page)
        if options.only_page:
            finish(board)
            return 0
        outcome = (
            submit(board, resources, options)
            if options.launcher == "slurm"
            else train(board, resources, options)
        )
        finish(board)
        return outcome


def finish(board: Board) -> None:
    """Write the page with its figures, and print its verdicts and where it is."""
    if verdicts := verdict_table(board.write(with_figures=True)):
        print(verdicts)
    say(f"{RunsDir(board.study.folder).readme_md} is written")


class Board:
    """What is done of a study, and where its runs are."""

    def __init__(self, study: Study, overrides: tuple[str, ...] = ()) -> None:
        self.study, self.overrides = study, overrides
        folder = study.folder.resolve()
        self.is_ours = folder.is_relative_to(EXPERIMENTS)
        # The name of a folder outside experiments/ may not be unique, so its runs are inside it. Slurm gets a
        # folder that is not that of a sweep of the same rows.
        if self.is_ours:
            name = folder.relative_to(EXPERIMENTS).as_posix()
            self.where = f"experiments/{name}"
            self.place, self.sweep_dir = Path(RUNS, name), SweepDir(Path(RUNS, "studies", name))
        else:
            self.where = short_path(study.folder)
            self.place = study.folder / RUNS
            self.sweep_dir = SweepDir(self.place / "sweeps")
        self.gathered: StudyRuns = gather_runs(study, self.run_dirs)

    def run_dir(self, row: str, seed: int) -> RunDir:
        """Return the folder of a run on this machine."""
        if self.is_ours:
            return default_run_dir(experiment_name(self.study.yamls[row]), seed, is_smoke=False)
        return RunDir(self.place / row / f"seed{seed}")

    def trained_dir(self, row: str, seed: int) -> RunDir:
        """Return the folder with the weights of a run, here or among those of Slurm, or else the one here."""
        with_weights = (folder for folder in self.run_dirs(row, seed) if folder.model.exists())
        return next(with_weights, self.run_dir(row, seed))

    def run_dirs(self, row: str, seed: int) -> Iterator[RunDir]:
        """Yield the folders where a run may be."""
        yield self.run_dir(row, seed)
        yield self.sweep_dir.run(self.sweep_run(row, seed).name)

    def sweep_run(self, row: str, seed: int) -> SweepRun:
        """Return a run as a part of a sweep, which is how Slurm gets it."""
        return SweepRun(experiment_name(self.study.yamls[row]), (), seed)

    def check(self, trains: bool) -> None:
        """Raise InputError if the page would replace one of a person, or if runs belong to earlier YAMLs."""
        page = RunsDir(self.study.folder).readme_md
        if not text_of(page, HEAD).startswith(HEAD):
            problem = "was written by hand: move its text to prose.md, which the page includes"
            raise InputError([f"{page} {problem}"])
        missing = {(task.row, task.seed) for task in self.left() if trains}
        check_unchanged(self.study, missing, self.run_dirs, self.overrides)

    def check_overrides(self) -> None:
        """Raise InputError if KEY VALUE pairs are wrong or could change a result, also if no run is left."""
        changed = {"RNG_SEED"}
        # A value that the baseline has may be another one in a row.
        for yaml in filter(Path.exists, self.study.yamls.values()):
            whole, problems = read_config(yaml, self.overrides)
            raise_problems(problems)
            own, now = (dict(flatten(one)) for one in (load_config(yaml), whole))
            changed |= {name for name, _, _ in differing_keys(own, now)}
        raise_problems(
            [
                f"{name} can change the result: a study has the keys of its YAMLs, so change it there"
                for name in self.overrides[::2]
                if name in changed
            ]
        )

    # --- what is left

    def is_done(self, task: Task) -> bool:
        """Return whether a task needs no more work. A control of a run without weights cannot be evaluated."""
        key = (task.row, task.seed)
        run = self.gathered.runs.get(key)
        if run is None or not task.is_control:
            return run is not None
        return (
            run.control(task.frame_order) is not None or not self.trained_dir(*key).model.exists()
        )

    def is_ready(self, task: Task) -> bool:
        """Return whether a task can be done now. A control needs its run, and a shorter baseline its YAML."""
        if task.is_control:
            return (task.row, task.seed) in self.gathered.runs
        return self.study.yamls[task.row].exists()

    def left(self) -> list[Task]:
        """List the tasks that are not done."""
        return [task for task in self.study.tasks if not self.is_done(task)]

    # --- what is written

    def update(self) -> None:
        """Do what `write` does without new figures. Also write the shorter baselines that can be known now."""
        self.write(with_figures=False)
        texts = new_budgets(self.gathered)
        for name, text in texts.items():
            path = self.study.yamls[name]
            path.parent.mkdir(exist_ok=True)
            atomic_write_text(path, text)
            say(f"{path} is written")
        if texts:
            # There may be runs of an earlier YAML.
            self.gathered = gather_runs(self.study, self.run_dirs)
            self.check(trains=True)

    def write(self, with_figures: bool) -> StudyRuns:
        """Gather the runs again, store them, and write the tables and the page, with new figures if asked for."""
        study = self.study
        classes = Path(study.classes)
        names = read_class_names(classes) if study.classes and classes.exists() else ()
        self.gathered = store_gathered(gather_runs(study, self.run_dirs), names)
        place = RunsDir(study.folder)
        if with_figures:
            pictures = draw(self.gathered)
            write_pictures(place, pictures)
            remove_others(study.folder, pictures)
        else:
            pictures = drawn_before(study.folder, self.gathered.comparison, study.margin)
        prose = text_of(place.prose_md)
        files = (word for one in imported() for word in ("--import", short_path(one.path)))
        command = shlex.join(["python", "tools/study.py", self.where, *files, *self.overrides])
        folds = load_config(study.yamls[study.baseline]).DATA.NUM_FOLDS
        page = render_study(self.gathered, pictures, prose, command, folds)
        atomic_write_text(place.readme_md, page)
        if self.is_ours:
            from overview import write_overview

            # After README.md, because the tables link to it.
            write_overview(EXPERIMENTS)
        return self.gathered


def draw(gathered: StudyRuns) -> list[Picture]:
    """Draw the figures of the page."""
    yamls = {name: gathered.study.yamls[name] for name in gathered.study.names}
    rows = load_schedules(yamls, gathered.comparison.num_train_videos)
    named = [replace(row, name=gathered.name_in_figures(row.name)) for row in rows]
    schedules = sorted(named, key=lambda row: row_order(row.name))
    return draw_figures(gathered.for_figures, schedules, gathered.pairs, gathered.study.margin)


# --- running


def train(board: Board, resources: Resources, options: argparse.Namespace) -> Outcome:
    """Run the tasks that are left on this machine, one after another."""
    started, missed = time.monotonic(), False
    board.update()
    if few := few_steps_text(board.study):
        say(f"warning: few steps: {few}")
    # Commits and edits during the study must not change the code of its later runs.
    with tempfile.TemporaryDirectory(prefix="mgexp_study_") as frozen:
        code = Path(frozen) / "code"
        while task := next(filter(board.is_ready, left := board.left()), None):
            total, seconds = len(board.study.tasks), seconds_of(board.gathered, [task])
            if options.minutes and time.monotonic() - started + seconds > 60 * options.minutes:
                num = counted(len(left), "task is", "tasks are")
                say(f"{num} left, and the next takes about {duration(seconds)}: start again")
                return Outcome.INTERRUPTED
            what = f"{task.row}, seed {task.seed}{', frames ' + task.frame_order if task.is_control else ''}"
            place = total - len(left) + 1
            is_blind = options.minutes and not board.gathered.runs
            note = ", so --minutes does not limit this one" if is_blind else ""
            say(f"task {place} of {total}: {what}; {describe_left(board.gathered, left)}{note}")
            run = run_options(board, task)
            folder = RunDir(run.output)
            wait_for(folder)
            outcome = to_local(run, resources, (), say, code)
            missed = missed or outcome is Outcome.MISSED
            if outcome not in (Outcome.OK, Outcome.MISSED):
                say(f"{what}: {outcome.name.lower()}; start the same command again to continue")
                return outcome
            board.update()
            if not board.is_done(task):
                problems = board.gathered.refused.get(folder.root, ())
                raise InputError([f"{what}: the run ended, but it does not count", *problems])
    if waiting := {task.row for task in board.left()}:
        pairs = counted(board.study.seconds_pairs, "pair")
        names = ", ".join(sorted(waiting))
        say(f"{names}: needs {pairs} whose seconds count: raise the seeds in study.yaml")
        return Outcome.INTERRUPTED
    return Outcome.MISSED if missed else Outcome.OK


def run_options(board: Board, task: Task) -> RunOptions:
    """Return the options of a task, as run_net.py would have them."""
    control = ("TRAIN.ENABLE", "False", "TEST.FRAME_ORDER", task.frame_order)
    return RunOptions(
        config=board.study.yamls[task.row],
        overrides=(*board.overrides, *(control if task.is_control else ())),
        seed=task.seed,
        output=board.trained_dir(task.row, task.seed).root,
    )


def wait_for(run_dir: RunDir) -> None:
    """Wait while another process trains in the folder, as the run of a study.py that was killed does."""
    has_said = False
    while run_dir.root.is_dir():
        try:
            with lock_file(run_dir.lock):
                return
        except InputError as error:
            if not has_said:
                say(f"an earlier start left this run going, so this one waits: {error.problems[0]}")
            has_said = True
            time.sleep(WAIT_SECONDS)


def submit(board: Board, resources: Resources, options: argparse.Namespace) -> Outcome:
    """Submit the runs that are left to Slurm, and return. Controls are evaluated with --launcher local."""
    board.update()
    tasks = [one for one in board.left() if board.is_ready(one) and not one.is_control]
    study, yamls = board.study, board.study.yamls.values()
    sweep = Sweep(
        folder=SweepDir(board.sweep_dir.root.absolute()),
        experiments={experiment_name(path): path for path in yamls if path.exists()},
        points=((),),
        seeds=tuple(range(max(map(study.num_seeds, study.yamls)))),
        overrides=board.overrides,
    )
    runs = [board.sweep_run(task.row, task.seed) for task in tasks]
    if runs:
        each = (with_cpus(sweep.options(one), resources) for one in runs)
        resources = max(each, key=lambda one: one.cpus_per_task)
        with sweep.folder.lock():
            thaw(sweep.folder)
            check_sweep(sweep, resources, is_here=False)
            freeze(sweep, runs)
            now = states(sweep.folder, [one.name for one in runs])
            todo = [one for one, state in zip(runs, now, strict=True) if state.state not in IN_HAND]
            if todo:
                submit_array(sweep, todo, resources, options.parallel or len(todo))
            num = counted(len(todo), "run is", "runs are")
            root = shlex.quote(str(board.sweep_dir.root))
            say(f"{num} submitted; follow: python tools/sweep.py status {root}")
            say(age_of_code(sweep.folder))
    return Outcome.OK


if __name__ == "__main__":
    sys.exit(run_tool(main, "start the same command again to continue"))
