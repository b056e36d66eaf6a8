"""Numpydoc and Sphinx markup in docstrings, converted to what mkdocstrings renders."""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:mod|class|func|meth|attr|exc):`~?([\w.]+)`")
_MATH = re.compile(r":math:`([^`]*)`")
# name : {"a", "b"}, optional
_CHOICES = re.compile(r"^(\s*\w+(?:, \w+)* : )\{([^}\n]*)\}", flags=re.MULTILINE)


def as_markdown(text: str) -> str:
    """Return a docstring with roles as code and sets of choices as words.

    A set in braces would be shown with its first member as the default value, whatever the signature says.

    Examples
    --------
    >>> as_markdown("See :func:`neuralsurv.load`.")
    'See `neuralsurv.load`.'
    >>> as_markdown('mode : {"direct", "em"}, optional')
    'mode : "direct" or "em", optional'
    """
    text = _ROLE.sub(r"`\1`", text)
    text = _MATH.sub(r"`\1`", text)
    return _CHOICES.sub(lambda found: found[1] + _either(found[2]), text)


def _either(choices: str) -> str:
    *first, last = (choice.strip() for choice in choices.split(","))
    return f"{', '.join(first)} or {last}" if first else last


class ReadableDocstrings(griffe.Extension):
    """Rewrites every docstring before mkdocstrings parses it."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
