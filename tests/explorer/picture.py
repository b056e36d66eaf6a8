"""Makes the picture of the explorer for the documentation: python tests/explorer/picture.py docs/images/explorer.png"""

import sys
import tempfile
import time
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))

from browser import Browser
from explorer.own_site import READY, Site
from neuralsurv import NeuralSurv


def main(out: Path) -> None:
    """Compare two people of the veterans cohort, one outside the training range, and write a picture."""
    cohort = pd.read_csv(Path(__file__).parents[2] / "docs" / "data" / "veterans.csv")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "veterans.neuralsurv"
        NeuralSurv(random_state=0, verbose=False).fit(cohort, time="days", event="died").save(path)
        with Site(path) as address, Browser() as browser:
            browser.size(1200, 1000)
            browser.open(f"{address}/", READY)
            browser.run("document.getElementById('pin').click()")
            for field, value in (("field-1", "90"), ("field-0", "84")):
                browser.run(f"document.getElementById('{field}').focus()")
                browser.type(value)
                browser.wait(READY)
            browser.wait("document.querySelector('#outside li') && document.querySelector('#vary polyline')")
            browser.run("document.activeElement.blur()")
            # The last of the answers is drawn.
            time.sleep(2)
            browser.picture(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
