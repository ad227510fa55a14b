"""Names that would hide each other do not."""

from samples import overlaps

from mgexp.figures.labels import Label, place_labels
from mgexp.figures.style import PrintFigure, printed


def figure_of(places):
    """Named points at these places of a square from 0 to 1."""
    with printed():
        figure = PrintFigure(1, 3.25)
        axes = figure.subplots()
        axes.set_xlim(0, 1)
        axes.set_ylim(0, 1)
        figure.settle()
        place_labels(axes, [Label(f"name {n}", x, y, "black") for n, (x, y) in enumerate(places)])
    return figure


def test_a_name_alone_stands_above_its_point():
    (name,) = figure_of([(0.5, 0.5)]).axes[0].texts
    assert name.xyann == (0, 5)
    assert name.arrow_patch is None


def test_names_of_one_place_are_moved_apart():
    figure = figure_of([(0.5, 0.5)] * 6)
    assert overlaps(figure) == []


def test_a_name_far_from_its_point_has_a_line():
    assert any(name.arrow_patch for name in figure_of([(0.5, 0.5)] * 9).axes[0].texts)


def test_names_stay_inside_at_the_edge():
    figure = figure_of([(0.0, 0.0), (1.0, 1.0)])
    edge = figure.axes[0].get_window_extent().padded(1)
    for name in figure.axes[0].texts:
        box = name.get_window_extent(figure.canvas.get_renderer())
        assert edge.contains(*box.min)
        assert edge.contains(*box.max)


def test_words_that_are_there_already_stay_free():
    with printed():
        figure = PrintFigure(1, 3.25)
        axes = figure.subplots()
        figure.settle()
        axes.text(0.5, 0.55, "written before", ha="center")
        place_labels(axes, [Label("name", 0.5, 0.5, "black")])
    assert overlaps(figure) == []
