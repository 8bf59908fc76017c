"""The commands, one file each: `command` is the click command."""
