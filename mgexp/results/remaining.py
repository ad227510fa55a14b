"""Write for the terminal what is done of a study, what it found, and how long the rest will take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from mgexp.config.load import load_config
from mgexp.config.study import Study, Task
from mgexp.errors import InputError, listed
from mgexp.launch.sweep_state import progress_of
from mgexp.plan.advice import FEW_PHASE_STEPS, FEW_STEPS, has_few_steps
from mgexp.results.changed import RunDirs
from mgexp.results.collect import Gathered
from mgexp.results.model import COARSE_CONTROL
from mgexp.results.study_page import StudyResults, verdict_text
from mgexp.results.tables import NONE, difference_text, interval_text
from mgexp.text import aligned, counted, duration
from mgexp.train.setup import build_num_videos, build_row_schedule

UNKNOWN = "how long they take is known after the first run"


def seconds_of_rows(study: Study, gathered: Gathered) -> dict[str, float]:
    """Estimate the seconds of a run of each row from the runs so far. 0 where nothing is known.

    A shorter baseline that was never run takes its share of the baseline's seconds. Any other row that was never
    run may take as long as the longest.
    """
    runs: dict[str, list[float]] = defaultdict(list)
    for (row, _), run in gathered.runs.items():
        runs[row].append(run.program_seconds)
    known = {row: fmean(runs[row]) for row in study.yamls if row in runs}
    longest = max(known.values(), default=0.0)
    found = {row: known.get(row, longest) for row in study.yamls}
    for row in (study.budget_rows.keys() - known.keys()) if study.baseline in known else ():
        share = _share_of_epochs(study, row)
        if share is not None:
            found[row] = share * known[study.baseline]
    return found


def task_seconds(gathered: Gathered, of_rows: Mapping[str, float], task: Task) -> float:
    """Estimate the seconds of a task. ``of_rows`` is what ``seconds_of_rows`` found."""
    if not task.is_control:
        return of_rows[task.row]
    run = gathered.runs.get((task.row, task.seed))
    return run.other_seconds.get("evaluate", 0.0) if run else 0.0


def _share_of_epochs(study: Study, row: str) -> float | None:
    """Return the share of the baseline's epochs that a shorter baseline has. None if it is not written yet."""
    if not study.yamls[row].exists():
        return None
    own, whole = (load_config(study.yamls[name]).SOLVER.MAX_EPOCH for name in (row, study.baseline))
    return own / whole


def describe_left(study: Study, gathered: Gathered, left: Sequence[Task]) -> str:
    """Write how many tasks are left, and how long they will take or when that will be known."""
    text = f"{counted(len(left), 'task')} left"
    if left and not gathered.runs:
        return f"{text}; {UNKNOWN}"
    of_rows = seconds_of_rows(study, gathered)
    seconds = sum(task_seconds(gathered, of_rows, task) for task in left)
    return f"{text}, about {duration(seconds)}" if seconds else text


def status_table(study: Study, gathered: Gathered) -> str:
    """Write how many seeds of each row are done."""
    lines = [["row", "seeds", "done"]]
    for row in study.yamls:
        num = sum(name == row for name, _ in gathered.runs)
        lines.append([row, f"{study.num_seeds(row)}", f"{num}"])
    return aligned(lines)


def unfinished_lines(left: Sequence[Task], run_dirs: RunDirs) -> Iterator[str]:
    """Write how far each run is that has begun and not ended."""
    for task in left:
        for run_dir in () if task.is_control else run_dirs(task.row, task.seed):
            known = progress_of(run_dir)
            # A finished run that does not count is named with the reason elsewhere.
            if known["step"] and known["total"] and not run_dir.result_json.exists():
                steps = f"{known['step']:,} of {known['total']:,} steps"
                rest = f"about {duration(known['eta_seconds'])} of training left"
                yield f"{task.row}, seed {task.seed}: {steps}, {rest}"


def verdict_table(results: StudyResults) -> str:
    """Write the verdict on each row and its mean speed-ups, as on the page. "" if no row has a pair."""
    margin = results.study.margin
    claim = f"not worse by {counted(margin, 'point')}"
    lines = [
        ["row", "pairs", "points", "95 % interval", "speed-up, seconds", "speed-up, FLOPs", claim]
    ]
    for pair in results.pairs:
        ratios = (results.fair(pair).speed_up, pair.flop_saving)
        lines.append(
            [
                pair.own.name,
                f"{len(pair.runs)}",
                difference_text(pair.difference),
                interval_text(pair.difference),
                *(f"{one.mean:.2f}×" if one else NONE for one in ratios),
                verdict_text(pair.difference, margin).strip("*"),
            ]
        )
    return aligned(lines) if len(lines) > 1 else ""


def few_steps_text(study: Study) -> str:
    """Name the rows whose schedule has too few steps by the doctor's rule; "" if there are none.

    The control at the coarsest shape has few steps on purpose.
    """
    found = []
    for row in study.names:
        cfg = load_config(study.yamls[row])
        num_videos, problems = build_num_videos(cfg, None)
        # A run reports all that is wrong with the list or the schedule, so it need not be said here.
        try:
            schedule = None if problems else build_row_schedule(cfg, num_videos)
        except InputError:
            continue
        if schedule and has_few_steps(schedule) and row != COARSE_CONTROL:
            found.append(f"{row} has {counted(schedule.total_steps, 'step')}")
    if not found:
        return ""
    return (
        f"{listed(found)}. Our own rows with fewer than {FEW_STEPS} steps, or with a phase of fewer than "
        f"{FEW_PHASE_STEPS}, learned too little. Unless this is meant, raise SOLVER.MAX_EPOCH and SOLVER.STEPS, "
        "or MULTIGRID.EPOCH_FACTOR."
    )
