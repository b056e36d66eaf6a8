"""The default model on the folds of a neutral comparison study, beside the results that the study has stored.

The study is L. Burk, J. Zobolas, B. Bischl, A. Bender, M. N. Wright, R. Sonabend (2024), A Large-Scale Neutral
Comparison Study of Survival Models on Low-Dimensional Data, arXiv:2406.04098. Its data, folds and scores are read from
a copy of its repository, slds-lmu/paper_2023_survival_benchmark; none of them is kept here.
"""
