"""One dataset: from bytes in a store to the verbs of datasets.

Rooms import only from those above them; `tests/test_layers.py` has the order.
"""
