"""The picture of the page "Start in five minutes", made by the commands of that page."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

TABLES = Path(__file__).parents[1] / "docs" / "data"


def draw_start(out: Path) -> Path:
    """Fit the veterans' table and draw three men, as a newcomer does."""
    picture = out / "start_curves.png"
    command = [sys.executable, "-m", "neuralsurv"]
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "m.neuralsurv"
        fit = ["fit", TABLES / "veterans.csv", "--time", "days", "--event", "died", "--out", model, "--quiet"]
        predict = ["predict", model, TABLES / "people.csv", "--id", "name", "--picture", picture, "--force"]
        for arguments in (fit, predict):
            subprocess.run([*command, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)
    return picture
