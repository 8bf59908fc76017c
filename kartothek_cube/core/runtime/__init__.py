"""Options, progress, telemetry and threads of every call. Nothing here knows stores or tables."""
