"""Arrow arrays made of bare buffers, by the layout that Arrow documents for them.

Each function has a plain equal inside, taken where `uses_fast_paths` says no.
"""
