"""The datasets of a cube as Delta tables."""

from __future__ import annotations

from kartothek_cube.core.arguments import check_flag, converter_str_set_optional, join_names
from kartothek_cube.core.delta.log import PublishedDelta
from kartothek_cube.core.delta.publication import check_publishable, publish
from kartothek_cube.core.runtime.executor import map_in_threads
from kartothek_cube.core.runtime.options import Overrides
from kartothek_cube.core.runtime.telemetry import operation
from kartothek_cube.core.stores.contract import check_store_can_commit
from kartothek_cube.cube.cube import Cube
from kartothek_cube.cube.members import cube_and_store, load_cube
from kartothek_cube.errors import InvalidInput
from kartothek_cube.typing import Columns, StoreLike


def publish_cube_delta(
    cube: Cube | str,
    store: StoreLike,
    *,
    datasets: Columns = None,
    always: bool = False,
    options: Overrides | None = None,
) -> dict[str, PublishedDelta]:
    """Make each dataset of a cube a Delta table, or add its newest state as a version.

    As `publish_delta` for each of them. Each is a table of its own: a join by the dimension and
    partition columns, with the seed on the left, is what a query of the cube gives. See the page
    *Read it from Trino, Snowflake, Databricks, Fabric*.

    Parameters
    ----------
    cube : Cube or str
        The cube, or its uuid prefix.
    store : str, path, store or callable
        The store, in any form that `open_store` takes.
    datasets : str or iterable of str, optional
        Ids of the datasets; by default all.
    always : bool, default False
        Publish after each later commit of this library, too.
    options : optional
        What `options` returns: settings for this call.

    Returns
    -------
    dict
        Dataset id → what was published.

    Raises
    ------
    InvalidInput
        If the cube has no such dataset.
    Unsupported, InvalidRequest
        As of `publish_delta`, for any of the datasets. Nothing was written.
    CommitConflict
        If others published more often than ``options(commit_retries=...)`` meanwhile.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from kartothek_cube import Cube, build_cube, open_store, publish_cube_delta
    >>> cube, store = Cube(["PRODUCT_ID"], ["COUNTRY_CODE"], "sales"), open_store("hmemory://")
    >>> sales = pa.table({"PRODUCT_ID": [1, 2], "COUNTRY_CODE": ["DE", "FR"], "UNITS": [3, 4]})
    >>> _ = build_cube(sales, cube, store)
    >>> publish_cube_delta(cube, store)["seed"].version
    0
    """
    with operation("publish_cube_delta", options, cube=cube):
        found, opened = cube_and_store(cube, store)
        names, keeps = converter_str_set_optional(datasets), check_flag(always, "always")
        check_store_can_commit(opened)
        members = load_cube(found, opened)
        if names is not None and (unknown := sorted(names - members.keys())):
            raise InvalidInput(
                f"Cube {found.uuid_prefix!r} has no dataset {join_names(unknown)}; it has {join_names(members)}."
            )
        chosen = sorted(members if names is None else names)
        checks = map_in_threads(lambda name: check_publishable(opened, members[name], always=keeps), chosen)
        list(checks)
        return {name: publish(opened, members[name].uuid, always=keeps) for name in chosen}
