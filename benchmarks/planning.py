"""Planning on a cube of many partitions, against parsing its two documents with ``json.loads``."""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from timing import best_of, show

from kartothek_cube import C, Cube, open_store, plan_cube_query
from kartothek_cube.core.metadata.document import Document, render_document
from kartothek_cube.core.metadata.partitions import PartitionColumns
from kartothek_cube.core.naming import document_key, schema_key
from kartothek_cube.core.schema_file import common_metadata_bytes
from kartothek_cube.core.snapshots import forget
from kartothek_cube.core.store import Store

CUBE = Cube("PRODUCT_ID", "DAY", "plan", suppress_index_on="PRODUCT_ID")


def write_dataset(store: Store, name: str, payload: str, partitions: int) -> bytes:
    """A dataset of which only the metadata exist: planning reads nothing else."""
    uuid = CUBE.ktk_dataset_uuid(name)
    labels = [f"DAY={i}/{i:032x}" for i in range(partitions)]
    files = {"table": pa.array([f"{uuid}/table/{label}.parquet" for label in labels])}
    document = Document(uuid, {"ktk_cube_is_seed": name == "seed"}, ("DAY",), {}, PartitionColumns(pa.array(labels), files))
    data = render_document(document)
    store.put(document_key(uuid), data)
    store.put(schema_key(uuid), common_metadata_bytes(pa.schema([("DAY", pa.int64()), ("PRODUCT_ID", pa.int64()), (payload, pa.float64())])))
    return data


def main(partitions: int) -> None:
    """Print the table."""
    store = open_store("hmemory://")
    documents = [write_dataset(store, "seed", "SALES", partitions), write_dataset(store, "forecast", "FORECAST", partitions)]

    def cold() -> object:
        forget(store)
        return plan_cube_query(CUBE, store, C("DAY") == 7)

    works = {
        "json": lambda: [json.loads(d) for d in documents],
        "cold": cold,
        "warm": lambda: plan_cube_query(CUBE, store, C("DAY") == 7),
        "warm, all": lambda: plan_cube_query(CUBE, store),
    }
    t = best_of(works)
    peer = "json.loads of both documents"
    title = f"{partitions:,} partitions x 2:"
    show(
        [
            (f"{title} plan one, cold", t["cold"], peer, t["json"]),
            (f"{title} plan one again", t["warm"], peer, t["json"]),
            (f"{title} plan all again", t["warm, all"], peer, t["json"]),
        ]
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
