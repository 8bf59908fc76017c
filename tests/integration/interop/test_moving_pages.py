"""The examples of the page for movers, old and new, on the same stores: each pair gives the same
rows and leaves the same datasets.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from kartothek_cube.api.dataset import read_table, undo, update_dataset_from_dataframes
from tests.golden.frames import actual_columns, difference
from tests.support.moving_pages import LIBRARIES, frames_of, names_of, pairs_of, section

if TYPE_CHECKING:
    from pathlib import Path

# Where the examples of each library keep their datasets.
STORES = {"kartothek": "warehouse", "plateau": "shop"}

# Runs examples one after the other, each in the folder of the one before, and keeps what each
# leaves: its store, and the frames that it made.
RUN = """
import json, os, shutil, sys
from pathlib import Path
import pandas as pd
blocks, folder, start = json.loads(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
namespace = {"__name__": "__main__"}
made = []
for n, code in enumerate(blocks):
    place = folder / str(n)
    shutil.copytree(start or folder / str(n - 1), place) if start or n else place.mkdir(parents=True)
    start = ""
    os.chdir(place)
    before = dict(namespace)
    exec(compile(code, f"example {n}", "exec"), namespace)
    public = {k: v for k, v in namespace.items() if not k.startswith("_") and v is not before.get(k)}
    new = {k: v if isinstance(v, list) else [v] for k, v in public.items()}
    frames = {k: v for k, v in new.items() if v and all(isinstance(f, pd.DataFrame) for f in v)}
    for name, parts in frames.items():
        for i, part in enumerate(parts):
            part.to_parquet(folder / f"{n} {name} {i}.parquet", index=False)
    made.append({name: len(parts) for name, parts in frames.items()})
print(json.dumps(made))
"""

NAMES = """
import importlib, importlib.util, json, sys
def missing(module, names):
    if not names:
        return [] if importlib.util.find_spec(module) else [module]
    home = importlib.import_module(module)
    return [f"{module}.{name}" for name in names if not hasattr(home, name)]
def public(module):
    home = importlib.import_module(module)
    if hasattr(home, "__all__"):
        return sorted(home.__all__)
    top = module.split(".")[0]
    names = (n for n in vars(home) if not n.startswith("_"))
    return sorted(n for n in names if getattr(getattr(home, n), "__module__", "").startswith(top))
rows, modules = json.loads(sys.argv[1]), json.loads(sys.argv[2])
missed = [lost for module, names in rows for lost in missing(module, names)]
print(json.dumps([missed, {module: public(module) for module in modules}]))
"""

# Modules whose names all have to be listed, or to be in the tables about dask.
PUBLIC = {
    "kartothek": """
        api.cube api.dataset api.discover api.consistency api.serialization
        io.eager io.iter io.eager_cube io.dask.bag io.dask.bag_cube io.dask.dataframe
        io.dask.dataframe_cube io.dask.delayed io.dask.compression
        core.dataset core.factory core.index core.common_metadata core.utils
        core.cube.cube core.cube.conditions core.cube.constants
        serialization utils.converters utils.ktk_adapters utils.pandas utils.store cli
    """,
    "plateau": """
        api.dataset api.serialization io.eager io.iter
        io.dask.bag io.dask.dataframe io.dask.delayed io.dask.compression
        core.dataset core.factory core.index core.common_metadata core.utils
        serialization utils.converters utils.pandas utils.store
    """,
}


@dataclass(frozen=True, slots=True)
class Turn:
    """What one example made, and where its store is.

    Only cubes have an order: datasets of the old libraries come by chance of a dict.
    """

    frames: dict[str, list[pd.DataFrame]]
    folder: Path
    ordered: bool


@dataclass(frozen=True, slots=True)
class Played:
    """Turn by turn: theirs; ours on the store that theirs before had left; all of ours, and theirs
    at last on that store.
    """

    theirs: list[Turn]
    mixed: list[Turn]
    ours: list[Turn]
    back: Turn


def run_theirs(run: Any, blocks: list[str], folder: Path, start: Path | None = None) -> list[Turn]:
    made = run(RUN, json.dumps(blocks), folder, start or "")
    read = [
        {
            name: [pd.read_parquet(folder / f"{n} {name} {i}.parquet") for i in range(count)]
            for name, count in frames.items()
        }
        for n, frames in enumerate(made)
    ]
    return [Turn(frames, folder / str(n), is_ordered(blocks[n])) for n, frames in enumerate(read)]


def is_ordered(code: str) -> bool:
    return "query_cube(" in code and "read_table(" not in code


def run_ours(blocks: list[str], folder: Path, starts: list[Path] | None = None) -> list[Turn]:
    """Each on the store that the one before has left, or on a copy of a given one."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    turns: list[Turn] = []
    for n, code in enumerate(blocks):
        place, before = folder / str(n), dict(namespace)
        source = (starts or [turn.folder for turn in turns])[n - 1] if n else None
        if source:
            shutil.copytree(source, place)
        else:
            place.mkdir(parents=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(place)
            exec(compile(code, f"example {n}", "exec"), namespace)
        made = {name: value for name, value in namespace.items() if value is not before.get(name)}
        turns.append(Turn(frames_of(made), place, is_ordered(code)))
    return turns


@pytest.fixture(scope="module", params=LIBRARIES)
def played(request, tmp_path_factory):
    run, folder = request.getfixturevalue(f"run_{request.param}"), tmp_path_factory.mktemp(f"moving_{request.param}")
    pairs = pairs_of(request.param)
    theirs = run_theirs(run, [pair.old for pair in pairs], folder / "theirs")
    mixed = run_ours([pair.new for pair in pairs], folder / "mixed", [turn.folder for turn in theirs])
    ours = run_ours([pair.new for pair in pairs], folder / "ours")
    (back,) = run_theirs(run, [pairs[-1].old], folder / "back", ours[-2].folder)
    return Played(theirs, mixed, ours, back)


def assert_same_frames(turn, other):
    assert set(turn.frames) == set(other.frames)
    for name, frames in turn.frames.items():
        assert len(frames) == len(other.frames[name]), name
        assert all(len(frame) for frame in frames), name
        for mine, theirs in zip(frames, other.frames[name], strict=True):
            assert difference(actual_columns(theirs), actual_columns(mine), ordered=turn.ordered) is None, name


def store_of(folder):
    """The store that the examples of a turn have left."""
    return next(folder / name for name in STORES.values() if (folder / name).exists())


def datasets(folder):
    """Every dataset of a store, read by us."""
    store = store_of(folder)
    uuids = sorted(path.name.removesuffix(".by-dataset-metadata.json") for path in store.glob("*.json"))
    return {uuid: read_table(uuid, store) for uuid in uuids}


@pytest.mark.interop
def test_old_and_new_examples_make_the_same_frames(played):
    assert sum(bool(turn.frames) for turn in played.theirs) >= 4
    for mixed, ours, theirs in zip(played.mixed, played.ours, played.theirs, strict=True):
        assert_same_frames(mixed, theirs)
        assert_same_frames(ours, theirs)


@pytest.mark.interop
def test_old_and_new_examples_leave_the_same_datasets(played):
    # The first examples only import.
    for mixed, theirs in zip(played.mixed[1:], played.theirs[1:], strict=True):
        mine, expected = datasets(mixed.folder), datasets(theirs.folder)
        assert list(mine) == list(expected) != []
        for uuid, frame in mine.items():
            assert difference(actual_columns(expected[uuid]), actual_columns(frame), ordered=False) is None, uuid


@pytest.mark.interop
def test_the_old_library_reads_what_the_new_examples_wrote(played):
    assert_same_frames(played.back, played.ours[-1])


@pytest.mark.interop
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_old_name_exists_and_none_is_missing(request, library):
    listed = {f"{library}.{module}": names for module, names in names_of(library).items()}
    modules = [f"{library}.{module}" for module in PUBLIC[library].split()]
    unknown, public = request.getfixturevalue(f"run_{library}")(
        NAMES, json.dumps(list(listed.items())), json.dumps(modules)
    )
    assert unknown == []
    dask = section("From dask")
    missing = [
        f"{module}.{name}"
        for module, names in public.items()
        for name in names
        if name not in listed.get(module, []) and f"`{name}`" not in dask
    ]
    assert missing == []


@pytest.mark.interop
def test_check_migration_says_what_differs_in_stores_of_the_old_libraries(played, request):
    """Nothing but what is known of these examples: cells that a later file has corrected, days in a
    column of dates.
    """
    from kartothek_cube import check_migration, open_store

    is_plateau = request.node.callspec.params["played"] == "plateau"
    for turn, checks in (
        [(2, set()), (3, {"several-files", "overridden-cells", "members"})]
        if not is_plateau
        else [(1, set()), (4, {"date-column"})]
    ):
        verdicts = check_migration(open_store(store_of(played.theirs[turn].folder)), deep=True).verdicts
        assert {remark.check for verdict in verdicts for remark in verdict.remarks if remark.weight != "note"} == checks
        assert {verdict.outcome for verdict in verdicts} == {"equal"} | ({"different"} if checks else set())


@pytest.mark.interop
def test_our_first_commit_to_a_dataset_of_theirs_can_be_taken_back(played, tmp_path):
    turn = next(turn for turn in played.theirs[1:] if "visits" in datasets(turn.folder))
    store = shutil.copytree(store_of(turn.folder), tmp_path / "store")
    before = read_table("visits", store)
    update_dataset_from_dataframes([before[:1].assign(UNITS=99)], store, "visits")
    assert 99 in set(read_table("visits", store)["UNITS"])
    undo("visits", store)
    assert read_table("visits", store).equals(before)
