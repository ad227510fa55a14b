"""From the keys of a PySlowFast YAML to ours: what they mean, not what they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mgexp.config.keys import BY_NAME
from mgexp.config.load import file_values
from mgexp.config.values import convert as convert_value
from mgexp.config.values import from_text, is_text
from mgexp.convert.data import convert_data
from mgexp.convert.draft import Draft, Note
from mgexp.convert.keys import CONVERTED, DROPPED, FIXED, SECTIONS
from mgexp.convert.network import convert_network
from mgexp.convert.solver import convert_schedule, convert_solver, num_processes
from mgexp.errors import InputError


@dataclass(frozen=True)
class Conversion:
    """``keys`` of ours that differ from our defaults, and what became of every given key; ``problems``: no result.

    ``num_processes`` is how many shared a mini-batch.
    """

    keys: Mapping[str, Any]
    kept: tuple[str, ...]
    changed: tuple[Note, ...]
    dropped: tuple[Note, ...]
    unknown: tuple[Note, ...]
    problems: tuple[str, ...]
    num_processes: int

    def yaml_text(self, comment: str) -> str:
        """The YAML of ``keys``, a section after the other, under ``comment``."""
        lines = [f"# {line}" for line in comment.splitlines()]
        section = ""
        for name, value in self.keys.items():
            *above, last = name.split(".")
            if above and above[0] != section:
                section = above[0]
                lines.append(f"{section}:")
            lines.append(f"{'  ' if above else ''}{last}: {_yaml_value(value)}")
        return "\n".join(lines) + "\n"

    def report(self) -> str:
        """What became of the keys, a line each; those that are kept are counted."""
        lines = [f"{len(self.kept)} keys mean the same here, and are kept"]
        for words, sign, notes in (
            (
                "are said by other keys or values, or mean something a little different",
                " ->",
                self.changed,
            ),
            ("are dropped", ":", self.dropped),
            (
                "are unknown, and dropped: look what your PySlowFast does with them",
                ":",
                self.unknown,
            ),
        ):
            found = [f"  {note}{sign} {note.why}" for note in notes]
            lines += [f"{len(notes)} {words}", *found] if found else []
        return "\n".join(lines)


def read_pyslowfast(path: Path, overrides: Sequence[str] = ()) -> dict[str, object]:
    """The keys of a PySlowFast YAML, with its _BASE_ and KEY VALUE pairs, by dotted names. Raises InputError."""
    if not path.is_file():
        raise InputError([f"{path} does not exist: it takes a YAML file of PySlowFast"])
    values, problems = file_values(path)
    if len(overrides) % 2:
        problems = [*problems, f"KEY VALUE pairs: {overrides[-1]!r} has no value"]
    if problems:
        raise InputError(problems)
    for name, text in zip(overrides[::2], overrides[1::2], strict=True):
        stays = name in CONVERTED and is_text(CONVERTED[name].type)
        values[name] = text if stays else from_text(text)
    return values


def convert(given: Mapping[str, object], num_videos: int | None = None) -> Conversion:
    """Our keys for the ``given`` ones of PySlowFast, by dotted names; every key is accounted for.

    ``num_videos``: training videos, that a schedule without lists is derived for; PySlowFast has no key for them.
    """
    draft = Draft(given)
    if num_videos is not None:
        draft.keys["DATA.NUM_VIDEOS"] = num_videos
    draft.keep("RNG_SEED", "LOG_PERIOD", "TRAIN.ENABLE")
    convert_network(draft)
    convert_solver(draft)
    convert_schedule(draft)
    convert_data(draft)
    _weights(draft)
    _precision(draft)
    _rest(draft)
    return Conversion(
        keys={
            name: value for name, value in _in_order(draft.keys) if value != BY_NAME[name].default
        },
        kept=tuple(draft.kept),
        changed=tuple(draft.changed),
        dropped=tuple(draft.dropped),
        unknown=tuple(draft.unknown),
        problems=tuple(draft.problems),
        num_processes=num_processes(draft),
    )


def _weights(draft: Draft) -> None:
    """The weights that a run starts from, or tests."""
    name = "TRAIN.CHECKPOINT_FILE_PATH"
    path = draft.value(name)
    if not draft.value("TRAIN.ENABLE"):
        for one in (name, "TEST.CHECKPOINT_FILE_PATH"):
            if draft.value(one):
                draft.refuse(
                    one, "with TRAIN.ENABLE = False has no counterpart: a run tests its own weights"
                )
    elif path.endswith(".pkl"):
        ours = str(Path(path).with_suffix(".safetensors"))
        why = f"TRAIN.INIT_WEIGHTS {ours}; make it: python tools/convert_weights.py {path} {ours} --cfg …"
        draft.change(name, why, TRAIN__INIT_WEIGHTS=ours)
    elif path:
        why = f"TRAIN.INIT_WEIGHTS {path}: the weights alone, from step 0"
        draft.change(name, why, TRAIN__INIT_WEIGHTS=path)
    for one in sorted({name, "TEST.CHECKPOINT_FILE_PATH"} - draft.settled()):
        draft.drop("a run tests its own weights" if draft.value(one) else "it names no file", one)
    draft.drop("files are recognised", "TRAIN.CHECKPOINT_TYPE")
    draft.drop(
        "kernels of images are inflated wherever the file has such", "TRAIN.CHECKPOINT_INFLATE"
    )
    draft.drop("a run starts at step 0 with the weights alone", "TRAIN.CHECKPOINT_EPOCH_RESET")


def _precision(draft: Draft) -> None:
    name = "TRAIN.MIXED_PRECISION"
    if draft.value(name):
        draft.change(name, "TRAIN.PRECISION fp16", TRAIN__PRECISION="fp16")
    else:
        why = "TRAIN.PRECISION auto: bf16 on GPUs that have it; fp32 computes as there"
        draft.drop(why, name)


def _rest(draft: Draft) -> None:
    """Keys of one legal value, keys of PySlowFast's own workings, and those that nobody knows."""
    settled = draft.settled()
    for name in (name for name in draft.given if name not in settled):
        value, section = draft.given[name], name.split(".", maxsplit=1)[0]
        read = from_text(value) if isinstance(value, str) else value
        if name in FIXED and read not in FIXED[name].allowed:
            draft.refuse(name, f"has no counterpart: {FIXED[name].here}")
        elif name in FIXED:
            draft.drop(f"always: {FIXED[name].here}", name)
        elif name in DROPPED or section in SECTIONS:
            draft.drop(DROPPED.get(name) or SECTIONS[section], name)
        else:
            draft.unknown.append(Note(name, value, "no key of PySlowFast that is known here"))


def _in_order(keys: Mapping[str, object]) -> list[tuple[str, Any]]:
    """Values of their kinds in the order of our keys; one of the wrong kind as it is, to be reported as such."""
    converted = {}
    for name in (name for name in BY_NAME if name in keys):
        try:
            converted[name] = convert_value(BY_NAME[name].type, keys[name])
        except ValueError:
            converted[name] = keys[name]
    return list(converted.items())


def _yaml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    text = yaml.safe_dump(_plain(value), default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def _plain(value: object) -> object:
    """Lists instead of tuples, and 34 instead of 34.0."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
