"""From files to the figures of a report, and the squares of the confusion figure."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
import yaml
from samples import comparison, row_schedule, run

from mgexp.config.load import load_config, to_yaml
from mgexp.errors import InputError
from mgexp.figures.report_figures import draw_confusions, draw_figures, load_results, remove_others
from mgexp.figures.style import PrintFigure, printed
from mgexp.models.build import build_model
from mgexp.models.cost import macs_by_shape
from mgexp.results.confusion import Confusion

SMALL = {
    "TRAIN": {"BATCH_SIZE": 8},
    "MODEL": {"MODEL_NAME": "SlowFast", "NUM_CLASSES": 2},
    "RESNET": {"DEPTH": 18, "WIDTH_PER_GROUP": 8},
    "SLOWFAST": {"ALPHA": 2, "BETA_INV": 4},
    "DATA": {"NUM_FRAMES": 8, "TRAIN_CROP_SIZE": 64, "NUM_VIDEOS": 800},
    "SOLVER": {"STEPS": [0, 2], "MAX_EPOCH": 4},
}


def write(path, **changes):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def test_a_row_is_its_schedule_over_the_videos_of_its_yaml(tmp_path):
    write(tmp_path / "baseline.yaml")
    (row,) = load_results(tmp_path)[1]
    assert row.schedule.total_steps == 400
    model = build_model(load_config(tmp_path / "baseline.yaml"))
    assert row.macs == macs_by_shape(model, [(8, 64)])


def test_a_row_of_an_unknown_number_of_videos_is_left_out(tmp_path):
    write(tmp_path / "baseline.yaml", DATA={})
    assert load_results(tmp_path)[1] == ()


def test_a_row_that_cannot_be_is_an_error_that_names_it(tmp_path):
    write(tmp_path / "long.yaml", SOLVER={"STEPS": [0, 9], "MAX_EPOCH": 4})
    with pytest.raises(InputError, match=r"long: SOLVER\.STEPS"):
        load_results(tmp_path)[1]


def test_runs_have_the_schedule_they_were_trained_with(tmp_path):
    cfg = load_config(write(tmp_path / "x" / "row.yaml"), ["MULTIGRID.EPOCH_FACTOR", "2.0"])
    folder = tmp_path / "runs" / "baseline" / "seed0"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(to_yaml(cfg))
    comparison, rows = load_results(tmp_path / "runs")
    assert [row.name for row in comparison.rows] == ["baseline"]
    assert [row.schedule.num_videos for row in rows] == [800]


def test_a_report_has_the_figures_that_can_be_drawn(monkeypatch):
    monkeypatch.setattr("mgexp.figures.style.PrintFigure.file", lambda figure, kind: kind.encode())
    found = draw_figures(comparison(run("baseline"), run("long", seconds=50.0)), [row_schedule()])
    assert {one.name for one in found} == {"accuracy", "speed_up", "schedule"}
    assert {(one.png, one.svg) for one in found} == {(b"png", b"svg")}
    runs = [run(f"row_{number}", top1=90.0 + number) for number in range(9)]
    many = draw_figures(comparison(run("baseline"), *runs), [])
    assert {one.name for one in many} == {"accuracy", "gains"}
    alone = draw_figures(comparison(run("long")), [])
    assert {one.name for one in alone} == {"accuracy"}
    (early,) = draw_figures(comparison(replace(run("long"), is_untimed=True)), [])
    assert early.name == "accuracy"


def test_figures_that_a_page_no_longer_has_are_removed(tmp_path):
    figures = tmp_path / "figures"
    figures.mkdir()
    for name in ("accuracy.png", "speed_up.png", "speed_up.svg", "mine.png"):
        (figures / name).touch()
    pictures = draw_figures(comparison(replace(run("long"), is_untimed=True)), [])
    remove_others(tmp_path, pictures)
    assert sorted(path.name for path in figures.iterdir()) == ["accuracy.png", "mine.png"]


def test_a_square_per_row_with_percents():
    confusion = Confusion(((0, 0, 3), (0, 1, 1), (1, 1, 4)))
    rows = {"baseline": confusion, "long_short": confusion}
    figure = draw_confusions(rows, ("open", "close"))
    squares = [axes for axes in figure.axes if axes.images]
    assert squares[0].images[0].get_array().tolist() == [[75.0, 25.0], [0.0, 100.0]]
    assert len(squares) == 2


def test_an_svg_has_its_words_as_text_and_is_the_same_each_time():
    with printed():
        made = PrintFigure(2.0)
        made.subplots().set_title("it's <b> & v1.12345")
    svg = made.file("svg").decode()
    texts = ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    assert "it's <b> & v1.12345" in [one.text for one in texts]
    assert made.file("svg").decode() == svg == made._repr_svg_()
    assert made.file("png").startswith(b"\x89PNG")
