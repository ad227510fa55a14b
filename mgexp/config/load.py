"""Load a configuration from YAML files and KEY VALUE pairs, and write it as YAML."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from mgexp.config.keys import BY_NAME, FOLD, Config, MvitKeys, VitKeys, default_config
from mgexp.config.values import EXPERIMENTS, as_lists, from_text, is_text, read_yaml
from mgexp.errors import InputError
from mgexp.text import escaped, shown

FORMER_KEYS = frozenset({"DATA.DECODING_BACKEND", "DATA.ALLOW_OUTSIDE"})
"""Keys of earlier versions that changed no result. Files that set them, as in the folder of an older run, are read
without them."""


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> Config:
    """Load the configuration of ``path``. Raises InputError with every problem of its keys and values."""
    cfg, problems = read_config(path, overrides)
    if problems:
        raise InputError(problems)
    return cfg


def read_config(path: Path | str, *overrides: Sequence[str]) -> tuple[Config, list[str]]:
    """Load the configuration and list the problems of its keys. A key with a problem gets its default.

    Each of ``overrides`` is KEY VALUE KEY VALUE …, with each key once. Later ones replace earlier ones, and all of
    them the values of a file. Raises InputError for a file that cannot be read.
    """
    values, problems = file_values(Path(path)), list[str]()
    types = {name: key.type for name, key in BY_NAME.items()}
    pairs: dict[str, Any] = {}
    for texts in overrides:
        values_read, unpaired = read_pairs(texts, types)
        pairs |= values_read
        problems += unpaired
    chosen: dict[str, Any] = {}
    for where, given in ((str(path), values), ("the command line", pairs)):
        for name, value in given.items():
            if given is values and name in FORMER_KEYS:
                continue
            if name not in BY_NAME:
                problems.append(f"{where}: there is no key {escaped(name)}{_nearest(name)}")
                continue
            try:
                # A bad value leaves the default, so that one start finds all other problems too.
                chosen[name] = BY_NAME[name].read(value)
            except ValueError as error:
                problems.append(f"{where}: {name} = {shown(value)} {error}")
    return config_of(chosen), problems


def read_pairs(
    texts: Sequence[str], types: Mapping[str, Any]
) -> tuple[dict[str, object], list[str]]:
    """Read KEY VALUE KEY VALUE …, by the ``types`` of the keys. Return the values, and the problems."""
    if len(texts) % 2:
        return {}, [f"KEY VALUE pairs: {shown(texts[-1])} has no value"]
    twice = [name for name, times in Counter(texts[::2]).items() if times > 1]
    problems = [f"KEY VALUE pairs: {shown(name)} is given twice" for name in twice]
    # Values of text keys stay as they were typed. A folder may be called 2024_01, which Python and YAML read as a
    # number.
    pairs = zip(texts[::2], texts[1::2], strict=True)
    values = {name: t if is_text(types.get(name)) else from_text(t) for name, t in pairs}
    return values, problems


def file_values(path: Path) -> dict[str, Any]:
    """Read a YAML file and its bases as values by dotted names. Do not check them. Raises InputError.

    The configuration of an older run may have keys that no longer exist, so the values are no Config.
    """
    try:
        return dict(flatten(read_yaml(path)))
    except RecursionError:
        problem = ": its _BASE_ leads back to the file itself"
    except OSError as error:
        base = "" if error.filename == str(path) else f": its _BASE_ {error.filename}"
        problem = f"{base} cannot be read: {error.strerror}"
    except ValueError as error:
        problem = f" is not a YAML file of configuration keys: {error}"
    raise InputError([f"{path}{problem}"])


def _nearest(name: str) -> str:
    """Name the keys that are most like a misspelt name: in the whole name, or in its last part."""
    name = name.upper()
    if any(known.startswith(f"{name}.") for known in BY_NAME):
        return ", which is a section: give it keys, or remove it"
    whole = difflib.get_close_matches(name, BY_NAME, n=3, cutoff=0.6)
    # Perhaps only the section is wrong, as in TRAIN.BASE_LR. Then the last part is right.
    last = [known for known in BY_NAME if known.split(".")[-1] == name.split(".")[-1]]
    near = list(dict.fromkeys([*last, *whole]))[:3]
    if near:
        return f"; nearest: {', '.join(near)}"
    return "; run_net.py --list-keys prints all keys"


def config_of(values: Mapping[str, Any]) -> Config:
    """Make the configuration from values by dotted names. A key that is left out gets its default."""
    cfg = default_config()
    sections: dict[str, dict[str, Any]] = {"": {}}
    for name, value in values.items():
        section, _, last = name.rpartition(".")
        sections.setdefault(section, {})[last] = value
    top = sections.pop("")
    changed = {
        section: replace(getattr(cfg, section), **inner) for section, inner in sections.items()
    }
    return replace(cfg, **top, **changed)


def fold_of(seed: int, num_folds: int) -> int:
    """Return the fold of a run with this seed; 0 without folds."""
    return seed % num_folds if num_folds else 0


def in_fold(cfg: Config) -> Config:
    """Return the configuration with the lists of its fold, which is RNG_SEED modulo DATA.NUM_FOLDS."""
    data = cfg.DATA
    if not data.NUM_FOLDS:
        return cfg
    fold = str(fold_of(cfg.RNG_SEED, data.NUM_FOLDS))
    train, val = data.TRAIN_LIST.replace(FOLD, fold), data.VAL_LIST.replace(FOLD, fold)
    return replace(cfg, DATA=replace(data, TRAIN_LIST=train, VAL_LIST=val))


def flatten(tree: Config | Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every key of a configuration, or of a YAML's sections."""
    values = tree if isinstance(tree, Mapping) else dataclasses.asdict(tree)
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def to_yaml(cfg: Config) -> str:
    """Write the whole configuration as YAML that ``load_config`` reads back."""
    return yaml.safe_dump(as_lists(dataclasses.asdict(cfg)), sort_keys=False, allow_unicode=True)


def experiment_name(path: Path) -> str:
    """Name a row of this repository by its path: experiments/main/x.yaml is main/x. Others have their own name."""
    whole = path.resolve().with_suffix("")
    is_ours = whole.is_relative_to(EXPERIMENTS)
    return whole.relative_to(EXPERIMENTS).as_posix() if is_ours else whole.name


SMOKE_STEPS, SMOKE_STEPS_OF_ONE_SHAPE = 56, 16
"""The steps of a smoke run's baseline. Where phases end at steps, each phase of our rows gets at least one."""
SMOKE_VAL_VIDEOS = 8
WIDTH_DIVISOR = 8


def smoke(cfg: Config) -> Config:
    """Return a small run of the same experiment, with one evaluation. Shapes and epochs stay the same."""
    has_cycle = cfg.MULTIGRID.LONG_CYCLE or cfg.MULTIGRID.SHORT_CYCLE
    steps = SMOKE_STEPS if has_cycle else SMOKE_STEPS_OF_ONE_SHAPE
    videos = math.ceil(steps * cfg.TRAIN.BATCH_SIZE / cfg.SOLVER.MAX_EPOCH)
    # 0 takes all videos.
    num_train = min(max(1, videos), cfg.DATA.MAX_TRAIN_VIDEOS or math.inf)
    num_val = min(SMOKE_VAL_VIDEOS, cfg.DATA.MAX_VAL_VIDEOS or math.inf)
    # The fast pathway of SlowFast needs whole channels, so the width stays a multiple of BETA_INV.
    beta_inv = cfg.SLOWFAST.BETA_INV
    width = beta_inv * max(1, cfg.RESNET.WIDTH_PER_GROUP // WIDTH_DIVISOR // beta_inv)

    def narrow(keys: VitKeys | MvitKeys) -> int:
        # Rotary positions turn pairs of channels, at least three in each head.
        of_head = keys.EMBED_DIM // keys.NUM_HEADS
        fewer = max(6, 2 * math.ceil(of_head / (2 * WIDTH_DIVISOR)))
        return keys.NUM_HEADS * min(of_head, fewer)

    return replace(
        cfg,
        DATA=replace(cfg.DATA, MAX_TRAIN_VIDEOS=int(num_train), MAX_VAL_VIDEOS=int(num_val)),
        RESNET=replace(cfg.RESNET, WIDTH_PER_GROUP=width),
        VIT=replace(cfg.VIT, EMBED_DIM=narrow(cfg.VIT)),
        MVIT=replace(cfg.MVIT, EMBED_DIM=narrow(cfg.MVIT)),
        X3D=replace(cfg.X3D, WIDTH_FACTOR=cfg.X3D.WIDTH_FACTOR / WIDTH_DIVISOR),
        DETECTOR=replace(cfg.DETECTOR, CHANNELS=max(1, cfg.DETECTOR.CHANNELS // WIDTH_DIVISOR)),
        # A warm-up counted in steps may be longer than the whole smoke run.
        SOLVER=replace(cfg.SOLVER, WARMUP_STEPS=0),
        # The weights of a file fit only the full width.
        TRAIN=replace(cfg.TRAIN, INIT_WEIGHTS="", NUM_EVALUATIONS=1),
        MODEL=replace(cfg.MODEL, FREEZE=0),
        BN=replace(cfg.BN, NUM_BATCHES_PRECISE=1),
        TEST=replace(cfg.TEST, NUM_ENSEMBLE_VIEWS=1, NUM_SPATIAL_CROPS=1),
        EXPECTED=(),
    )
