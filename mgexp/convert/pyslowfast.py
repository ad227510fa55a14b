"""Convert a PySlowFast YAML.

Every key becomes our key with the same meaning, or is dropped with a reason, or is a problem.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from mgexp.config.keys import BY_NAME
from mgexp.config.load import file_values, read_pairs
from mgexp.config.values import convert as convert_value
from mgexp.config.values import from_text
from mgexp.convert.conversion import Conversion, Note
from mgexp.convert.data import convert_data
from mgexp.convert.keys import CONVERTED, DROPPED, FIXED, SECTIONS, type_of
from mgexp.convert.network import convert_network
from mgexp.convert.solver import convert_schedule, convert_solver
from mgexp.errors import InputError, raise_problems


def read_pyslowfast(path: Path, overrides: Sequence[str] = ()) -> dict[str, object]:
    """Read a PySlowFast YAML, its _BASE_ and KEY VALUE pairs: values by dotted names. Raises InputError."""
    if not path.is_file():
        raise InputError([f"{path} does not exist: it takes a YAML file of PySlowFast"])
    values, problems = file_values(path)
    pairs, unpaired = read_pairs(overrides, {name: type_of(name) for name in CONVERTED})
    raise_problems([*problems, *unpaired])
    return values | pairs


def convert(given: Mapping[str, object]) -> Conversion:
    """Convert the ``given`` keys of PySlowFast, by dotted names. The result says what became of every key."""
    draft = Conversion(given)
    draft.keep("RNG_SEED", "LOG_PERIOD", "TRAIN.ENABLE")
    convert_network(draft)
    convert_solver(draft)
    convert_schedule(draft)
    convert_data(draft)
    _weights(draft)
    name = "TRAIN.MIXED_PRECISION"
    if draft.value(name):
        draft.change(name, "TRAIN.PRECISION fp16", TRAIN__PRECISION="fp16")
    else:
        why = "TRAIN.PRECISION auto: bf16 on GPUs that have it; fp32 computes as there"
        draft.drop(why, name)
    # This comes last, because it settles all keys that nothing above has settled.
    _rest(draft)
    # The YAML has our keys in our order. Keys with our default values are left out.
    found, draft.keys = draft.keys, {}
    for name, key in BY_NAME.items():
        if name in found:
            value = found[name]
            # A value of the wrong type stays as it is, because reading the YAML reports it.
            with suppress(ValueError):
                value = convert_value(key.type, value)
            if value != key.default:
                draft.keys[name] = value
    return draft


def _weights(draft: Conversion) -> None:
    """Convert the keys that name the weights with which a run starts, or which it tests."""
    name = "TRAIN.CHECKPOINT_FILE_PATH"
    path = draft.value(name)
    if not draft.value("TRAIN.ENABLE"):
        why = "with TRAIN.ENABLE = False has no counterpart: a run tests its own weights"
        for one in (name, "TEST.CHECKPOINT_FILE_PATH"):
            if draft.value(one):
                draft.refuse(one, why)
    elif path.endswith(".pkl"):
        ours = str(Path(path).with_suffix(".safetensors"))
        files = shlex.join([path, ours])
        why = f"TRAIN.INIT_WEIGHTS {ours}; make it: python tools/convert_weights.py {files} --cfg …"
        draft.change(name, why, TRAIN__INIT_WEIGHTS=ours)
    elif path:
        why = f"TRAIN.INIT_WEIGHTS {path}: the weights alone, from step 0"
        draft.change(name, why, TRAIN__INIT_WEIGHTS=path)
    for one in ("TEST.CHECKPOINT_FILE_PATH", name):
        draft.drop("a run tests its own weights" if draft.value(one) else "it names no file", one)
    draft.drop("files are recognised", "TRAIN.CHECKPOINT_TYPE")
    draft.drop(
        "kernels of images are inflated wherever the file has such", "TRAIN.CHECKPOINT_INFLATE"
    )
    draft.drop("a run starts at step 0 with the weights alone", "TRAIN.CHECKPOINT_EPOCH_RESET")


def _rest(draft: Conversion) -> None:
    """Settle keys with one legal value, keys of PySlowFast's own machinery, and unknown keys."""
    settled = draft.settled()
    for name in (name for name in draft.given if name not in settled):
        value, section = draft.given[name], name.split(".", maxsplit=1)[0]
        # KEY VALUE pairs give these keys as text.
        read = from_text(value) if isinstance(value, str) else value
        if name in FIXED and read not in FIXED[name].allowed:
            draft.refuse(name, f"has no counterpart: {FIXED[name].here}")
        elif name in FIXED:
            draft.drop(f"always: {FIXED[name].here}", name)
        elif name in DROPPED or section in SECTIONS:
            draft.drop(DROPPED.get(name) or SECTIONS[section], name)
        else:
            draft.unknown.append(Note(name, value, "no key of PySlowFast that is known here"))
