"""How many videos of each class the model took for each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

Counts = tuple[tuple[int, int, int], ...]
"""(label, predicted class, videos) for each pair that occurs, sorted by label and prediction."""


@dataclass(frozen=True)
class ClassScore:
    """The score of one class: the model recognised ``num_correct`` of its ``num_videos``."""

    label: int
    num_videos: int
    num_correct: int

    @property
    def percent(self) -> float:
        return 100 * self.num_correct / self.num_videos


@dataclass(frozen=True)
class Confusion:
    """The confusion matrix of one or several evaluations, without its zeros."""

    counts: Counts

    @property
    def num_classes(self) -> int:
        """Count the classes up to the last that occurs as a label or a prediction."""
        return 1 + max(max(label, predicted) for label, predicted, _ in self.counts)

    @cached_property
    def classes(self) -> tuple[ClassScore, ...]:
        """Return every class that has videos, by label."""
        videos: Counter[int] = Counter()
        for label, _, num in self.counts:
            videos[label] += num
        correct = {label: num for label, predicted, num in self.counts if label == predicted}
        return tuple(ClassScore(k, videos[k], correct.get(k, 0)) for k in sorted(videos))

    @property
    def largest_percent(self) -> float:
        """The accuracy of a network that always names the class with the most videos."""
        num_videos = [score.num_videos for score in self.classes]
        return 100 * max(num_videos) / sum(num_videos)

    def worst(self, num: int) -> tuple[ClassScore, ...]:
        """Return the ``num`` classes with the lowest accuracy, the lowest first. Leave out perfect classes."""
        wrong = (score for score in self.classes if score.num_correct < score.num_videos)
        return tuple(sorted(wrong, key=lambda score: (score.percent, score.label))[:num])

    def most_confused(self) -> Counts:
        """Return the pairs of different classes. The pair with the most videos comes first."""
        pairs = (count for count in self.counts if count[0] != count[1])
        return tuple(sorted(pairs, key=lambda count: (-count[2], count[:2])))

    def matrix(self) -> list[list[float]]:
        """Return a row for each class: the percent of its videos that were taken for each class (column)."""
        rows = [[0.0] * self.num_classes for _ in range(self.num_classes)]
        videos = {score.label: score.num_videos for score in self.classes}
        for label, predicted, num in self.counts:
            rows[label][predicted] = 100 * num / videos[label]
        return rows


def count_confusions(labels: Iterable[int], predicted: Iterable[int]) -> Confusion:
    """Count the pairs of a label and a prediction; there is one pair for each video."""
    num_videos = Counter(zip(labels, predicted, strict=True))
    return Confusion(tuple((*pair, num) for pair, num in sorted(num_videos.items())))


def sum_confusions(confusions: Iterable[Confusion]) -> Confusion:
    """Add the videos of several evaluations, such as those of several seeds."""
    total: Counter[tuple[int, int]] = Counter()
    for confusion in confusions:
        total.update({(label, predicted): num for label, predicted, num in confusion.counts})
    return Confusion(tuple((*pair, num) for pair, num in sorted(total.items())))


def name_of(label: int, names: Sequence[str]) -> str:
    """Return the name of a class, or its number where there are no names."""
    return names[label] if names else f"class {label}"
