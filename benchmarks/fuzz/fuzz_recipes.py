"""Recipes of cohorts: an ordinary small one, and hazards that are put into it, one or several at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fuzz_choices import ByteChoices
from fuzz_inputs import CONTAINERS, FORMS, NULLABLE, NUMBERS, TYPES, Recipe

_TAME = (0.0, 1.0, 2.0, -1.0, 0.5, 3.0, 7.25, -2.5, 10.0, 4.0)
_EXTREME = (1e-300, 1e300, -1e300, 5e-324, 1.7976931348623157e308, 1e-12, 1e16, 1.0000000000000002, -0.0, 65504.0)
_TIMES = (1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 9.25, 12.0, 20.0, 36.5)
_LEVELS = ("a", "b", "Ü", "1", "")
_MIXED: tuple[Any, ...] = (
    *("a", 1, 2.5, True, None, {"na": 0}, {"nat": 0}, {"bytes": "x"}, {"date": "2020-02-29"}, {"decimal": "1.5"}),
    *({"decimal": "NaN"}, {"fraction": "1/3"}, {"list": [1]}, {"array": [1, 2]}, {"complex": "1j"}, {"type": 0}),
    *(10**400, -(10**20), "nan", "inf", "1e5", {"table": {}}, "\ud800"),
)
_NAMES: tuple[Any, ...] = (
    *("größe", "年齢", "", " ", "a b", "x\n", "=x", "\u202ename", "\x00", "😀", "🧬" * 40, "time", "event", "x=1"),
    *(0, 1.5, None, True, ["a", 1], "a missing", "'", '"', "\\", "%s{0}", "nan"),
)
MUTATIONS = (
    *("none", "drop", "reorder", "extra", "unseen", "gap", "wild", "retype", "rename", "no rows", "one row"),
    *("duplicate index", "container", "repeat name", "infinite"),
)
ASKED = (
    *("survival", "cumulative_hazard", "hazard", "g", "conditional", "quantile", "median", "event_time", "rmst"),
    *("difference", "risk", "function", "score", "path"),
)

# Small settings of public parameters, so that a fit takes a few hundredths of a second.
_SMALL: dict[str, dict[str, Any]] = {
    "default": {"hidden": [], "average": False, "quadrature_points": 2, "max_sweeps": 3, "tolerance": 0.1},
    "paper": {
        "hidden": [2],
        "starts": 1,
        "quadrature_points": 5,
        "max_sweeps": 3,
        "tolerance": 0.1,
        "mode_tolerance": 0.1,
    },
}
_CHANGES: dict[str, list[dict[str, Any]]] = {
    "default": [
        {"hidden": [2]},
        {"quadrature_points": 4},
        {"headroom": 1.5},
        {"headroom": 1e6},
        {"hidden": [2], "activation": "relu"},
    ],
    "paper": [
        *({"quadrature": "gauss-legendre", "quadrature_points": 3}, {"rho": 0.3}, {"rho": 2.0}, {"activation": "silu"}),
        *({"normaliser": "closed-form"}, {"normaliser": "monte-carlo"}, {"solver": "dual"}, {"solver": "low-rank"}),
        *(
            {"phi_prior": [1e-3, 1e-3]},
            {"phi_prior": [1e3, 1e-6]},
            {"spread": "prior"},
            {"hidden": []},
            {"hidden": [2, 2]},
        ),
    ],
}


def _varied(cells: list[Any]) -> list[Any]:
    """Return cells that are not all the same: a constant column is a hazard of its own."""
    return [*cells[:-1], 100.0] if len(set(map(str, cells))) == 1 else cells


def _column(pick: ByteChoices, name: Any, rows: int) -> dict[str, Any]:
    return {"name": name, "type": "float64", "cells": _varied(pick.cells(rows, _TAME))}


def _settings(pick: ByteChoices) -> dict[str, Any]:
    preset = pick.one(("default", "paper"))
    settings = {"preset": preset, "draws": pick.one((4, 1, 2, 8)), **_SMALL[preset]}
    if pick.rarely(4):
        settings |= pick.one(_CHANGES[preset])
    if pick.rarely(10):
        settings["standardise"] = False
    return settings


def ordinary(pick: ByteChoices) -> Recipe:
    """Make a small cohort without a fault."""
    rows = pick.one((5, 4, 6, 3, 8, 2, 12))
    columns = [_column(pick, f"x{k}", rows) for k in range(1 + pick.below(3))]
    event = pick.cells(rows, (True, False))
    event[pick.below(rows)] = True
    return {
        "columns": columns,
        "container": "frame",
        "outcome": {
            "form": "pair",
            "layout": pick.one(("array", "series")),
            "time": {"type": "float64", "cells": pick.cells(rows, _TIMES)},
            "event": {"type": "bool", "cells": event},
        },
        "settings": _settings(pick),
        "hazards": [],
    }


def _one(pick: ByteChoices, recipe: Recipe) -> dict[str, Any]:
    """Return one of the columns."""
    return recipe["columns"][pick.below(len(recipe["columns"]))]


def _rows(recipe: Recipe) -> int:
    return len(recipe["outcome"]["time"]["cells"])


def _some(pick: ByteChoices, cells: list[Any], put: tuple[Any, ...]) -> None:
    """Put new values into some of the cells, in place."""
    if cells:
        for _ in range(1 + pick.below(3)):
            cells[pick.below(len(cells))] = pick.one(put)


def _type(pick: ByteChoices, recipe: Recipe) -> None:
    column = _one(pick, recipe)
    column["type"] = pick.one(TYPES)
    if column["type"] in ("str", "string", "category", "string[pyarrow]"):
        column["cells"] = _varied(pick.cells(_rows(recipe), _LEVELS))
    elif column["type"] == "object":
        column["cells"] = pick.cells(_rows(recipe), (1.0, 2, {"decimal": "1.5"}, {"fraction": "1/3"}, 10**30))


def _matrix(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["container"] = pick.one(("array", "array", *CONTAINERS))
    recipe["layout"] = pick.one(("plain", "fortran", "strided", "reversed", "big endian", "read-only"))
    kind = pick.one(("float64", *NUMBERS, "bool", "str"))
    for column in recipe["columns"]:
        column["type"] = kind


def _gap(pick: ByteChoices, recipe: Recipe) -> None:
    column = _one(pick, recipe)
    column["type"] = pick.one(("float64", *NULLABLE, "category", "str", "object"))
    _some(pick, column["cells"], (None,))


def _infinite(pick: ByteChoices, recipe: Recipe) -> None:
    _some(pick, _one(pick, recipe)["cells"], ("inf", "-inf", "nan"))


def _extreme(pick: ByteChoices, recipe: Recipe) -> None:
    column = _one(pick, recipe)
    rows = len(column["cells"])
    column["cells"] = pick.cells(rows, (*_EXTREME, *_TAME)) if pick.below(2) else [pick.number() for _ in range(rows)]


def _mixed(pick: ByteChoices, recipe: Recipe) -> None:
    column = _one(pick, recipe)
    column["type"] = "object"
    column["cells"] = pick.cells(_rows(recipe), _MIXED)


def _constant(pick: ByteChoices, recipe: Recipe) -> None:
    column = _one(pick, recipe)
    column["cells"] = [column["cells"][0] if column["cells"] else 0.0] * len(column["cells"])


def _copied(pick: ByteChoices, recipe: Recipe) -> None:
    first = _one(pick, recipe)
    recipe["columns"].append({**first, "name": f"copy{len(recipe['columns'])}", "cells": list(first["cells"])})


def _same_name(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["columns"].append(_column(pick, _one(pick, recipe)["name"], _rows(recipe)))


def _strange_name(pick: ByteChoices, recipe: Recipe) -> None:
    _one(pick, recipe)["name"] = pick.one(_NAMES) if pick.below(4) else pick.text(5)


def _row_count(count: int) -> Callable[[ByteChoices, Recipe], None]:
    def cut(pick: ByteChoices, recipe: Recipe) -> None:
        for part in (*recipe["columns"], *(part for part in recipe["outcome"].values() if isinstance(part, dict))):
            part["cells"] = part["cells"][:count]

    return cut


def _no_columns(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["columns"] = []


def _other_length(pick: ByteChoices, recipe: Recipe) -> None:
    part = recipe["outcome"][pick.one(("time", "event"))]
    part["cells"] = part["cells"][:-1] if pick.below(2) else [*part["cells"], 1.0]


def _events(flag: bool) -> Callable[[ByteChoices, Recipe], None]:
    def fill(pick: ByteChoices, recipe: Recipe) -> None:
        recipe["outcome"]["event"]["cells"] = [flag] * len(recipe["outcome"]["event"]["cells"])

    return fill


def _one_event(pick: ByteChoices, recipe: Recipe) -> None:
    _events(False)(pick, recipe)
    if recipe["outcome"]["event"]["cells"]:
        recipe["outcome"]["event"]["cells"][pick.below(len(recipe["outcome"]["event"]["cells"]))] = True


def _event_codes(pick: ByteChoices, recipe: Recipe) -> None:
    event = recipe["outcome"]["event"]
    event["type"] = pick.one(("int8", "float64", "boolean", "object", "str", "category", "Int64", "uint8"))
    _some(pick, event["cells"], (1, 0, True, False, 2, -1, 0.5, None, "nan", "True", "dead", "1"))


def _time_scale(pick: ByteChoices, recipe: Recipe) -> None:
    scale = pick.one((1e-300, 1e300, 1e-200, 1e200, 1e-30, 1e30, 1e-307))
    time = recipe["outcome"]["time"]
    time["cells"] = [min((_plain(value) or 1.0) * scale, 1e300 if scale > 1 else 1.0) for value in time["cells"]]


def _time_spread(pick: ByteChoices, recipe: Recipe) -> None:
    powers = tuple(float(f"1e{power}") for power in range(-300, 301, 4))
    recipe["outcome"]["time"]["cells"] = pick.cells(_rows(recipe), powers)


def _time_ties(pick: ByteChoices, recipe: Recipe) -> None:
    cells = recipe["outcome"]["time"]["cells"]
    recipe["outcome"]["time"]["cells"] = cells[:1] * len(cells)


def _time_close(pick: ByteChoices, recipe: Recipe) -> None:
    cells = recipe["outcome"]["time"]["cells"]
    recipe["outcome"]["time"]["cells"] = [1.0 + place * 2.0**-52 for place in range(len(cells))]


def _bad_time(pick: ByteChoices, recipe: Recipe) -> None:
    put = (0.0, -1.0, -0.0, None, "nan", "inf", "-inf", -1e300, 5e-324)
    _some(pick, recipe["outcome"]["time"]["cells"], put)


def _time_type(pick: ByteChoices, recipe: Recipe) -> None:
    time = recipe["outcome"]["time"]
    time["type"] = pick.one(TYPES)
    if time["type"] == "object":
        _some(pick, time["cells"], _MIXED)


def _weight(pick: ByteChoices, recipe: Recipe) -> None:
    pool = (1.0, 2.0, 0.0, 0.5, 1e-300, 1e300, 1e16, 1e8, 1e-8, 5e-324)
    weight = {"type": "float64", "cells": pick.cells(_rows(recipe), pool)}
    if pick.rarely(8):
        _some(pick, weight["cells"], (-1.0, None, "inf", "nan", 1.7e308))
    recipe["outcome"]["weight"] = weight


def _entry(pick: ByteChoices, recipe: Recipe) -> None:
    shares = pick.cells(_rows(recipe), (0.0, 0.5, 0.9, 0.25, 0.9999999999999999, 1e-300))
    cells = [_plain(value) * part for value, part in zip(recipe["outcome"]["time"]["cells"], shares, strict=False)]
    if pick.rarely(8):
        _some(pick, cells, (-1.0, None, "inf", "nan", 1e300))
    recipe["outcome"]["entry"] = {"type": "float64", "cells": cells}


def _plain(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return 1.0


def _episodes(pick: ByteChoices, recipe: Recipe) -> None:
    rows = _rows(recipe)
    who = pick.cells(rows, (1, 2, "a", None, {"list": [1]}))
    recipe["outcome"]["id"] = {"type": "object", "cells": who if pick.below(2) else list(range(rows))}


def _form(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["outcome"]["form"] = pick.one(FORMS)
    recipe["outcome"]["layout"] = pick.one(("series", "list", "array", "read-only", "strided", "column"))


def _index(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["index"] = pick.one(("duplicate", "text", "missing", "pairs", "dates"))


def _wide(pick: ByteChoices, recipe: Recipe) -> None:
    recipe["wide"] = 10_000 if pick.rarely(64) else pick.one((100, 30))


HAZARDS: dict[str, Callable[[ByteChoices, Recipe], None]] = {
    "type of a column": _type,
    "matrix": _matrix,
    "gap": _gap,
    "NaN or infinity": _infinite,
    "extreme numbers": _extreme,
    "objects of mixed types": _mixed,
    "constant column": _constant,
    "column twice, two names": _copied,
    "two columns, one name": _same_name,
    "strange name": _strange_name,
    "no row": _row_count(0),
    "one row": _row_count(1),
    "no column": _no_columns,
    "rows do not match": _other_length,
    "all events": _events(True),
    "one event": _one_event,
    "no event": _events(False),
    "codes of the event": _event_codes,
    "times of another size": _time_scale,
    "times from 1e-300 to 1e300": _time_spread,
    "all times tied": _time_ties,
    "times a rounding apart": _time_close,
    "impossible times": _bad_time,
    "type of the time": _time_type,
    "weights": _weight,
    "entry": _entry,
    "subjects": _episodes,
    "form of the outcome": _form,
    "index": _index,
    "many columns": _wide,
}


_IN_ORDER = tuple(HAZARDS)


def _ask(pick: ByteChoices, recipe: Recipe) -> dict[str, Any]:
    scale = max((abs(_plain(value)) for value in recipe["outcome"]["time"]["cells"]), default=1.0)
    usual = [0.0, scale / 4, scale, 2 * scale]
    times = usual
    if pick.rarely(4):
        wild = (scale, 0.0, scale * 1e6, 1e-300, 5e-324, 1e300, 1.7e308)
        times = pick.cells(1 + pick.below(4), wild)
    if pick.rarely(16):
        times = pick.one(([], ["nan"], ["inf"], [-1.0], ["a"], None, [[1.0]], 3.0, [None]))
    ask = {"what": pick.one(ASKED), "times": times, "change": "none"}
    if pick.rarely(3):
        ask["change"] = pick.one(MUTATIONS)
        ask["column"] = pick.below(max(1, len(recipe["columns"])))
    return ask


def cohort(data: bytes, *, asks: int = 2) -> Recipe:
    """Make a cohort with any number of hazards, mostly few, and what is asked of the model."""
    pick = ByteChoices(data)
    recipe = ordinary(pick)
    most = pick.one((0, 1, 1, 2, 2, 3, 5))
    names = dict.fromkeys(pick.one(_IN_ORDER) for _ in range(most))
    # Rows and columns are taken away last, since the others need some.
    for name in sorted(names, key=lambda name: name in ("no row", "one row", "no column")):
        HAZARDS[name](pick, recipe)
        recipe["hazards"].append(name)
    recipe["asks"] = [_ask(pick, recipe) for _ in range(asks)]
    return recipe
