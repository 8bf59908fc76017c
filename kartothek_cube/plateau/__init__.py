"""plateau's modules by their paths: ``import kartothek_cube.plateau`` instead of ``plateau``."""
