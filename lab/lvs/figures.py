"""What the study computes from its times: indicators and fits."""

import math


def mean(values):
    return sum(values) / len(values) if values else math.nan


def quantile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else math.nan


def fit(xs, ys):
    """The least-squares line y = a + b x, and R squared.

    >>> [round(value, 6) for value in fit([1, 2, 3], [3, 5, 7])]
    [1.0, 2.0, 1.0]
    >>> round(fit([1, 2, 3], [1, 0, 1])[2], 6)
    0.0
    """
    x_mean, y_mean = mean(xs), mean(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    slope = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys)) / spread
    start = y_mean - slope * x_mean
    left = sum((y - start - slope * x) ** 2 for x, y in zip(xs, ys))
    whole = sum((y - y_mean) ** 2 for y in ys)
    return start, slope, 1 - left / whole if whole else math.nan


def linear(curve):
    """`curve`: times by number of requests."""
    return fit(list(curve), list(curve.values()))


def logarithmic(curve):
    """y = a + b ln(x).

    >>> round(logarithmic({1: 2.0, 10: 2.0 + 3 * math.log(10), 100: 2.0 + 6 * math.log(10)})[1], 6)
    3.0
    """
    return fit([math.log(x) for x in curve], list(curve.values()))


def shape(curve):
    """Which of the two fits is closer.

    >>> shape({1: 1.0, 10: 10.0, 100: 100.0})
    'linear'
    """
    return "linear" if linear(curve)[2] >= logarithmic(curve)[2] else "logarithmic"


def indicator(one, many):
    """The study's performance indicator: time with one server over time with n, by number of requests."""
    return {number: one[number] / many[number] for number in one if number in many}
