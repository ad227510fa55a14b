"""Say of a study what is done, how long the rest will take, and which of its parts no longer fit its YAMLs.

A part is a run folder, finished or not, the YAML of a shorter baseline, or the stored runs of a row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from statistics import median

from mgexp.config.check import PLACE_KEYS, differing_keys
from mgexp.config.load import file_values, flatten, load_config
from mgexp.config.study import BUDGET, Study, Task, budget_text, recipe_of, stale_budgets
from mgexp.errors import InputError, listed
from mgexp.launch.sweep_state import progress_of
from mgexp.plan.advice import has_few_steps
from mgexp.plan.row_schedules import build_known_schedule, load_schedules
from mgexp.results.comparison import Pair, judge_margin
from mgexp.results.render import NONE, difference_text, interval_text
from mgexp.results.store import RESUMED_WITH_OVERRIDE, RunDirs, StudyRuns, has_override, read_stored
from mgexp.run.files import short_path
from mgexp.run.folder import RunDir, RunsDir
from mgexp.text import aligned, counted, duration, shown

MOST_KEYS = 4
"""A line of the message names this many changed keys."""


# --- what is left


def seconds_of(gathered: StudyRuns, tasks: Sequence[Task]) -> float:
    """Estimate the seconds of tasks from the runs so far. 0 where nothing is known."""
    of_rows = _seconds_of_rows(gathered)
    runs = [gathered.runs.get((task.row, task.seed)) for task in tasks if task.is_control]
    training = sum(of_rows[task.row] for task in tasks if not task.is_control)
    return training + sum(run.evaluate_seconds for run in runs if run)


def _seconds_of_rows(gathered: StudyRuns) -> dict[str, float]:
    """Estimate the seconds of a run of each row."""
    study = gathered.study
    # A mean would be wrong where one run stood still for hours.
    known = {
        row.name: median(row.each("program_seconds"))
        for row in gathered.comparison.all_rows
        if row.runs
    }
    # A row that was never run may take as long as the longest.
    longest = max(known.values(), default=0.0)
    seconds = {row: known.get(row, longest) for row in study.yamls}
    # A shorter baseline that was never run takes its share of the baseline's seconds.
    for row in study.budget_rows:
        yaml = study.yamls[row]
        if row not in known and study.baseline in known and yaml.exists():
            own, whole = load_config(yaml), load_config(study.yamls[study.baseline])
            share = own.SOLVER.MAX_EPOCH / whole.SOLVER.MAX_EPOCH
            seconds[row] = share * known[study.baseline]
    return seconds


def describe_left(gathered: StudyRuns, left: Sequence[Task]) -> str:
    """Write how many tasks are left, and how long they will take or when that will be known."""
    text = f"{counted(len(left), 'task')} left"
    if left and not gathered.runs:
        return f"{text}; how long they take is known after the first run"
    seconds = seconds_of(gathered, left)
    return f"{text}, about {duration(seconds)}" if seconds else text


def new_budgets(gathered: StudyRuns) -> dict[str, str]:
    """Write the YAMLs of shorter baselines that are missing and can be known, by name."""
    texts = {}
    study, comparison, baseline = gathered.study, gathered.comparison, gathered.study.baseline
    missing = {
        name: row for name, row in study.budget_rows.items() if not study.yamls[name].exists()
    }
    of_flops = [name for name in missing if study.shared_budget(name) == "FLOPs"]
    if of_flops:
        rows = [missing[name] for name in of_flops]
        yamls = {row: study.yamls[row] for row in (*rows, baseline)}
        schedules = load_schedules(yamls, comparison.num_train_videos)
        flops = {row.name: row.train_flops for row in schedules}
        if unknown := sorted(yamls.keys() - flops.keys()):
            problem = f"the FLOPs of {', '.join(unknown)} are unknown: give DATA.NUM_VIDEOS"
            raise InputError([f"{study.folder}: {problem}, or the training list"])
        for name in of_flops:
            share = flops[missing[name]] / flops[baseline]
            texts[name] = budget_text(study, name, share, "the schedules of both")
    # FLOPs follow from the schedules. Seconds need the first pairs of the study.
    for name in [name for name in missing if name not in of_flops]:
        timed = Pair(comparison.row(missing[name]), comparison.row(baseline)).timed_alike
        pair = timed.only(timed.seeds[: study.seconds_pairs])
        if pair.speed_up and len(pair.seeds) == study.seconds_pairs:
            seeds = ", ".join(map(str, pair.seeds))
            share = 1 / pair.speed_up.mean
            texts[name] = budget_text(study, name, share, f"the seconds of seeds {seeds}")
    return texts


def status_text(gathered: StudyRuns, left: Sequence[Task], run_dirs: RunDirs) -> str:
    """Write how many seeds of each row are done, how far unfinished runs are, and what is left."""
    rows = [["row", "seeds", "done"]]
    for row in gathered.comparison.all_rows:
        rows.append([row.name, f"{gathered.study.num_seeds(row.name)}", f"{len(row.runs)}"])
    lines = [aligned(rows)]
    for task in left:
        for run_dir in () if task.is_control else run_dirs(task.row, task.seed):
            known = progress_of(run_dir)
            # A finished run that does not count is named with the reason elsewhere.
            if known["step"] and known["total"] and not run_dir.result_json.exists():
                steps = f"{known['step']:,} of {known['total']:,} steps"
                rest = f"about {duration(known['eta_seconds'])} of training left"
                lines.append(f"{task.row}, seed {task.seed}: {steps}, {rest}")
    return "\n".join([*lines, describe_left(gathered, left)])


def verdict_table(gathered: StudyRuns) -> str:
    """Write the verdict on each row and its mean speed-ups, as on the page. "" if no row has a pair."""
    margin = gathered.study.margin
    claim = f"not worse by {counted(margin, 'point')}"
    lines = [
        ["row", "pairs", "points", "95 % interval", "speed-up, seconds", "speed-up, FLOPs", claim]
    ]
    for pair in gathered.pairs:
        ratios = (pair.speed_up, pair.flop_saving)
        lines.append(
            [
                pair.own.name,
                f"{len(pair.runs)}",
                difference_text(pair.difference),
                interval_text(pair.difference),
                *(f"{ratio.mean:.2f}×" if ratio else NONE for ratio in ratios),
                judge_margin(pair.difference, margin).strip("*"),
            ]
        )
    return aligned(lines) if len(lines) > 1 else ""


def few_steps_text(study: Study) -> str:
    """Name the rows whose schedule has few steps; "" if there are none."""
    rows = []
    for row in study.names:
        # A run reports all that is wrong with the list or the schedule.
        try:
            schedule = build_known_schedule(load_config(study.yamls[row]))
        except InputError:
            continue
        if schedule and has_few_steps(schedule):
            rows.append(f"{row} has {counted(schedule.total_steps, 'step')}")
    if not rows:
        return ""
    return (
        f"{listed(rows)}. Such trainings mostly lost accuracy: train the baseline first, then ask "
        "tools/doctor.py --run"
    )


# --- what no longer fits


def check_unchanged(
    study: Study,
    missing: Collection[tuple[str, int]],
    run_dirs: RunDirs,
    overrides: Sequence[str] = (),
) -> None:
    """Raise InputError if a run folder, a YAML or stored runs of the study do not fit its rows now.

    ``missing`` are the pairs of a row and a seed that are still to train. Every run of a shorter baseline is in
    the way if its YAML was written for other recipes.
    """
    stale = stale_budgets(study)
    # Stored runs are in the way even if nothing is missing, because a new run of their seed would replace them.
    stored = _stored_parts(study, stale)
    parts = [text for _, text in stored]
    # The folders of these runs name the keys that changed.
    looked_at = {*stale, *(row for row, _ in stored)}
    for row, path in study.yamls.items():
        if row in stale:
            made_for = f"{study.baseline} or {study.budget_rows[row]}"
            parts.append(f"{short_path(path)} was written for another recipe of {made_for}")
        for seed in range(study.num_seeds(row)) if path.exists() else ():
            if row not in looked_at and (row, seed) not in missing:
                continue
            for run_dir in run_dirs(row, seed):
                is_finished = run_dir.result_json.exists()
                # Before the first checkpoint a run uses nothing of its folder.
                if not (is_finished or run_dir.checkpoint_steps()):
                    continue
                now = dict(flatten(load_config(path, overrides)))
                why = _changes(run_dir, now, is_finished)
                if row in stale and not why:
                    why = f"was trained with {short_path(path)}"
                if why:
                    state = "finished" if is_finished else "not finished"
                    parts.append(f"{short_path(run_dir.root)} ({state}): {why}")
    if parts:
        raise InputError(
            [
                "these runs and YAMLs belong to an earlier configuration:\n"
                + "".join(f"  {part}\n" for part in parts)
                + "undo the change, or move these elsewhere and start again; a runs.jsonl has a line for each run"
            ]
        )


def _stored_parts(study: Study, stale: Collection[str]) -> list[tuple[str, str]]:
    """List each row of which runs of another recipe are stored in the folder of the study, and say how many."""
    parts = []
    for place in (study.folder, study.folder / BUDGET):
        path = RunsDir(place).stored_jsonl
        for row in read_stored(path).rows:
            if row.name not in study.yamls or not study.yamls[row.name].exists():
                continue
            now = recipe_of(study.yamls[row.name])
            old = [
                run.recipe for run in row.runs.values() if row.name in stale or run.recipe != now
            ]
            if old:
                holds = f"holds {counted(len(old), 'run')} of {row.name} with an earlier recipe"
                parts.append((row.name, f"{short_path(path)} {holds}"))
    return parts


def _changes(run_dir: RunDir, now: Mapping[str, object], is_finished: bool) -> str:
    """Name the keys in which a run differs from its row, with both values. "" if it fits."""
    saved = file_values(run_dir.config_yaml) if run_dir.config_yaml.exists() else now
    keys = [
        f"{key} was {shown(old)}, now {shown(new)}"
        for key, old, new in differing_keys(saved, now)
        # A finished run is not started again, so it does not matter where its lists were.
        if not (is_finished and key in PLACE_KEYS)
    ]
    if not keys and has_override(run_dir):
        return RESUMED_WITH_OVERRIDE
    return listed(keys, MOST_KEYS, "; ")
