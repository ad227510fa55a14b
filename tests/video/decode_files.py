"""Files for the tests of the decoder, and what they show when."""

import numpy as np
from videos import GOP_8, INTRA, LONG_GOP, OPEN_GOP, TICKS_PER_FRAME, TIME_BASE, write_video

NUM_FRAMES = 40
REGULAR = [number * TICKS_PER_FRAME for number in range(NUM_FRAMES)]
LATE = [3 * 15360 + tick for tick in REGULAR]
IRREGULAR = np.cumsum(np.random.default_rng(1).integers(60, 2000, NUM_FRAMES)).tolist()
FILES = {
    "intra.mp4": {"options": INTRA},
    "gop_8.mp4": {"options": GOP_8},
    "long_gop.mp4": {"options": LONG_GOP},
    "closed_gop_with_b_frames.mp4": {"options": LONG_GOP | {"g": "12"}},
    "open_gop.mp4": {"options": OPEN_GOP},
    "irregular.mp4": {"options": LONG_GOP | {"g": "12"}, "ticks": IRREGULAR},
    "irregular_intra.mp4": {"options": INTRA, "ticks": IRREGULAR},
    "late.mp4": {"options": GOP_8, "ticks": LATE},
    "late.mkv": {"options": OPEN_GOP, "ticks": LATE},
    "no_edit_list.mp4": {"options": LONG_GOP, "container_options": {"use_editlist": "0"}},
    "mpeg4.mp4": {"codec": "mpeg4", "options": {"g": "12", "sc_threshold": "1000000000"}},
    "mpeg4.avi": {"codec": "mpeg4", "options": {"g": "12", "sc_threshold": "1000000000"}},
}


def write_files(folder):
    for name, how in FILES.items():
        write_video(folder / name, **{"ticks": REGULAR, **how})
    return folder


def starts_of(name):
    """When each frame of one of FILES comes on display, in seconds from the first."""
    ticks = FILES[name].get("ticks", REGULAR)
    return (np.array(ticks) - ticks[0]) * float(TIME_BASE)


def numbers_on_display(name, times):
    """The rule, frame by frame: the last one that is not later than the time, else the first."""
    starts = starts_of(name)
    return [max((number for number, s in enumerate(starts) if s <= t), default=0) for t in times]


def random_times(name, rng):
    """Unsorted, some repeated, from before the video to past its end.

    They are 2 ms away from any change of frames, since Matroska rounds times to milliseconds.
    """
    starts = starts_of(name)
    times = rng.uniform(-0.1, starts[-1] + 0.5, rng.integers(1, 9))
    times = np.concatenate([times, rng.choice(times, 4)])
    return [t for t in times if np.abs(starts - t).min() > 0.002] or [0.01]
