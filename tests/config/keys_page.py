"""The page docs/keys.md: `python tests/config/keys_page.py > docs/keys.md` writes it."""

import sys

from mgexp.config.key_list import default_text, sections, values_text

PAGE_START = """\
# All configuration keys

```bash
python tools/run_net.py --list-keys SOLVER       # prints the keys of one section; without SOLVER, of all
python tools/run_net.py --cfg experiments/quickstart/long.yaml SOLVER.BASE_LR 0.05    # sets a key, as the YAML may
```

The source of a key is *PySlowFast* if the key has its name and meaning from there. The source of other keys is
*mgexp*. `python tests/config/keys_page.py > docs/keys.md` writes this page.
"""


def keys_page():
    """A table for each section."""
    parts = [PAGE_START]
    for title, about, keys in sections():
        rows = [row(key) for key in keys]
        head = "| Key | Default | Values | Meaning | Source |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {title}\n", f"{about}\n", head, *rows, ""]))
    return "\n".join(parts)


def row(key):
    cells = (f"`{key.name}`", f"`{default_text(key)}`", values_text(key), key.meaning, key.source)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(keys_page())
