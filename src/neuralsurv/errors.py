"""The errors and warnings that neuralsurv raises. There are few, and every one is ours to explain."""

from __future__ import annotations


class NeuralSurvError(Exception):
    """Base class of every error that this library raises on purpose."""


class InputError(NeuralSurvError, ValueError):
    """The data or an argument cannot be used; the message names the column and says what to do."""


class ColumnError(InputError):
    """One column of a table cannot be used; `column` is its name."""

    def __init__(self, message: str, column: str) -> None:
        super().__init__(message)
        self.column = column


class OutOfTimeError(NeuralSurvError, TimeoutError):
    """A prediction was given up because it took longer than it may."""


class NotPositiveDefiniteError(NeuralSurvError, ArithmeticError):
    """A precision matrix could not be factorised; the message says whether it held NaN."""


class NotFiniteError(NeuralSurvError, ArithmeticError):
    """A computation that must be finite was not."""


class NotConvergedError(NeuralSurvError, ArithmeticError):
    """An iteration did not reach its tolerance, and what it has reached is of no use."""


class NotEnoughMemoryError(NeuralSurvError, MemoryError):
    """The work would take, or has taken, more memory than there is; nothing was changed by it."""


class NeuralSurvWarning(UserWarning):
    """Base class of the warnings of this library."""


class ConvergenceWarning(NeuralSurvWarning):
    """An iteration stopped before its tolerance was reached, or chains of draws have not mixed."""


class CollapseWarning(NeuralSurvWarning):
    """The posterior has left the linearisation point: covariates have next to no effect."""


class QuadratureWarning(NeuralSurvWarning):
    """A quadrature rule leaves out a noticeable part of the time at risk."""


class FewEventsWarning(NeuralSurvWarning):
    """The rows hold so few events that curves and bands are little more than the prior's."""


class CeilingWarning(NeuralSurvWarning):
    """The hazard comes close to the ceiling that the default preset sets it, and can hardly rise; raise `headroom`."""


class ApproximationWarning(NeuralSurvWarning):
    """The posterior is far from the exact one of the same model, or leaves out a noticeable part of it."""


class StorageError(NeuralSurvError, OSError):
    """A model file could not be written or read; nothing was lost and nothing was run."""


class ProcessLostError(NeuralSurvError, RuntimeError):
    """A process of a distributed fit is gone; a checkpoint that was written before can be gone on from."""
