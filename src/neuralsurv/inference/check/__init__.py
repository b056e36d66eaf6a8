"""How far a variational posterior is from the exact one: importance weights and their tail."""
