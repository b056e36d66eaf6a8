"""``python -m neuralsurv`` is the command ``neuralsurv``."""

from __future__ import annotations

from neuralsurv.cli.start import main

if __name__ == "__main__":
    main()
