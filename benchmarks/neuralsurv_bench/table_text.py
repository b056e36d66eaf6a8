"""A table as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Mark = Literal["", "best", "second"]

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "✓": r"$\checkmark$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "φ": r"$\phi$",
    "–": "--",
    "…": r"\dots{}",
}


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and whether it is the best or second best of its column."""

    text: str
    mark: Mark = ""


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes
    ----------
    title : str
        A few words.
    header : sequence of str
        Names of the columns; the first holds names, the others numbers.
    rows : sequence of sequence of Cell
        The cells.
    note : str
        What to know when reading it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


def to_markdown(table: Table) -> str:
    """Return the table as Markdown, best in bold and second best in italics.

    Examples
    --------
    >>> from neuralsurv_bench.table_text import Cell, Table, to_markdown
    >>> print(to_markdown(Table("Ages", ["name", "age"], [[Cell("Ann"), Cell("41", "best")]])))
    ### Ages
    <BLANKLINE>
    | name | age |
    |---|---:|
    | Ann | **41** |
    <BLANKLINE>
    """
    signs = {"": "", "best": "**", "second": "*"}
    lines = [f"### {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    lines.append(f"| {' | '.join(_bars(name) for name in table.header)} |")
    lines.append("|---|" + "---:|" * (len(table.header) - 1))
    for row in table.rows:
        lines.append(f"| {' | '.join(f'{signs[c.mark]}{_bars(c.text)}{signs[c.mark]}' for c in row)} |")
    return "\n".join([*lines, ""])


def to_latex(table: Table) -> str:
    """Return the table as LaTeX for the booktabs package, best in bold and second best underlined."""
    commands = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}
    lines = [
        r"\begin{table}[htbp]",
        r"\centering",
        rf"\begin{{tabular}}{{l{'r' * (len(table.header) - 1)}}}",
        r"\toprule",
        " & ".join(_escape(name) for name in table.header) + r" \\",
        r"\midrule",
        *(" & ".join(commands[cell.mark].format(_escape(cell.text)) for cell in row) + r" \\" for row in table.rows),
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{_escape(' '.join(filter(None, (table.title + '.', table.note))))}}}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def mark_best(values: Sequence[float | None], texts: Sequence[str], *, higher_is_better: bool) -> list[Cell]:
    """Return the cells of a column with its best and second best marked.

    Parameters
    ----------
    values : sequence of float or None
        What the cells hold; None where there is nothing to compare.
    texts : sequence of str
        How the cells are shown. Cells that show the same number of digits, and so look alike, may differ in rank.
    higher_is_better : bool
        Which way is up.
    """
    found = sorted({value for value in values if value is not None}, reverse=higher_is_better)
    marks: dict[float, Mark] = dict(zip(found, ("best", "second"), strict=False))
    return [
        Cell(text, "" if value is None else marks.get(value, "")) for value, text in zip(values, texts, strict=True)
    ]


def _bars(text: str) -> str:
    return text.replace("|", r"\|")


def _escape(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
