"""The command as ``python -m kartothek_cube.cli``."""

from __future__ import annotations

from kartothek_cube.cli import main

if __name__ == "__main__":
    main()
