"""The released configurations of PySlowFast, from tests/golden/pyslowfast_configs.json."""

import json
from pathlib import Path
from typing import Any

from tiny import load_tool, write_keys

TOOL = load_tool("convert_config")
convert = TOOL.convert_all

GOLDEN = Path(__file__).parents[1] / "golden" / "pyslowfast_configs.json"
CONFIGS: dict[str, dict[str, Any]] = json.loads(GOLDEN.read_text())["configs"]


def released(name: str, **changes: Any) -> dict[str, Any]:
    """The keys of one by dotted names; ``changes`` are SECTION__KEY=value, None takes a key out."""
    entry = CONFIGS[name]
    keys = released(entry["like"]) if "like" in entry else {}
    keys.update(entry["set"])
    for absent in entry.get("without", ()):
        del keys[absent]
    keys.update({key.replace("__", "."): value for key, value in changes.items()})
    return {key: value for key, value in keys.items() if value is not None}


def keys_of(name: str, **changes: Any) -> dict[str, Any]:
    """The keys that one becomes without a problem; a key that is not there has our default."""
    conversion = convert(released(name, **changes))
    assert conversion.problems == {}
    return conversion.keys


def write_released(path: Path, name: str, **changes: Any) -> Path:
    """The YAML file of one."""
    return write_keys(path, released(name, **changes))
