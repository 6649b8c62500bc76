"""Medians with the order statistics that enclose them with 95 %, as bench/step prints them."""
from decimal import Decimal
from statistics import median


def interval(values):
    """(median, low, high)"""
    ordered = sorted(values)
    n = len(ordered)
    reach = int(0.98 * n**0.5)
    return median(ordered), ordered[max(0, n // 2 - reach)], ordered[min(n - 1, n // 2 + reach)]


def text(values, unit, digits=3):
    """"12.3 ms (12.1..12.6)"; of a single value the value alone."""
    middle, low, high = interval(values)
    return f"{short(middle, digits)} {unit}" + (f" ({short(low, digits)}..{short(high, digits)})" if len(values) > 1 else "")


def short(value, digits=3):
    """Significant digits without an exponent, and never fewer than those before the point."""
    return f"{value:.0f}" if abs(value) >= 10**digits else format(Decimal(f"{value:.{digits}g}"), "f")
