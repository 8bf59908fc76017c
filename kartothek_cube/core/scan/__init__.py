"""Reads of one dataset: the plan (which files, in which groups) and its execution, in Arrow.

No frames and no classes of kartothek: the verbs in ``core/dataset`` convert.
"""
