"""A small run of the same experiment: other numbers of videos, steps and channels, nothing else."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from fvcore.common.config import CfgNode

from mgexp.config.keys import BY_NAME, KEYS
from mgexp.config.values import PATH, STR, from_text, parse_yaml, read_with_bases
from mgexp.errors import InputError
from mgexp.run.files import is_file
from mgexp.text import escaped, shown

MAX_NAME = 80
"""Characters of a name of no key that are shown, and looked at for what was meant."""
MAX_FILE_KEYS = 1000
"""That a file may set, far more than there are: each unknown one is compared with all names."""


def load_config(path: Path | str, overrides: Sequence[str] = ()) -> CfgNode:
    """The frozen configuration of ``path``; raises InputError with every problem of its keys and values."""
    cfg, problems = read_config(path, overrides)
    if problems:
        raise InputError(problems)
    return cfg


def read_config(path: Path | str, *overrides: Sequence[str]) -> tuple[CfgNode, list[str]]:
    """The frozen configuration, and the problems found: a key with a problem has its default.

    Each of ``overrides`` is KEY VALUE KEY VALUE …; later values win, and pairs win over files.
    """
    values, problems = file_values(Path(path))
    pairs: dict[str, Any] = {}
    for texts in overrides:
        found, pair_problems = _pair_values(texts)
        pairs.update(found)
        problems += pair_problems
    chosen = {key.name: key.default for key in KEYS}
    for where, given in ((str(path), values), ("the command line", pairs)):
        for name, value in given.items():
            problem = _set(chosen, name, value, where)
            problems += [problem] if problem else []
    return freeze(chosen), problems


def freeze(values: Mapping[str, Any]) -> CfgNode:
    """A frozen node of dotted names; values are immutable, so that nobody edits them in place."""
    cfg = CfgNode()
    for name, value in values.items():
        *sections, last = name.split(".")
        node = cfg
        for section in sections:
            node = node.setdefault(section, CfgNode())
        node[last] = value
    cfg.freeze()
    return cfg


def flatten(cfg: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted name, value) of every key."""
    for name, value in cfg.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def from_yaml(path: Path) -> dict[str, Any]:
    """What ``to_yaml`` wrote into a run folder: values by dotted name, not checked.

    Raises InputError where the file is none of that.
    """
    try:
        raw = parse_yaml(path.read_text(encoding="utf-8"))
        if not isinstance(raw, Mapping):
            raise ValueError(f"it holds {shown(raw)}")
        return dict(flatten(raw))
    except (OSError, ValueError) as error:
        raise InputError([f"{path} is not the configuration of a run: {error}"]) from error


def to_yaml(cfg: CfgNode) -> str:
    """Safe YAML of the whole configuration, that ``load_config`` reads back."""
    return yaml.safe_dump(_plain(cfg), sort_keys=False, allow_unicode=True)


def experiment_name(path: Path) -> str:
    """``experiments/main/x.yaml`` → ``main/x``; the file's own name where no folder is called experiments."""
    parts = path.resolve().with_suffix("").parts
    if "experiments" not in parts[:-1]:
        return parts[-1]
    last = len(parts) - 1 - parts[::-1].index("experiments", 1)
    return "/".join(parts[last + 1 :])


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def file_values(path: Path) -> tuple[dict[str, Any], list[str]]:
    """The values of a YAML file and its bases by dotted names, any names, and what is wrong with the file."""
    if not is_file(path):
        return {}, [
            f"{path} does not exist: --cfg takes a YAML file, such as those in experiments/"
        ]
    try:
        raw = read_with_bases(path)
        if not isinstance(raw, Mapping):
            raise ValueError(f"it holds {shown(raw)}")
        values = dict(flatten(raw))
    except RecursionError:
        return {}, [f"{path}: its _BASE_ leads back to the file itself, or to too many files"]
    except OSError as error:
        return {}, [f"{path}: its _BASE_ {error.filename} cannot be read: {error.strerror}"]
    except ValueError as error:
        return {}, [f"{path} is not a YAML file of configuration keys: {error}"]
    if len(values) > MAX_FILE_KEYS:
        return {}, [f"{path} sets {len(values)} keys: there are {len(KEYS)}"]
    return values, []


def _pair_values(overrides: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    if len(overrides) % 2:
        return {}, [f"KEY VALUE pairs: {shown(overrides[-1])} has no value"]
    names, texts = overrides[::2], overrides[1::2]
    pairs = zip(names, texts, strict=True)
    return {name: text if _takes_text(name) else from_text(text) for name, text in pairs}, []


def _takes_text(name: str) -> bool:
    """Such a value stays as it was typed: a folder may be called 2024_01, a separator be a space."""
    return name in BY_NAME and BY_NAME[name].kind in {STR, PATH}


def _set(chosen: dict[str, Any], name: str, value: object, where: str) -> str | None:
    """Sets a checked value; returns the problem where there is one."""
    key = BY_NAME.get(name)
    if key is None:
        return f"{where}: there is no key {_short(name)}{_nearest(name)}"
    try:
        converted = key.kind.convert(value)
    except ValueError as error:
        return (
            f"{where}: {name} = {shown(value)} {error}; it takes a {key.kind.name}: {key.meaning}"
        )
    if not key.legal.allows(converted):
        return f"{where}: {name} = {shown(value)} is not allowed; it takes {key.legal.words}: {key.meaning}"
    chosen[name] = converted
    return None


def _short(name: str) -> str:
    return escaped(name) if len(name) <= MAX_NAME else f"{escaped(name[:MAX_NAME])}…"


def _nearest(name: str) -> str:
    """The names that a misspelt one may have meant: by the whole name, or by its last part."""
    name = name[:MAX_NAME]
    whole = difflib.get_close_matches(name.upper(), BY_NAME, n=3, cutoff=0.6)
    last = [
        known
        for known in BY_NAME
        if known.split(".")[-1] == name.rsplit(".", maxsplit=1)[-1].upper()
    ]
    near = list(dict.fromkeys([*last, *whole]))[:3]
    return f"; nearest: {', '.join(near)}" if near else "; see mgexp/config/keys.py for all keys"


SMOKE_STEPS = 56  # of the baseline: a step for every phase of the rows whose phases end with steps
SMOKE_VAL_VIDEOS = 16
WIDTH_DIVISOR = 8


def smoke(cfg: CfgNode) -> CfgNode:
    """A new configuration whose baseline takes about 56 steps; shapes, epochs and ratios stay as they are."""
    values = dict(flatten(cfg))
    videos = math.ceil(SMOKE_STEPS * cfg.TRAIN.BATCH_SIZE / cfg.SOLVER.MAX_EPOCH)
    beta_inv = cfg.SLOWFAST.BETA_INV
    width = beta_inv * max(1, cfg.RESNET.WIDTH_PER_GROUP // WIDTH_DIVISOR // beta_inv)
    values.update(
        {
            "DATA.MAX_TRAIN_VIDEOS": max(1, videos),
            "DATA.MAX_VAL_VIDEOS": SMOKE_VAL_VIDEOS,
            "RESNET.WIDTH_PER_GROUP": width,
            "TRAIN.INIT_WEIGHTS": "",  # they fit the full width only
            "EXPECTED": (),
        }
    )
    return freeze(values)
