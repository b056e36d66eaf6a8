"""A model behind HTTP: predictions for batches of people, and what a service needs around them."""
