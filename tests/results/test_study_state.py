"""What a study says of runs that no longer fit its YAMLs."""

import subprocess

import pytest

from mgexp.results.study_state import Part, changed_text
from mgexp.run.files import json_line


@pytest.mark.parametrize("name", ["größer", "a.b[1]", 'a"b', "a\\b"])
def test_lines_of_a_row_with_any_name_are_moved_aside(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stored = tmp_path / "runs.jsonl"
    lines = [json_line({"name": row, "recipe": "0a"}) for row in (name, "axb1", "long")]
    stored.write_text("".join(lines))
    text = changed_text([Part(name, stored, "holds a run of another recipe", ("0a",))], tmp_path)
    for line in text.splitlines():
        if line.split()[0] in {"mkdir", "mv", "grep"}:
            subprocess.run(line, shell=True, check=True)
    assert stored.read_text() == "".join(lines[1:])
