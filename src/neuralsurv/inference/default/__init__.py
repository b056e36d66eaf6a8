"""The default model: structure, scales by the evidence, exact one-dimensional expectations."""
