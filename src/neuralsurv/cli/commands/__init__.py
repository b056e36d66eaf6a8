"""The commands, one module each: ``run`` does the work once the options are read."""
