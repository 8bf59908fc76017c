"""What Dagster, Kedro and Airflow do with a store, each by its own means.

They need an environment of their own: `make test-orchestration`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from kartothek_cube import Cube, build_cube, cube_history
from kartothek_cube.api.dataset import history, list_datasets, read_table

EXAMPLES = Path(__file__).parents[3] / "examples" / "orchestration"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


@pytest.fixture
def store(tmp_path):
    return f"hfs://{tmp_path / 'store'}"


def rows_of(frame):
    return sorted(frame.sort_index(axis=1).itertuples(index=False, name=None))


class TestDagster:
    @pytest.fixture
    def run(self, store):
        dagster = pytest.importorskip("dagster")
        from dagster_io_manager import DatasetIOManager

        manager = {"io_manager": DatasetIOManager(store=store)}
        return lambda assets, **how: dagster.materialize(assets, resources=manager, **how)

    @pytest.fixture
    def weeks(self):
        dagster = pytest.importorskip("dagster")
        units = {"1": [5], "2": [7]}

        @dagster.asset(
            partitions_def=dagster.StaticPartitionsDefinition(["1", "2"]), metadata={"partition_column": "WEEK"}
        )
        def sales(context) -> pd.DataFrame:
            key = context.partition_key
            return pd.DataFrame({"WEEK": int(key), "UNITS": units[key]})

        return sales, units

    def test_a_partition_of_an_asset_is_a_partition_of_the_dataset(self, run, weeks, store):
        sales, units = weeks
        assert run([sales], partition_key="1").success
        assert run([sales], partition_key="2").success
        units["1"] = [6, 1]
        again = run([sales], partition_key="1")
        assert rows_of(read_table("sales", store)) == [(1, 1), (6, 1), (7, 2)]
        (event,) = again.get_asset_materialization_events()
        commit = event.materialization.metadata["commit"].value
        assert commit == history("sales", store)["commit"].iloc[0]

    def test_a_run_reads_the_partition_that_it_is_for(self, run, weeks, store):
        import dagster

        seen = []

        @dagster.asset(partitions_def=weeks[0].partitions_def, metadata={"partition_column": "WEEK"})
        def doubled(sales: pd.DataFrame) -> pd.DataFrame:
            seen.append(rows_of(sales))
            return sales.assign(UNITS=sales["UNITS"] * 2)

        run([weeks[0]], partition_key="1")
        run([weeks[0], doubled], partition_key="2")
        assert seen == [[(7, 2)]]
        assert rows_of(read_table("doubled", store)) == [(14, 2)]

    def test_rows_of_another_partition_are_refused(self, run, store):
        import dagster

        @dagster.asset(partitions_def=dagster.StaticPartitionsDefinition(["1"]), metadata={"partition_column": "WEEK"})
        def sales() -> pd.DataFrame:
            return pd.DataFrame({"WEEK": [1, 3], "UNITS": [5, 6]})

        with pytest.raises(Exception, match=r"WEEK in \[1\], but its rows have also \[3\]"):
            run([sales], partition_key="1")
        assert list_datasets(store) == []

    def test_an_asset_without_partitions_is_overwritten(self, run, store):
        import dagster

        @dagster.asset
        def shops() -> pd.DataFrame:
            return pd.DataFrame({"SHOP": [1, 2]})

        @dagster.asset
        def many(shops: pd.DataFrame) -> pd.DataFrame:
            return pd.concat([shops, shops])

        run([shops, many])
        run([shops, many])
        assert rows_of(read_table("many", store)) == [(1,), (1,), (2,), (2,)]


class TestKedro:
    @pytest.fixture
    def catalog(self, store):
        io = pytest.importorskip("kedro.io")
        sales = {"store": store, "dataset_uuid": "sales", "partition_on": ["WEEK"], "replace": ["WEEK"]}
        question = {"store": store, "cube": "grocery", "conditions": "PRICE > 2"}
        return lambda **more: io.DataCatalog.from_config(
            {
                "sales": {"type": "kedro_dataset.StoreDataset", **sales, **more},
                "dear": {"type": "kedro_dataset.CubeQuery", **question},
            }
        )

    def test_a_save_replaces_what_has_the_same_values(self, catalog):
        entries = catalog()
        assert not entries.exists("sales")
        entries.save("sales", pd.DataFrame({"WEEK": [1, 2], "UNITS": [5, 7]}))
        entries.save("sales", pd.DataFrame({"WEEK": [2, 2], "UNITS": [8, 9]}))
        assert rows_of(entries.load("sales")) == [(5, 1), (8, 2), (9, 2)]

    def test_a_state_of_the_past_is_read_and_not_written(self, catalog, store):
        entries = catalog()
        entries.save("sales", pd.DataFrame({"WEEK": [1], "UNITS": [5]}))
        past = catalog(as_of=history("sales", store)["commit"].iloc[0])
        entries.save("sales", pd.DataFrame({"WEEK": [1], "UNITS": [6]}))
        assert rows_of(past.load("sales")) == [(5, 1)]
        with pytest.raises(Exception, match="is past"):
            past.save("sales", pd.DataFrame({"WEEK": [1], "UNITS": [7]}))

    def test_a_question_to_a_cube_is_an_entry(self, catalog, store):
        prices = pd.DataFrame({"PRODUCT_ID": [1, 2], "WEEK": 1, "PRICE": [1.5, 2.5]})
        build_cube(prices, Cube(["PRODUCT_ID"], ["WEEK"], "grocery"), store)
        assert catalog().load("dear")["PRODUCT_ID"].tolist() == [2]
        with pytest.raises(Exception, match="append_to_cube"):
            catalog().save("dear", prices)


class TestAirflow:
    @pytest.fixture
    def dags(self, tmp_path, store, monkeypatch):
        monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
        monkeypatch.setenv("SALES_STORE", store)
        pytest.importorskip("airflow")
        sys.modules.pop("airflow_asset", None)
        import airflow_asset

        return airflow_asset

    def test_the_reader_starts_after_the_writer_and_reads_its_commit(self, dags, store):
        writer, reader = dags.load_sales(), dags.report_sales()
        events = {dags.SALES: type("Event", (), {"extra": None})()}
        writer.task_dict["load"].python_callable(ds="2024-05-01", outlet_events=events)
        written = events[dags.SALES]
        assert written.extra == {"commit": cube_history(dags.CUBE, store)["commit"].iloc[0], "day": "2024-05-01"}

        dags.load_day(store, "2024-05-02")
        assert reader.task_dict["report"].python_callable(inlet_events={dags.SALES: [written]}) == {"DE": 12, "FR": 2}
        assert writer.task_dict["load"].outlets == [dags.SALES]
        assert reader.timetable.asset_condition.objects == (dags.SALES,)

    def test_a_retry_adds_nothing(self, dags, store):
        for _ in range(2):
            commit = dags.load_day(store, "2024-05-01")
        assert dags.units_by_country(store, "2024-05-01", commit) == {"DE": 12, "FR": 2}
        assert dags.units_by_country(store, "2024-05-03", commit) == {}
