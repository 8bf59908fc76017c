"""Reading one dataset: which files, in which groups, and running that plan. Arrow in and out."""
