"""The errors and warnings of this library."""

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
    """A prediction was stopped because it exceeded its time limit."""


class NotPositiveDefiniteError(NeuralSurvError, ArithmeticError):
    """A precision matrix could not be factorised; the message says whether it held NaN."""


class NotFiniteError(NeuralSurvError, ArithmeticError):
    """A computation that must be finite was not."""


class NotConvergedError(NeuralSurvError, ArithmeticError):
    """An iteration did not reach its tolerance, and its result cannot be used."""


class NotEnoughMemoryError(NeuralSurvError, MemoryError):
    """The computation needs more memory than is available; nothing was changed."""


class NeuralSurvWarning(UserWarning):
    """Base class of the warnings of this library."""


class ConvergenceWarning(NeuralSurvWarning):
    """An iteration stopped before its tolerance was reached, or chains of draws have not mixed."""


class CollapseWarning(NeuralSurvWarning):
    """The posterior mean is far from the linearisation point: covariates have next to no effect."""


class QuadratureWarning(NeuralSurvWarning):
    """A quadrature rule leaves out a noticeable part of the time at risk."""


class FewEventsWarning(NeuralSurvWarning):
    """There are so few events that curves and bands are hardly more than the prior."""


class CeilingWarning(NeuralSurvWarning):
    """The hazard is close to the upper bound of the default model and can hardly rise; raise `headroom`."""


class ApproximationWarning(NeuralSurvWarning):
    """The posterior is far from the exact one of the same model, or leaves out a noticeable part of it."""


class StorageError(NeuralSurvError, OSError):
    """A model file could not be written or read; no data was lost and no code was run."""


class ProcessLostError(NeuralSurvError, RuntimeError):
    """A process of a distributed fit was lost; the fit can be resumed from its last checkpoint."""


class MissingCodeWarning(NeuralSurvWarning):
    """A value of the training table looks like a code for a missing one, such as 999."""


class CausesWarning(NeuralSurvWarning):
    """An event column was read as several causes of events; the message says which value means what."""
