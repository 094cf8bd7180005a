"""Series of values, and sets of ranks as lockstepd is asked for them."""

from dataclasses import dataclass, field
from typing import Any, Iterable, List, Set, Union

_RANKS = 256  # of which one answer has the series


@dataclass
class Series:
    """One rank's values of one metric. ``x`` are steps, or Unix seconds where a series was asked for by time.

    Where there are more values than points were asked for, each point stands for several: ``values`` are the last
    of them, ``lowest`` and ``highest`` their bounds.
    """

    rank: int
    metric: str
    x: List[float] = field(default_factory=list)
    values: List[float] = field(default_factory=list)
    lowest: List[float] = field(default_factory=list)
    highest: List[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.x)

    def to_numpy(self) -> Any:
        """An array of shape (n, 2): x and values. Needs NumPy."""
        import numpy

        return numpy.column_stack([numpy.asarray(self.x, float), numpy.asarray(self.values, float)])

    def to_pandas(self) -> Any:
        """A pandas.Series of the values over x. Needs pandas."""
        import pandas

        return pandas.Series(self.values, index=pandas.Index(self.x, name="step"), name=f"{self.metric} of {self.rank}")


def value_of(number: Any) -> float:
    """JSON has no words for what is not finite: they are texts."""
    return float("nan") if number is None else float(number)


def _numbers(ranks: Union[str, int, Iterable[int]]) -> List[int]:
    """The ranks of '0-3,7', of a number or of numbers; ValueError: it is no such thing."""
    if isinstance(ranks, int):
        return [ranks]
    if not isinstance(ranks, str):
        return sorted({int(rank) for rank in ranks})
    found: Set[int] = set()
    for part in ranks.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or int(last or first) < int(first):
            raise ValueError(f"{ranks!r}: ranks are a set as in 0-3,7, or all")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def rank_sets(ranks: Union[str, int, Iterable[int]]) -> List[str]:
    """As texts, '0-255', each of as many as one answer has."""
    numbers = _numbers(ranks)
    return [_ranges(numbers[at:at + _RANKS]) for at in range(0, len(numbers), _RANKS)]


def _ranges(ranks: List[int]) -> str:
    """[0, 1, 2, 7] as '0-2,7'."""
    parts: List[List[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
