"""What every call runs in: options, progress, the log, threads."""
