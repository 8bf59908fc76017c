"""A store in memory that waits for a server, as far as the library knows."""

from __future__ import annotations

from kartothek_cube.core.stores.contract import StoreView


class FarStore(StoreView):
    """Files are sent in threads, and calls that do not depend on each other go at once."""

    @property
    def is_remote(self):
        return True
