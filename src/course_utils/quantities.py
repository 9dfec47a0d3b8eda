"""How numbers with units are written for people: the one place that formats them."""

import math

_UNITLESS = {"", "times"}


def number(value: float) -> str:
    """Return a number with the digits that it deserves: whole when whole, else three figures."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "infinite"
    if value == round(value) and abs(value) < 1e15:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 0.001:
        return f"{value:.3g}"
    return f"{value:.1e}"


def quantity(value: float, unit: str) -> str:
    """Return a number with its unit, e.g. `687 launches per crop`, `31 times`, `2.4 ms`."""
    if unit == "s":
        return seconds(value)
    if unit == "bytes":
        return data(value)
    return f"{number(value)} {unit}".rstrip()


def seconds(value: float) -> str:
    """Return a duration given in seconds, in the unit that reads best."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= 0.9995 * scale:  # what would be written as 1,000 of the smaller unit
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def data(value: float) -> str:
    """Return an amount of memory given in bytes, in the unit that reads best."""
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= scale:
            return f"{float(f'{value / scale:.3g}'):,g} {unit}"
    return f"{value:.0f} bytes"


def plural(count: float, singular: str, several: str | None = None) -> str:
    """Return `1 launch`, `20 launches`: the count with the right form of the noun."""
    several = several or (
        f"{singular}es" if singular.endswith(("ch", "s", "x")) else f"{singular}s"
    )
    return f"{number(count)} {singular if count == 1 else several}"
