"""The squares of the confusion figure."""

from dataclasses import replace

from samples import overlaps, run

from mgexp.figures.pages import draw_confusions
from mgexp.results.model import Row
from mgexp.run.confusion import Confusion

COUNTS = Confusion(((0, 0, 3), (0, 1, 1), (1, 1, 4)))


def row(name):
    return Row(name, {0: replace(run(name), confusion=COUNTS)}, {})


def test_a_square_per_row_with_percents():
    figure = draw_confusions([row("baseline"), row("long_short")], ("open", "close"))
    squares = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title(loc="left") for axes in squares] == ["baseline", "long + short"]
    assert squares[0].images[0].get_array().tolist() == [[75.0, 25.0], [0.0, 100.0]]
    assert overlaps(figure) == []
