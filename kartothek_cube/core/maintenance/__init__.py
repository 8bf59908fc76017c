"""Maintenance of one dataset: garbage, compaction, copies, deletion, conversion, verification.

Plans are pure; each plan has a runner beside it. The public functions are in `core.dataset`.
"""
