"""Loaders of training clips and evaluation views, and their workers."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from importlib import import_module
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from mgexp.config.keys import Config, DataKeys, DataLoaderKeys
from mgexp.config.load import in_fold
from mgexp.data.augment import Augment
from mgexp.data.batches import collate
from mgexp.data.clips import RelativeCrop, SquareCrop, TrainingClips
from mgexp.data.lists import videos_root
from mgexp.data.records import Record
from mgexp.data.time_limit import NO_LIMIT, TimeLimit, read_failures
from mgexp.data.views import EvaluationViews, collate_views
from mgexp.dist import Processes, from_environment
from mgexp.errors import InputError
from mgexp.multigrid.sampler import ClipRequest
from mgexp.run.environment import num_cores
from mgexp.stop import STOP_SIGNALS
from mgexp.video.frame_folder import FilesAndFolders
from mgexp.video.reader import Opener
from mgexp.video.store import StoreDir, StoreIndex

# torch says this at each start where a process has fewer cores than workers. The user chose NUM_WORKERS, and the
# log shows it.
warnings.filterwarnings("ignore", message="This DataLoader will create")


MOST_TEMPDIR_BYTES = 75
"""A socket of multiprocessing lies at <TMPDIR>/pymp-xxxxxxxx/listener-xxxxxxxx, and Linux allows 107 bytes."""
EXIT_NOT_HANDED_ON = 74
"""Exit code of a worker that cannot hand a batch on: EX_IOERR of sysexits.h."""


CPU_WORKER_NICENESS = 19
"""On a CPU, workers give way to the training threads, which wait for each other: one late thread delays all.
Measured on 2 cores with 2 workers, quickstart baseline, 150 steps, three times each: 22.5 s (21.6 to 24.2); with a
niceness of 10, 26.7 s (23.7 to 27.8). 0 is slower still. Beside seven other programs, with one training thread,
60 steps took 100 and 123 s with 19, 108 and 111 s with 0. With a GPU, workers keep the priority of the process."""


def build_train_loader(
    cfg: Config,
    records: Sequence[Record],
    batches: Iterable[Sequence[ClipRequest]],
    device: torch.device,
    opener: Opener,
    failures: Path | None = None,
) -> DataLoader[Any]:
    """Build the loader of ``batches``, one list of requests for each step. One loader serves every shape.

    With AUG.DEVICE training, ``Batch.on`` makes the clips. ``failures``: the file with the run's failures of
    videos; None: none are kept, and no video has a time limit.
    """
    clips = build_training_clips(cfg, records, opener, build_time_limit(cfg, failures))
    return DataLoader(
        clips,
        batch_sampler=batches,  # type: ignore[arg-type]
        collate_fn=partial(collate, are_finished=clips.finishes, augment=clips.augment),
        **_worker_options(cfg.DATA_LOADER, device),
    )


def build_time_limit(cfg: Config, record: Path | None) -> TimeLimit:
    """Build the time limit of DATA.VIDEO_TIMEOUT_SECONDS; ``record`` is the file with the run's failures."""
    if record is None:
        return NO_LIMIT
    return TimeLimit(cfg.DATA.VIDEO_TIMEOUT_SECONDS, record, frozenset(read_failures(record)))


def build_training_clips(
    cfg: Config, records: Sequence[Record], opener: Opener, limit: TimeLimit = NO_LIMIT
) -> TrainingClips:
    """Build the data set of random clips of ``records``, whose files ``opener`` opens."""
    return TrainingClips(
        records,
        target_fps=cfg.DATA.TARGET_FPS,
        crops=build_crops(cfg.DATA),
        flip=cfg.DATA.RANDOM_FLIP,
        augment=build_augment(cfg),
        finishes=cfg.AUG.DEVICE == "workers",
        opener=opener,
        limit=limit,
    )


def build_crops(data: DataKeys) -> SquareCrop | RelativeCrop:
    if not data.TRAIN_JITTER_SCALES_RELATIVE:
        return SquareCrop(data.TRAIN_JITTER_SCALES, data.TRAIN_CROP_SIZE, data.INV_UNIFORM_SAMPLE)
    # Both have two values, or none: see mgexp/config/check.py.
    (a, b), (c, d) = data.TRAIN_JITTER_SCALES_RELATIVE, data.TRAIN_JITTER_ASPECT_RELATIVE
    pixels = (data.TRAIN_JITTER_SCALES[1], data.TRAIN_CROP_SIZE)
    # Pictures with boxes are tested whole, stretched to a square, so crops are stretched about as much.
    return RelativeCrop((a, b), (c, d), *pixels, of_frame=data.FORMAT == "coco")


def build_augment(cfg: Config) -> Augment | None:
    aug = cfg.AUG
    if not (aug.RANDAUGMENT_OPS or aug.COLOR_JITTER or aug.RE_PROB):
        return None
    # Erased pixels get the mean colour, which normalisation turns into 0, as PySlowFast's AUG.RE_MODE const does.
    red, green, blue = (round(255 * value) for value in cfg.DATA.MEAN)
    return Augment(
        randaugment_ops=aug.RANDAUGMENT_OPS,
        randaugment_magnitude=aug.RANDAUGMENT_MAGNITUDE,
        color_jitter=aug.COLOR_JITTER,
        erasing_share=aug.RE_PROB,
        erased=(red, green, blue),
        full=(cfg.DATA.NUM_FRAMES, cfg.DATA.TRAIN_CROP_SIZE),
        coarse_strength=aug.COARSE_STRENGTH,
    )


def build_opener(cfg: Config) -> Opener:
    """Build the opener of the videos, or of their copies in DATA.STORE. A run builds it once: stores may be large.

    Raises InputError if DATA.STORE is no clip store.
    """
    fps = cfg.DATA.FRAMES_FPS
    opener = FilesAndFolders(fps)
    if not cfg.DATA.STORE:
        return opener
    root = videos_root(in_fold(cfg).DATA)
    try:
        return StoreIndex(StoreDir(Path(cfg.DATA.STORE)), root, opener, fps)
    except InputError as error:
        raise InputError([f"DATA.STORE: {problem}" for problem in error.problems]) from error


def store_problems(opener: Opener, store: str, records: Sequence[Record]) -> list[str]:
    """Report a clip store that has no copy of any of ``records`` as they are now, if ``opener`` reads a store."""
    if not isinstance(opener, StoreIndex) or not records:
        return []
    if any(opener.entry(record.path) for record in records):
        return []
    return [
        f"DATA.STORE = {store} has a copy of none of the {len(records)} training videos as they are now: "
        "run tools/prepare_data.py with the same lists and root, or set DATA.STORE ''"
    ]


def build_view_loader(
    cfg: Config,
    records: Sequence[Record],
    full_protocol: bool,
    device: torch.device,
    processes: Processes,
    opener: Opener,
    failures: Path | None = None,
) -> DataLoader[object]:
    """Build the loader of this process's views: the full protocol, or one centre view at the training shape."""
    crop = cfg.DATA.TEST_CROP_SIZE if full_protocol else cfg.DATA.TRAIN_CROP_SIZE
    num_crops = cfg.TEST.NUM_SPATIAL_CROPS if full_protocol else 1
    views = EvaluationViews(
        records,
        frames=cfg.DATA.NUM_FRAMES,
        stride=cfg.DATA.SAMPLING_RATE if cfg.DATA.TEMPORAL_GRID == "stride" else None,
        crop=crop,
        target_fps=cfg.DATA.TARGET_FPS,
        num_views=cfg.TEST.NUM_ENSEMBLE_VIEWS if full_protocol else 1,
        num_crops=num_crops,
        frame_order=cfg.TEST.FRAME_ORDER,
        are_whole=cfg.DATA.FORMAT == "coco",
        opener=opener,
        limit=build_time_limit(cfg, failures),
    )
    return DataLoader(
        views,
        # Process r takes the views r, r + count, r + 2 count and so on. DistributedSampler would
        # repeat some views, so that all processes have the same number of them.
        sampler=range(processes.rank, len(views), processes.count),
        # An item of EvaluationViews gives num_crops clips, and TEST.BATCH_SIZE counts clips.
        batch_size=max(1, cfg.TEST.BATCH_SIZE // num_crops),
        collate_fn=collate_views,
        **_worker_options(cfg.DATA_LOADER, device),
    )


MOST_AUTO_WORKERS = 8
"""Most workers that DATA_LOADER.NUM_WORKERS auto takes. Assumption: tools/bench_loader.py tells what is best."""


def worker_count(num_workers: int | str, num_local: int = 1) -> int:
    """Return ``num_workers``; for "auto" the cores of one of ``num_local`` processes here, at most 8."""
    if num_workers != "auto":
        return int(num_workers)
    # Slurm may bind each process to cores of its own. Elsewhere the processes share all cores.
    cores = int(os.environ.get("SLURM_CPUS_PER_TASK", "0")) or num_cores() // num_local
    return max(1, min(cores, num_cores(), MOST_AUTO_WORKERS))


def worker_problems(num_workers: int | str) -> list[str]:
    """Return the problem if the path of the folder for temporary files is too long for workers of a loader."""
    folder = tempfile.gettempdir()
    too_long = len(os.fsencode(folder)) - MOST_TEMPDIR_BYTES
    if worker_count(num_workers) and too_long > 0:
        return [
            f"TMPDIR: {folder} is {too_long} bytes too long for the sockets of the loader's workers"
        ]
    return []


def _worker_options(keys: DataLoaderKeys, device: torch.device) -> dict[str, Any]:
    end_workers_at_exit()
    num_workers = worker_count(keys.NUM_WORKERS, from_environment().local_count)
    if num_workers:
        # Workers that are forked share this import. Otherwise each of them would take seconds for its own.
        import_module("mgexp.wheels")
    # persistent_workers would gain nothing: training asks its loader for one iterator, and each evaluation
    # makes a new loader.
    niceness = CPU_WORKER_NICENESS if device.type == "cpu" else 0
    return {
        "num_workers": num_workers,
        # DataLoader raises an error for a prefetch factor without workers.
        "prefetch_factor": keys.PREFETCH_FACTOR if num_workers else None,
        "pin_memory": device.type == "cuda",
        "worker_init_fn": partial(start_worker, niceness=niceness),
    }


def start_worker(worker_id: int, niceness: int = 0) -> None:
    """Start a worker with one thread that ignores the signals to stop."""
    # Several workers share the processors, so more threads in each would only compete.
    torch.set_num_threads(1)
    os.nice(niceness)

    # A worker that cannot hand on a batch, most likely because shared memory is full, must end. Python's own queue
    # prints the error, drops the batch and goes on, and the run would wait for this batch for ever. (Found with
    # torch 2.15; source: multiprocessing/queues.py, Queue._feed.)
    def end(error: Exception, batch: object) -> None:
        print(f"loader worker {os.getpid()}: {error}", file=sys.stderr, flush=True)
        os._exit(EXIT_NOT_HANDED_ON)

    setattr(Queue, "_on_queue_feeder_error", staticmethod(end))  # noqa: B010 - mypy does not know it
    # Ctrl-C, torchrun, timeout and Slurm signal all processes of a group, and so the workers too. The main process
    # still needs them, to finish its step and save, and ends them afterwards.
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def end_workers_at_exit() -> None:
    """Kill the workers that are left when this program ends, such as after an error."""
    # At its end, Python sends them SIGTERM and waits for them. They ignore that signal, so it would wait for ever.
    # Functions of atexit run in reverse order: the last to register is the first to run, before Python's own.
    atexit.unregister(_kill_workers)
    atexit.register(_kill_workers)


def _kill_workers() -> None:
    # torch's handler raises an error for each killed worker, which would be a second message of this program.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for child in multiprocessing.active_children():
        child.kill()
