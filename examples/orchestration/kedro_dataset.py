"""Kedro: a dataset of a store, or the answer to a question to a cube, as an entry of the catalog.

A save of `StoreDataset` replaces what has the same values of the columns in ``replace``.
The catalog says, e.g.:

```yaml
sales:
  type: kedro_dataset.StoreDataset
  store: s3://bucket/prefix
  dataset_uuid: sales
  partition_on: [WEEK]
  replace: [WEEK]

dear_sales:
  type: kedro_dataset.CubeQuery
  store: s3://bucket/prefix
  cube: grocery
  conditions: PRICE > 2
```
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
from kedro.io import AbstractDataset

import kartothek_cube
from kartothek_cube.api.dataset import (
    list_datasets,
    read_table,
    store_dataframes_as_dataset,
    update_dataset_from_dataframes,
)
from kartothek_cube.errors import InvalidInput


class StoreDataset(AbstractDataset[pd.DataFrame, pd.DataFrame]):
    """A dataset; a save overwrites it, or replaces what has the same values of some columns."""

    def __init__(
        self,
        store: str,
        dataset_uuid: str,
        partition_on: Sequence[str] = (),
        replace: Sequence[str] = (),
        as_of: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.store, self.dataset_uuid, self.as_of = store, dataset_uuid, as_of
        self.partition_on, self.replace, self.metadata = list(partition_on), list(replace), metadata

    def load(self) -> pd.DataFrame:
        """Read all rows, of the state ``as_of`` if it is given."""
        return read_table(self.dataset_uuid, self.store, as_of=self.as_of)

    def save(self, data: pd.DataFrame) -> None:
        """Write in one commit."""
        if self.as_of is not None:
            raise InvalidInput(f"{self.dataset_uuid} as of {self.as_of} is past: leave out as_of to save.")
        if self.replace and self._exists():
            scope = data[self.replace].drop_duplicates().to_dict("records")
            update_dataset_from_dataframes(
                [data], self.store, self.dataset_uuid, partition_on=self.partition_on, delete_scope=scope
            )
        else:
            store_dataframes_as_dataset(
                self.store, self.dataset_uuid, [data], partition_on=self.partition_on, overwrite=True
            )

    def _exists(self) -> bool:
        return self.dataset_uuid in list_datasets(self.store)

    def _describe(self) -> dict[str, Any]:
        return {"store": self.store, "dataset_uuid": self.dataset_uuid, "as_of": self.as_of}


class CubeQuery(AbstractDataset[None, pd.DataFrame]):
    """The answer of `query_cube`; the cube changes by its own verbs."""

    def __init__(
        self,
        store: str,
        cube: str,
        conditions: str | None = None,
        columns: Sequence[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        self.store, self.cube, self.conditions = store, cube, conditions
        self.columns, self.metadata = columns, metadata

    def load(self) -> pd.DataFrame:
        """Ask."""
        return kartothek_cube.open(self.cube, self.store).query(self.conditions, payload_columns=self.columns)

    def save(self, data: None) -> None:
        """Refuse."""
        raise InvalidInput(f"A question to the cube {self.cube} cannot be saved: a node can call append_to_cube.")

    def _describe(self) -> dict[str, Any]:
        return {"store": self.store, "cube": self.cube, "conditions": self.conditions}
