"""Mutated configurations for hypothesis: rows of experiments/ with values, keys, files and pairs changed."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from itertools import pairwise

import yaml
from hypothesis import strategies as st
from tiny import ROWS

from mgexp.config.keys import BY_NAME, KEYS

# fmt: off
NUMBERS = (
    *(0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 32, 33, 48, 50, 64, 99, 101, 112, 128, 160, 224, 256),
    *(320, 400, 1000, 10_000, 10**6, 10**9, 2**53, 2**53 + 1, 10**20, 10**400, -1, -8, -(10**20)),
    *(1e-9, 0.001, 0.05, 0.1, 0.5, 0.5**0.5, 0.75, 0.9, 0.999, 1.0, 1.5, 2.0, 2.5, 10.0, 29.97, 300.0),
    *(1e6, 1e12, 1e300, 5e-324, -0.0, -0.5, math.inf, -math.inf, math.nan),
)
LISTS = (
    *([], [0], [1], [0, 1], [0, 3], [0, 5, 9], [0.0, 2.5], [0, 94, 154, 196], [0, 30, 60, 80], [0, 5, 5]),
    *([64, 80], [80, 64], [128, 160], [256, 320], [224, 224], [1, 2, 2], [1, 1, 1], [0.45, 0.45, 0.45]),
    *([0.225, 0.225, 0.225], [0.5], [0.5, 0.5**0.5], [1.0], [0.25, 0.5, 1], [[0.5, 1], [1, 1]]),
    *([[0.25, 0.5**0.5], [0.5, 1.0], [1.0, 1.0]], [[1, 1]], [[1, 1], [0.5, 1]], [[1e-300, 1e-300], [1, 1]]),
    *([[1, 1], [1, 1]], [[], [], [], []], [[], [1, 3], [1], []], [[0]], [["top1", 80, 1.5]], [["map", 1, 1]]),
    *([math.nan], [math.inf, 0], [None], ["0", "5"], [[[]]], list(range(50))),
)
TEXTS = (
    *("", " ", "\t", ",", "auto", "cpu", "step", "epoch", "linear", "sqrt", "none", "full", "phase", "cosine"),
    *("SlowFast", "I3D", "C2D", "Slow", "TSM", "list", "kinetics", "ssv2", "hmdb51", "folders", "stride"),
    *("segments", "sum", "max", "sgd", "pyav", "forward", "softmax", "bce_logit", "nan", "1e400", "1e-4"),
    *("stage", "training"),
    *("é", "训练", "\u202egpj.mp4", "a\nb", "\x1b[31mred", "\x00", "\udcff", "x" * 5000, "/dev/zero", "/", "."),
    *("..", "~", "http://a/b.yaml", "${HOME}", "$(ls)", "; ls", "a/../../b", "**", "[", "NUL", "١٢"),
)
ODD = (None, True, False, {}, {"A": 1}, {1: 2}, b"bytes", datetime.date(2024, 1, 1))
RAW = (
    *("nan", ".nan", ".inf", "-.inf", "1e400", "-1e400", "1" * 5000, "0x" + "f" * 5000, "0b2", "0o17", "1_000"),
    *("2024-13-45", "12:30:45", "~", "null", "yes", "True", "()", "(1,)", "(0, 5)", "[0, 5", "]", "{", "{[]: 1}"),
    *("!!int abc", "!!float x", "!!timestamp x", "!!bool x", "!!binary x", "!!python/name:os.system"),
    *("!!python/object/apply:os.system [ls]", "&a [*a]", "*a", "<<: 3", "'", '"', "''", "# nothing", "- - -"),
    *("[" * 3000, "-" * 3000 + "1", "(" * 150 + ")" * 150, "lambda: 1", "__import__('os')"),
    *("'\\d'", "1 if 1 else 2"),
    *("\ufeff", "\u2028", "a: b: c", "|", ">", "%", "@", "`", "? ", "1e", "--x", "-1", "1 2", "x\n  y: 3"),
)
UNKNOWN = (
    *("TRIAN.BATCH_SIZE", "SOLVER", "SOLVER.BASE_LR.X", "_BASE_", "", ".", "..", "\x1b[2J", "A" * 3000, "键", "1"),
)
BASES = ("row.yaml", "nowhere.yaml", "/dev/zero", "/", "", "~", "http://a/b", "\x00", 5, None, [], ["row.yaml"])
# fmt: on


@dataclass(frozen=True)
class Case:
    """A configuration: files by name, of which row.yaml is read, and KEY VALUE pairs."""

    files: dict[str, str]
    pairs: tuple[str, ...]
    num_videos: int | None  # None: from the list, or the file
    num_gpus: int


def is_legal(key, value):
    try:
        key.read(value)
    except ValueError:
        return False
    return True


POOL = (*NUMBERS, *LISTS, *TEXTS, True, False)
LEGAL = {key.name: [key.default, *(v for v in POOL if is_legal(key, v))] for key in KEYS}
"""By key, its default and the values of the pool that it takes."""
# fmt: off
HALF = 0.5**0.5
PLAUSIBLE = {
    "MULTIGRID.LONG_CYCLE": (True, False),
    "MULTIGRID.SHORT_CYCLE": (True, False),
    "MULTIGRID.FINE_TUNING": (True, False),
    "MULTIGRID.RANDOM_STRIDE": (True, False),
    "MULTIGRID.LONG_CYCLE_PER": ("stage", "training"),
    "MULTIGRID.MAX_BATCH_RATIO": (0, 1, 2, 3, 4, 8, 100),
    "MULTIGRID.GRANULARITY": ("step", "epoch"),
    "MULTIGRID.SHORT_CROPS_OF": ("full", "phase"),
    "MULTIGRID.LR_SCALING": ("linear", "sqrt", "noise", "none"),
    "MULTIGRID.NOISE_SCALE": (0, 1e-300, 1, 40, 1e300),
    "MULTIGRID.WD_SCALING": ("none", "sqrt", "linear"),
    "MULTIGRID.SHAPE_ORDER": ("coarse_to_fine", "random"),
    "MULTIGRID.BN_BASE_SIZE": (0, 1, 2, 4, 8, 16),
    "MULTIGRID.EPOCH_FACTOR": (1e-6, 0.001, 0.3, 0.5, 1, 1.5, 2.0, 7.3, 100, 1e6),
    "MULTIGRID.LONG_CYCLE_FACTORS": (
        *([[0.5, 0.5], [1, 1]], [[0.25, 1], [0.5, 1], [1, 1]], [[1, 1]], [[1, 1], [1, 1]]),
        *([[0.5, 1], [1, 1], [0.5, 1], [1, 1]], [[0.5, 1], [0.5, 1], [1, 1]], [[0.5, HALF], [1, 1]]),
    ),
    "MULTIGRID.SHORT_CYCLE_FACTORS": ([0.5, HALF], [HALF, 0.5], [0.5], [1.0], [0.5, 0.5], [1 / 8**0.5]),
    "SOLVER.STEPS": (
        *([0], [0, 1], [0, 2.5], [0, 3, 6, 9], [0, 0.1, 0.2], [*range(10)], [0, 1e-9, 1], [0, 5e-324]),
        *([0, 94, 154, 196], [n / 100 for n in range(900)]),
    ),
    "SOLVER.MAX_EPOCH": (1e-6, 0.01, 1, 9.75, 10, 20, 100, 239, 1e4, 1e9, 1e12, 1e300),
    "SOLVER.GAMMA": (0.1, 0.5, 0.999, 1e-300, 1e-6),
    "SOLVER.LR_POLICY": ("steps_with_relative_lrs", "cosine"),
    "SOLVER.WARMUP_EPOCHS": (0, 5e-324, 0.01, 0.5, 5, 34, 99.9),
    "SOLVER.WARMUP_STEPS": (0, 1, 7, 100, 1000, 10**6),
    "SOLVER.WARMUP_START_LR": (0, 1e-300, 0.01, 10.0, 1e38),
    "SOLVER.BASE_LR": (5e-324, 1e-300, 0.001, 0.1, 0.8, 1e38),
    "TRAIN.BATCH_SIZE": (1, 2, 4, 8, 16, 24, 32, 64, 1024, 2**53),
    "TRAIN.NUM_EVALUATIONS": (1, 3, 10, 10_000),
    "DATA.NUM_FRAMES": (4, 8, 16, 32, 64, 1000),
    "DATA.SAMPLING_RATE": (1, 2, 8, 10_000),
    "DATA.TRAIN_CROP_SIZE": (1, 2, 3, 7, 31, 32, 63, 64, 112, 224),
    "DATA.TEMPORAL_GRID": ("stride", "segments"),
    "SLOWFAST.ALPHA": (1, 2, 4, 8),
    "AUG.COLOR_JITTER": (0.1, 0.4),
    "AUG.COARSE_STRENGTH": (0, 0.5, 2, 10),
}
"""Values that are often legal together, and that schedules depend on."""
SWITCHES = [
    *("MULTIGRID.LONG_CYCLE", "MULTIGRID.SHORT_CYCLE", "MULTIGRID.FINE_TUNING", "MULTIGRID.GRANULARITY"),
    *("MULTIGRID.SHORT_CROPS_OF", "MULTIGRID.LR_SCALING", "MULTIGRID.RANDOM_STRIDE", "SOLVER.LR_POLICY"),
    *("MULTIGRID.SHAPE_ORDER", "MULTIGRID.LONG_CYCLE_FACTORS", "MULTIGRID.SHORT_CYCLE_FACTORS", "SOLVER.BASE_LR"),
    *("MULTIGRID.LONG_CYCLE_PER", "MULTIGRID.MAX_BATCH_RATIO", "MULTIGRID.WD_SCALING"),
]
"""Those of which every example draws one, or leaves the row's."""
# fmt: on


@st.composite
def changes(draw):
    """(name, value as an object or None, value as text): most are plausible, some are anything."""
    kinds = ("plausible",) * 24 + ("legal",) * 6 + ("object", "raw", "unicode", "unknown")
    kind = draw(st.sampled_from(kinds))
    name = draw(st.sampled_from([*(PLAUSIBLE if kind == "plausible" else BY_NAME)]))
    if kind == "plausible":
        value = draw(st.sampled_from(PLAUSIBLE[name]))
    elif kind == "legal":
        value = draw(st.sampled_from(LEGAL[name]))
    elif kind == "object":
        value = draw(st.sampled_from((*POOL, *ODD)))
    elif kind == "unknown":
        name, value = draw(st.sampled_from(UNKNOWN)), draw(st.sampled_from(POOL))
    else:
        raw = draw(st.sampled_from(RAW) if kind == "raw" else st.text(max_size=30))
        return name, None, raw
    return name, value, value if isinstance(value, str) else repr_of(value)


def repr_of(value):
    """The text of a value; Python writes no integer of 4,300 digits."""
    return hex(value) if isinstance(value, int) and value > 10**100 else repr(value)


def nested(tree, name, value):
    """``tree`` with the dotted ``name`` set, a mapping made where there is none."""
    *sections, last = name.split(".")
    for section in sections:
        if not isinstance(tree.get(section), dict):
            tree[section] = {}
        tree = tree[section]
    tree[last] = value


def dumped(tree):
    """YAML of a tree in which raw texts are marked."""
    raws = []

    def marked(value):
        if isinstance(value, Raw):
            raws.append(value.text)
            return f"@@{len(raws) - 1}@@"
        if isinstance(value, dict):
            return {name: marked(item) for name, item in value.items()}
        return value

    text = yaml.safe_dump(marked(tree), allow_unicode=True, sort_keys=False, width=10**6)
    for number, raw in enumerate(raws):
        text = text.replace(f"'@@{number}@@'", raw)
    return text


@dataclass(frozen=True)
class Raw:
    """Text that stands in a YAML as it is."""

    text: str


@st.composite
def cases(draw):
    """A row, changed in its file, by pairs, in its bases, or all of these."""
    row = draw(st.sampled_from([*ROWS.values()]))
    tree = yaml.safe_load(row.read_text())
    tree["_BASE_"] = str(row.parent / tree["_BASE_"])
    pairs = []
    for name in SWITCHES:
        value = draw(st.sampled_from((*[None] * 4, *PLAUSIBLE[name])))
        if value is not None:
            # A picture is a clip of one frame, which cannot be cut.
            if name == "MULTIGRID.LONG_CYCLE_FACTORS" and "large_det" in row.parts:
                value = [[1, crop] for _, crop in value]
            nested(tree, name, value)
            # Bases of transformers have keys that only the cosine reads.
            if value == "steps_with_relative_lrs":
                nested(tree, "SOLVER.COSINE_END_LR", 0)
                nested(tree, "SOLVER.COSINE_AFTER_WARMUP", False)
            if value == "noise":
                nested(tree, "MULTIGRID.NOISE_SCALE", draw(st.sampled_from((1e-300, 40, 1e300))))
    for name, value, text in draw(st.lists(changes(), max_size=6)):
        if draw(st.booleans()):
            pairs += [name, text]
        else:
            nested(tree, name, Raw(text) if value is None else value)
    files = {"row.yaml": dumped(tree)}
    structure = draw(
        st.sampled_from(("none",) * 24 + ("base", "chain", "drop", "twice", "garbage", "odd"))
    )
    if structure == "base":
        files["row.yaml"] = dumped({**tree, "_BASE_": draw(st.sampled_from(BASES))})
    elif structure == "chain":
        names = [f"link{number}.yaml" for number in range(draw(st.sampled_from((1, 3, 60))))]
        files[names[-1]] = files["row.yaml"]
        files.update({a: f"_BASE_: {b}\n" for a, b in pairwise(names)})
        files["row.yaml"] = f"_BASE_: [{names[0]}]\n"
    elif structure == "drop":
        tree.pop(draw(st.sampled_from([*tree])))
        files["row.yaml"] = dumped(tree)
    elif structure == "twice":
        files["row.yaml"] += "MULTIGRID: {LONG_CYCLE: False}\n"
    elif structure == "garbage":
        files["row.yaml"] += draw(st.sampled_from(RAW)) + "\n"
    elif structure == "odd":
        pairs.append(draw(st.sampled_from((*BY_NAME, ""))))
    num_videos = draw(st.sampled_from((None, 1, 7, 10**9, *(100, 1000, 9000, 10_000, 234_643) * 3)))
    return Case(files, tuple(pairs), num_videos, draw(st.sampled_from((1, 1, 1, 1, 2, 3, 8))))
