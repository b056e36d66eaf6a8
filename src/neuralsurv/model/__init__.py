"""The probability model as pure functions: formulas only, no data frames and no optimisers."""
