"""``python -m kartothek_cube`` is the command."""

from kartothek_cube.cli import main

if __name__ == "__main__":
    main()
