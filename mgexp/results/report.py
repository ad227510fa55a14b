"""Write the report on the rows of a folder: what was saved, what was lost, and how it was measured.

`render` writes it as Markdown, and html.py turns it into one page with all figures inside.
mgexp/figures/report_figures.py draws the figures and calls both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from mgexp.results.estimates import estimate_mean, estimate_ratio, wilson_interval
from mgexp.results.evidence import VideoDifference, compare_videos, is_constant
from mgexp.results.html import Picture, to_html
from mgexp.results.model import COARSE_CONTROL, Comparison, Pair, Row, Run
from mgexp.results.tables import (
    INTERVAL,
    NONE,
    SEEDS,
    busy_text,
    difference_text,
    interval_text,
    markdown,
    mean_text,
    not_compared,
    plain_cell,
    points_text,
    ratio_text,
    sections_of,
    seeds_cell,
    table,
    timed_seeds,
    times_text,
    video_table,
)
from mgexp.run.confusion import name_of
from mgexp.run.files import atomic_file, atomic_write_text
from mgexp.run.folder import RunsDir
from mgexp.text import counted

NUM_CLASSES_SHOWN = 5
"""The number of the worst classes, and of the most confused pairs, in a report. Assumption: nobody reads more."""

MISTAKES = "Mistakes"
"""The heading of the section that has pictures of the videos in HTML."""

WORDS_OF_CLASSES = ("class", "taken for", "most often taken for")
"""Columns that hold the name of a class."""
FRAME_ORDERS = {
    "repeated": "the baseline, one frame repeated",
    "shuffled": "the baseline, frames shuffled",
    "reversed": "the baseline, frames reversed",
}

CLOCKS = """\
- Training seconds include every training step, the waiting for input, and the slow first step of each
  shape. They do not include evaluation, precise BN, checkpoints and start-up.
- A speed-up is the baseline's training seconds divided by the row's, for the same seed, device,
  precision, threads, torch and commit, where no other program kept the cores busy. We show the geometric mean
  over seeds. The steady speed-up stands beside it and never replaces it. It leaves out the time by which the first
  step of each shape is slower than its second.
- Program seconds run from the start of the process to the end of the evaluation, with the imports. All
  clocks continue when a run is resumed. Steps that are repeated after a kill count once.
- Training FLOPs = 2 × multiply-adds of the forward pass × 3 (forward and backward) × clips.
- The 95 % interval of the test videos is Wilson's. It says how far the accuracy may lie from that on many more
  videos of the same kind. Two rows scored the same videos, so compare them in pairs, and not by these intervals.
- A number over several seeds has its range in brackets. The 95 % intervals are Student's t on the
  differences to the baseline of the same seed (cut at ±100 points), and on the logarithms of the
  speed-ups. They cover the choice of the seed, but not the choice of data or recipe.
"""


def write_report(
    place: RunsDir, text: str, pictures: Sequence[Picture] = (), gallery: str = ""
) -> None:
    """Write report.md with the ``text``, report.html and figures/. The ``gallery`` is only in report.html."""
    place.root.mkdir(parents=True, exist_ok=True)
    write_pictures(place, pictures)
    atomic_write_text(place.report_md, text)
    atomic_write_text(place.report_html, to_html(text, pictures, gallery, MISTAKES))


def write_pictures(folder: RunsDir, pictures: Sequence[Picture]) -> None:
    """Write the files of figures."""
    for one in pictures:
        folder.figures.mkdir(parents=True, exist_ok=True)
        for kind, content in (("png", one.png), ("svg", one.svg)):
            with atomic_file(folder.figure(one.name, kind)) as file:
                file.write(content)


def render(
    title: str,
    comparison: Comparison,
    pictures: Sequence[Picture] = (),
    expected_rows: Sequence[str] = (),
    mistakes: Sequence[str] = (),
    claim: Sequence[str] = (),
) -> str:
    """Write the report as Markdown. Without a finished run, it shows only the schedules and what is missing.

    A row of ``expected_rows`` that has no run is listed as "not run". ``mistakes`` are the lines of that section,
    and ``claim`` those that come first.
    """
    shown = {one.name: one.markdown for one in pictures}
    of_gains = shown.get("gains") or shown.get("speed_up", [])
    lines = [f"# {title}"]
    sections: list[tuple[str, list[str]]] = []
    if comparison.finished:
        videos = {row.name: compare_videos(comparison.pair(row)) for row in comparison.compared}
        lines += ["", *claim, *_opening(comparison, videos)]
        sections = [
            ("Rows", _row_table(comparison)),
            ("Against the baseline", of_gains + _difference_table(comparison)),
            ("Video by video", video_table(videos.items())),
            ("During training", shown.get("accuracy", [])[:-1]),
            ("At equal FLOPs", shown.get("equal_flops", []) + _equal_flops_table(comparison)),
            ("Where the time went", shown.get("seconds", []) + time_table(comparison.timed)),
            ("Controls", control_table(comparison)),
            ("Classes", shown.get("confusion", []) + class_tables(comparison)),
            (MISTAKES, [*mistakes]),
        ]
    # Every section begins with an empty line. Without the last line of a picture there would be two.
    sections.append(("Schedules", shown.get("schedule", [])[:-1]))
    sections.append(("Not in the tables", list(_missing(comparison, expected_rows))))
    if comparison.finished:
        taken = [*how(comparison.runs), *CLOCKS.splitlines()]
        sections.append(("How the numbers were taken", taken))
    return "\n".join([*lines, *sections_of(sections)]) + "\n"


# --- what comes first: the verdicts, the data and the commands


def _opening(comparison: Comparison, videos: Mapping[str, VideoDifference | None]) -> Iterator[str]:
    """Say what the rows gain and lose, on which data, and which commands trained them.

    ``videos`` has the comparison of each row with the baseline on single videos.
    """
    if smoke := [row.name for row in comparison.finished if any(row.each(lambda r: r.is_smoke))]:
        yield (
            f"**Smoke runs: {', '.join(smoke)}.** They were trained with `--smoke`, for a few steps, on a part of "
            "the videos and with a small network. Their accuracy and their speed-ups say nothing."
        )
        yield ""
    for row in comparison.compared:
        yield f"- **{row.name}**: {_verdict(comparison, row, videos[row.name])}"
    if comparison.compared:
        yield ""
    if comparison.busy:
        yield f"**The seconds of busy runs do not count**: {busy_text(comparison.busy)}"
        yield ""
    yield from data_text(comparison)
    commands = [next(iter(row.runs.values())).command for row in comparison.finished]
    if any(commands):
        yield from ["", "The first run of each row was trained with", "", "```bash"]
        yield from filter(None, commands)
        yield "```"


def _verdict(comparison: Comparison, row: Row, videos: VideoDifference | None) -> str:
    """Say what a row gains and what it loses against the baseline."""
    pair = comparison.pair(row)
    difference = pair.difference
    if difference is None:
        return "there is no comparable baseline run with the same seed."
    ends = [one for one in (difference.interval, videos and videos.interval) if one]
    if not ends:
        word = "One seed, and no scores of single videos, cannot tell this from chance."
    elif is_constant(difference):
        word = "All pairs are alike, as with too few or too easy test videos."
    elif any(low <= 0 <= high for low, high in ends):
        word = "An interval contains 0, so the difference may be chance."
    else:
        word = f"It is {'more' if difference.mean > 0 else 'less'} accurate than the baseline."
    interval = interval_text(difference)
    if len(pair.runs) == 1:
        interval = f"{NONE}, because there is one seed"
        word += " Another seed may differ." if ends else ""
    sentences = [
        f"{comparison.metric} {difference_text(difference)} points (95 % interval: {interval}). {word}"
    ]
    if videos:
        low, high = map(points_text, videos.interval)
        drawn = "seeds and videos" if len(videos.seeds) > 1 else "videos"
        sentences.append(
            f"Video by video, {row.name} alone is right on {videos.num_gained:,} and the baseline alone on "
            f"{videos.num_lost:,} of {videos.num_videos:,} (interval over {drawn}: {low} to {high})."
        )
    cost = f"The baseline takes {ratio_text(pair.flop_saving)} its FLOPs"
    if pair.speed_up:
        cost += f" and {ratio_text(pair.speed_up)} its training seconds{timed_seeds(pair)}"
    sentences.append(f"{cost}.")
    return " ".join(sentences)


def data_text(comparison: Comparison) -> Iterator[str]:
    """Describe the data: numbers of videos and classes, what guessing scores, and what one video is worth."""
    train = _distinct(f"{run.num_train_videos:,}" for run in comparison.runs)
    yield f"**Data**: {train} training videos."
    test = sorted({num for run in comparison.runs if (num := run.num_test_videos)})
    if not test:
        return
    points = " or ".join(f"{100 / num:.2f}" for num in test)
    yield f"{' or '.join(f'{num:,}' for num in test)} test videos: one of them is {points} points."
    known = (row.confusion for row in comparison.finished if row.confusion)
    if confusion := next(known, None):
        each = [one.num_videos for one in confusion.classes]
        yield (
            f"A network that always names the most common of the {len(each)} classes would score "
            f"{100 * max(each) / sum(each):.2f} %."
        )


# --- tables


def _mean(of: Callable[[Run], float], decimals: int = 0) -> Callable[[Pair], str]:
    """Make a column with the mean of a number over the seeds of a row."""
    return lambda pair: mean_text(pair.own.each(of), decimals)


def _percent(of: Callable[[Run], float]) -> Callable[[Pair], str]:
    """Make a column with the mean of a share of seconds over the seeds of a row, in percent."""
    # This is the mean of the shares, and not the share of the means, so that each seed counts the same.
    return lambda pair: f"{100 * pair.own.timed.mean(of):.1f} %" if pair.own.timed.runs else NONE


def _row_table(comparison: Comparison) -> list[str]:
    """List what each row scored and what its training took, as means over its seeds.

    The seconds are those of the setting of most runs; see `Comparison.timed`.
    """

    def timed(write: Callable[[Pair], str]) -> Callable[[Pair], str]:
        return lambda pair: write(comparison.timed.pair(comparison.timed.row(pair.own.name)))

    return table(
        map(comparison.pair, comparison.finished),
        [
            ("row", _name),
            ("seeds", lambda pair: seeds_cell(pair.own.runs)),
            (f"{comparison.metric} (%)", _mean(lambda run: run.score, 2)),
            ("95 % interval of the test videos", _test_interval),
            ("steps", _mean(lambda run: run.steps)),
            ("epochs", _mean(lambda run: run.epochs, 1)),
            ("training FLOPs (10¹²)", _mean(lambda run: run.train_flops / 1e12, 1)),
            ("training (s)", timed(_mean(lambda run: run.train_seconds))),
            ("speed-up, FLOPs", lambda pair: ratio_text(pair.flop_saving)),
            ("speed-up, wall-clock", lambda pair: ratio_text(pair.speed_up)),
            (
                "steady speed-up",
                lambda pair: ratio_text(pair.timed.ratio(lambda run: run.steady_seconds)),
            ),
            (
                "waiting for input",
                timed(_percent(lambda run: run.input_wait_seconds / run.train_seconds)),
            ),
        ],
    )


def _name(pair: Pair) -> str:
    """Name the row. The control is marked, so that nobody takes it for a way to train."""
    name = pair.own.name
    return f"{name} (control)" if name == COARSE_CONTROL else name


def _test_interval(pair: Pair) -> str:
    """Write Wilson's interval of the mean accuracy. It covers the choice of the test videos, not of the seed."""
    runs = [*pair.own.runs.values()]
    # Wilson's interval is that of a share of videos, as top-1 is, and mAP is not.
    if any(run.top1 is None or not run.num_test_videos for run in runs):
        return NONE
    # Each fold has a list of its own. Where no run has scores of single videos, the list is taken for one.
    lists = {one.names_hash: one.num_videos for run in runs if (one := run.videos)}
    num = sum(lists.values()) or runs[-1].num_test_videos or 0
    low, high = wilson_interval(pair.own.mean(lambda run: run.score), num)
    return f"{low:.1f} to {high:.1f}"


def _difference_table(comparison: Comparison) -> list[str]:
    """Compare each row with the baseline of the same seeds."""

    def speed_up(pair: Pair) -> str:
        return times_text(pair.speed_up) if pair.runs else NONE

    def times(of: Callable[[Run], float], is_timed: bool = False) -> Callable[[Pair], str]:
        # `Pair.ratio` divides the baseline by the row, as in a speed-up. Here the row is divided by the baseline.
        # For the mean, one inverse would be enough, but the range needs the inverse of each value.
        def write(pair: Pair) -> str:
            ratio = (pair.timed if is_timed else pair).ratio(of)
            return ratio_text(estimate_ratio([1 / one for one in ratio.each]) if ratio else None)

        return write

    return table(
        map(comparison.pair, comparison.compared),
        [
            ("row", _name),
            SEEDS,
            (
                f"{comparison.metric} difference (points)",
                lambda pair: difference_text(pair.difference),
            ),
            INTERVAL,
            ("speed-up, 95 % interval", speed_up),
            ("steps", times(lambda run: run.steps)),
            ("clips read", times(lambda run: run.clips_seen)),
            ("steady FLOP/s", times(lambda run: run.steady_flops_per_second, is_timed=True)),
        ],
    )


def _equal_flops_table(comparison: Comparison) -> list[str]:
    """Compare each row with the baseline that trained for fewer epochs."""

    def mean(of: Callable[[tuple[Run, Run]], float], decimals: int) -> Callable[[Pair], str]:
        return lambda pair: mean_text([of(runs) for runs in pair.runs], decimals)

    return table(
        map(comparison.pair_of_equal_flops, comparison.compared_at_equal_flops),
        [
            ("row", _name),
            SEEDS,
            (f"{comparison.metric} (%)", mean(lambda runs: runs[0].score, 2)),
            ("the baseline with as many FLOPs", mean(lambda runs: runs[1].score, 2)),
            ("its epochs", mean(lambda runs: runs[1].epochs, 1)),
            ("difference (points)", lambda pair: difference_text(pair.difference)),
            INTERVAL,
        ],
    )


def time_table(comparison: Comparison) -> list[str]:
    """List how each row's programs spent their seconds."""

    def share(clock: str) -> Callable[[Pair], str]:
        return _percent(lambda run: run.other_seconds[clock] / run.program_seconds)

    return table(
        map(comparison.pair, comparison.finished),
        [
            ("row", _name),
            ("program (s)", _mean(lambda run: run.program_seconds)),
            ("training", _percent(lambda run: run.train_seconds / run.program_seconds)),
            ("evaluation", share("evaluate")),
            ("precise BN", share("precise_bn")),
            ("checkpoints", share("checkpoint")),
            ("start-up and the rest", _percent(lambda run: run.rest_seconds / run.program_seconds)),
            ("first use of shapes (s)", _mean(lambda run: run.other_seconds["shape_warmup"], 1)),
        ],
    )


def control_table(
    comparison: Comparison, orders: Collection[str] | None = None, has_coarse: bool = True
) -> list[str]:
    """List the controls: the baseline without the order of frames, and a network trained on coarse clips only.

    If a control is near the baseline, the data can be classified without motion, or without training on fine
    clips. ``orders`` and ``has_coarse`` are the controls of a study, which are listed even before they are
    evaluated. Without ``orders``, only the controls that were evaluated are listed.
    """
    # For the name of each control: (seed, score of the control, score of the baseline).
    scores: dict[str, list[tuple[int, float, float]]] = {}
    for order, name in FRAME_ORDERS.items():
        if orders is not None and order not in orders:
            continue
        found = {seed: run.control(order) for seed, run in comparison.baseline.runs.items()}
        scores[name] = [(seed, one[0].score, one[1].score) for seed, one in found.items() if one]
    if has_coarse:
        coarse = comparison.pair(comparison.row(COARSE_CONTROL))
        scores["trained at the coarsest shape alone"] = [
            (run.seed, run.score, base.score) for run, base in coarse.runs
        ]
    lines = []
    for name, each in scores.items():
        if orders is None and not each:
            continue
        difference = estimate_mean([control - plain for _, control, plain in each])
        lines.append(
            [
                name,
                seeds_cell(seed for seed, _, _ in each),
                mean_text([control for _, control, _ in each], 2) if each else "not evaluated",
                difference_text(difference),
                interval_text(difference) if each else NONE,
            ]
        )
    metric = f"{comparison.metric} (%)"
    return markdown(("control", "seeds", metric, "difference (points)", "95 % interval"), lines)


def class_tables(comparison: Comparison) -> list[str]:
    """List the worst classes and most confused pairs of the baseline and the fastest row, over all seeds."""

    def name(label: int) -> str:
        return plain_cell(name_of(label, comparison.class_names))

    worst, pairs = [], []
    for row in comparison.confused:
        # `confused` leaves out rows without a confusion matrix.
        assert row.confusion is not None
        most = row.confusion.most_confused()
        for score in row.confusion.worst(NUM_CLASSES_SHOWN):
            rival = next(predicted for label, predicted, _ in most if label == score.label)
            numbers = [f"{score.num_videos:,}", f"{score.percent:.1f}"]
            worst.append([row.name, name(score.label), *numbers, name(rival)])
        videos = {score.label: score.num_videos for score in row.confusion.classes}
        for label, predicted, num in most[:NUM_CLASSES_SHOWN]:
            numbers = [f"{num:,}", f"{100 * num / videos[label]:.1f} %"]
            pairs.append([row.name, name(label), name(predicted), *numbers])
    if not comparison.confused:
        return []
    names = " and ".join(row.name for row in comparison.confused)
    headings = ("row", "class", "videos", "accuracy (%)", "most often taken for")
    return [
        f"The final evaluations of {names}, with all seeds of a row together. The first table has the classes",
        "with the lowest accuracy, and the second has the pairs that are confused most often.",
        "",
        *(markdown(headings, worst, WORDS_OF_CLASSES) or ["Every video was classified correctly."]),
        "",
        *markdown(
            ("row", "class", "taken for", "videos", "share of the class"), pairs, WORDS_OF_CLASSES
        ),
    ]


# --- below the tables


def _missing(comparison: Comparison, expected_rows: Sequence[str]) -> Iterator[str]:
    """List the rows and runs that are missing, and the runs that cannot be compared."""
    there = {row.name for row in comparison.rows}
    yield from (f"- {name}: not run." for name in expected_rows if name not in there)
    seeds = {seed for row in comparison.rows for seed in (*row.runs, *row.unfinished)}
    for row in comparison.rows:
        for seed, step in row.unfinished.items():
            last = "no step logged" if step is None else f"last logged step {step}"
            yield f"- {row.name}, seed {seed}: unfinished, {last}."
        for seed in sorted(seeds - {*row.runs} - {*row.unfinished}):
            yield f"- {row.name}, seed {seed}: not run."
    for row in comparison.finished:
        yield from not_compared(comparison.pair(row), "the baseline")


def how(runs: Sequence[Run]) -> Iterator[str]:
    """List machine, versions and protocol. Each line has all values that occur, so that a mixture can be seen."""
    for key in ("cpu", "cores", "gpu", "threads", "torch", "torchvision", "python"):
        yield f"- {key}: {_distinct(run.environment.get(key, 'unknown') for run in runs)}"
    yield f"- device: {_distinct(run.device for run in runs)}"
    yield f"- precision: {_distinct(run.precision for run in runs)}"
    yield f"- seeds: {_distinct(run.seed for run in runs)}"
    yield f"- training videos: {_distinct(run.num_train_videos for run in runs)}"
    for name, is_full in (("final evaluation", True), ("evaluation during training", False)):
        curve = (one for run in runs for one in run.curve if one.full_protocol == is_full)
        protocols = _distinct(
            f"{counted(one.num_videos, 'video')} × {counted(one.views, 'view')}" for one in curve
        )
        yield f"- {name}: {protocols or 'none'}"
    yield f"- commit: {_distinct(run.commit for run in runs)}"
    # All dates are in UTC and in ISO 8601, so their order as text is their order in time.
    dates = sorted(run.date for run in runs)
    yield f"- date: {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}"


def _distinct(values: Iterable[object]) -> str:
    """List the values that occur. Numbers are sorted by size: 2 comes before 10, and 900 before 1,000."""
    texts = {"none" if value is None else str(value) for value in values}
    is_number = {text: text.replace(",", "").isdigit() for text in texts}
    return ", ".join(sorted(texts, key=lambda text: (len(text) * is_number[text], text)))
