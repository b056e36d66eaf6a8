"""The methods, one file each behind the interface of `interface.py`; `registry.py` lists them."""
