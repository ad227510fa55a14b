"""Confusion of seven videos of three classes, worked out by hand."""

from mgexp.results.confusion import ClassScore, Confusion, count_confusions, sum_confusions

LABELS = [0, 0, 0, 0, 1, 1, 2]
PREDICTED = [0, 0, 1, 2, 0, 0, 2]
COUNTS = ((0, 0, 2), (0, 1, 1), (0, 2, 1), (1, 0, 2), (2, 2, 1))


def test_pairs_are_counted():
    assert count_confusions(LABELS, PREDICTED).counts == COUNTS


def test_accuracy_of_each_class():
    confusion = Confusion(COUNTS)
    assert confusion.classes == (ClassScore(0, 4, 2), ClassScore(1, 2, 0), ClassScore(2, 1, 1))
    assert [score.percent for score in confusion.classes] == [50.0, 0.0, 100.0]


def test_the_worst_classes_and_the_most_confused_pairs():
    confusion = Confusion(COUNTS)
    assert [score.label for score in confusion.worst(5)] == [1, 0]  # class 2 is perfect
    assert confusion.most_confused() == ((1, 0, 2), (0, 1, 1), (0, 2, 1))


def test_the_matrix_is_percent_of_each_class():
    assert Confusion(COUNTS).matrix() == [[50, 25, 25], [100, 0, 0], [0, 0, 100]]


def test_seeds_are_summed():
    total = sum_confusions([Confusion(COUNTS), Confusion(((0, 0, 3), (1, 1, 1)))])
    assert total.counts == ((0, 0, 5), (0, 1, 1), (0, 2, 1), (1, 0, 2), (1, 1, 1), (2, 2, 1))
