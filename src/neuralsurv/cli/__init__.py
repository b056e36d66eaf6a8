"""The command line: ``neuralsurv``. Nothing heavy is imported before a command needs it."""
