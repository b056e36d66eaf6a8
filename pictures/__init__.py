"""The pictures of the explanation pages: ``python -m pictures --out docs/images`` draws all of them."""
