"""A process that fits with two threads and then forks children that predict and fit; see test_threads.py."""

import multiprocessing
import sys
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed

sys.path.insert(0, str(Path(__file__).parents[1]))

from neuralsurv.inference.threads import threads_for
from small_cohort import quick_default, small_cohort

COHORT = small_cohort(150)


def curves(model):
    return model.predict_survival(COHORT.x, [0.5]).mean.to_numpy()


def again(model):
    """Predict with the parent's model, fit anew, and share out work that is worth a team."""
    told, anew = curves(model), curves(quick_default().fit(COHORT.x, COHORT.y))
    torch.sin(torch.ones(3_000_000)).sum()
    return told, anew, torch.get_num_threads()


def forked(model, queue):
    queue.put(again(model))


def through_multiprocessing(model):
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=forked, args=(model, queue))
    child.start()
    found = queue.get()
    child.join()
    return found


def main(way):
    torch.set_num_threads(2)
    model = quick_default().fit(COHORT.x, COHORT.y)
    before = curves(model)
    # The parent's threads are at work before the fork.
    torch.sin(torch.ones(3_000_000)).sum()
    if way == "joblib":
        found = Parallel(n_jobs=2, backend="multiprocessing")([delayed(again)(model)])[0]
    elif way == "multiprocessing":
        found = through_multiprocessing(model)
    else:
        with threads_for(1):
            found = through_multiprocessing(model)
    told, anew, threads = found
    assert np.allclose(told, before)
    assert np.allclose(anew, before)
    print(f"same curves, {threads} thread in the child, {torch.get_num_threads()} in the parent")


if __name__ == "__main__":
    main(sys.argv[1])
