"""The commands `build`, `append` and `extend`: cubes from files of CSV and Parquet.

In order:

- the commands
- files, folders of Hive and globs as datasets of Arrow
- what is shown before anything is written
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kartothek_cube.cli.context import (
    Failure,
    Session,
    complete_files,
    is_glob,
    load_cube,
    loading,
    missing,
    working,
)
from kartothek_cube.cli.options import cube_command, dry_run, parts_of, yes
from kartothek_cube.cli.output import bold, confirm, echo, show, table
from kartothek_cube.core.arguments import did_you_mean, pluralize
from kartothek_cube.errors import one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import FileFormat, FileSystemDataset

    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.stores.contract import Store
    from kartothek_cube.cube.cube import Cube

F = TypeVar("F", bound=Callable[..., Any])
Write = Callable[[Iterator[dict[str, "pa.Table"]], dict[str, list[str]]], "Mapping[str, DatasetMetadata]"]

_SUFFIXES = {".parquet": "parquet", ".csv": "csv"}
# Types of CSV are found in the first block of each file.
_BLOCK = 16 * 2**20


def _files(*, required: bool) -> Callable[[F], F]:
    return click.argument("files", nargs=-1, required=required, metavar="FILE...", shell_complete=complete_files)


def _column_list(flag: str, text: str, *, required: bool = False) -> Callable[[F], F]:
    return click.option(flag, multiple=True, required=required, metavar="<columns>", help=text)


def _reading(function: F) -> F:
    """``--dataset``, ``--dry-run`` and ``--yes``."""
    named = click.option(
        "--dataset",
        "named",
        multiple=True,
        metavar="<name>=<file>",
        shell_complete=complete_files,
        help="A file, folder or glob of another dataset; may be given several times.",
    )
    return named(dry_run("Only show what would be written: columns with their types.")(yes(function)))


@cube_command(
    "build",
    "sales.csv --dimension ID,WEEK --partition COUNTRY",
    "'*.parquet' --dimension ID --partition COUNTRY",
)
@_files(required=True)
@_column_list("--dimension", "Columns that address a cell, separated by commas, in order.", required=True)
@_column_list("--partition", "Columns whose values are the folders.", required=True)
@_column_list("--index", "Columns with a secondary index.")
@click.option("--seed", default="seed", show_default=True, metavar="<name>", help="The dataset of the FILEs.")
@_reading
@click.pass_obj
def build_command(
    session: Session,
    files: tuple[str, ...],
    dimension: tuple[str, ...],
    partition: tuple[str, ...],
    index: tuple[str, ...],
    seed: str,
    named: tuple[str, ...],
    dry_run: bool,
    yes: bool,
) -> None:
    """Build the cube from files.

    A FILE ends in .parquet or .csv, is a folder of such files, whose subfolders may be called
    column=value, or a glob in quotes. Files may be larger than memory. Types are those of Parquet,
    and for CSV those that Arrow finds. On a terminal they are shown, and it asks before anything is
    written.
    """
    from kartothek_cube.cube.cube import Cube
    from kartothek_cube.cube.verbs.write import build_cube

    with working(session), loading(session) as store:
        columns = {"dimension_columns": _names(dimension), "partition_columns": _names(partition)}
        cube = Cube(uuid_prefix=session.prefix, index_columns=_names(index), seed_dataset=seed, **columns)
        sources = read_sources({seed: files}, named, {})
        check_columns(sources[seed], [*cube.dimension_columns, *cube.partition_columns, *sorted(cube.index_columns)])

    def write(rows: Iterator[dict[str, pa.Table]], partition_on: dict[str, list[str]]) -> Mapping[str, DatasetMetadata]:
        return build_cube(rows, cube, store, partition_on=partition_on)

    perform(session, store, cube, sources, write, dry_run=dry_run, yes=yes)


@cube_command("append", "monday.csv", "'2024-*.parquet' --dataset prices=prices.csv")
@_files(required=False)
@_reading
@click.pass_obj
def append_command(session: Session, files: tuple[str, ...], named: tuple[str, ...], dry_run: bool, yes: bool) -> None:
    """Add the rows of files to the seed, and to other datasets.

    A cell that exists gets a newer row. FILEs are those of `build`; CSV is read in the types of the
    dataset.
    """
    from kartothek_cube.cube.verbs.write import append_to_cube

    if not (files or named):
        raise click.UsageError("Missing argument 'FILE...'.")
    with working(session):
        loaded = load_cube(session)
        schemas = {name: dataset.snapshot.schema for name, dataset in loaded.datasets.items()}
        sources = read_sources({loaded.cube.seed_dataset: files} if files else {}, named, schemas)
        for name in sources:
            if name not in schemas:
                raise missing("dataset", name, schemas)

    def write(rows: Iterator[dict[str, pa.Table]], _: dict[str, list[str]]) -> Mapping[str, DatasetMetadata]:
        return append_to_cube(rows, loaded.cube, loaded.store)

    perform(session, loaded.store, loaded.cube, sources, write, dry_run=dry_run, yes=yes)


@cube_command("extend", "prices prices.csv", "stock 'stock/*.parquet' --dry-run")
@click.argument("dataset", metavar="DATASET")
@_files(required=True)
@_reading
@click.pass_obj
def extend_command(
    session: Session, dataset: str, files: tuple[str, ...], named: tuple[str, ...], dry_run: bool, yes: bool
) -> None:
    """Add a new DATASET to the cube, from files.

    FILEs are those of `build`. The dataset is partitioned by those partition columns of the cube
    that it has.
    """
    import pyarrow as pa

    from kartothek_cube.cube.verbs.write import extend_cube

    with working(session):
        loaded = load_cube(session)
        # Columns of the cube have its types, so that rows are found.
        cells = [*loaded.cube.dimension_columns, *loaded.cube.partition_columns]
        known = pa.schema({name: loaded.types[name] for name in cells})
        sources = read_sources({dataset: files}, named, {}, known)

    def write(rows: Iterator[dict[str, pa.Table]], partition_on: dict[str, list[str]]) -> Mapping[str, DatasetMetadata]:
        return extend_cube(rows, loaded.cube, loaded.store, partition_on=partition_on)

    perform(session, loaded.store, loaded.cube, sources, write, dry_run=dry_run, yes=yes)


def _names(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in parts_of(text) if part]


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of one dataset: what Arrow reads, in which order, and in which types."""

    parts: tuple[FileSystemDataset, ...]
    schema: pa.Schema

    @property
    def files(self) -> int:
        """The number of files."""
        return sum(len(part.files) for part in self.parts)

    def tables(self) -> Iterator[pa.Table]:
        """The rows piece by piece; the first piece has none, for files without rows."""
        import pyarrow as pa

        yield self.schema.empty_table()
        for part in self.parts:
            for batch in part.to_batches():
                if batch.num_rows:
                    rows = pa.Table.from_batches([batch])
                    missing_columns = [f for f in self.schema if f.name not in rows.column_names]
                    for field in missing_columns:
                        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
                    yield rows.select(self.schema.names).cast(self.schema)


def read_sources(
    given: Mapping[str, Sequence[str]],
    named: Sequence[str],
    schemas: Mapping[str, pa.Schema],
    cells: pa.Schema | None = None,
) -> dict[str, Source]:
    """The files of each dataset; nothing is read but types.

    ``schemas`` are those of datasets that exist, ``cells`` has types of columns of any dataset.

    Raises
    ------
    Failure
        If a file is missing, cannot be read or does not fit the others of its dataset.
    """
    paths = {name: [*files] for name, files in given.items()}
    for text in named:
        name, sign, path = text.partition("=")
        if not (name and sign and path):
            raise click.UsageError(f"Invalid value for '--dataset': {text!r} is not <name>=<file>.")
        paths.setdefault(name, []).append(path)
    return {name: source_of(name, files, schemas.get(name, cells)) for name, files in paths.items()}


def source_of(name: str, paths: Sequence[str], known: pa.Schema | None) -> Source:
    """The files of one dataset; errors as of `read_sources`."""
    import pyarrow as pa

    parts = [part for path in paths for part in datasets_in(path, known)]
    schemas = [_plain(part.schema) for part in parts]
    try:
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        if known is not None:
            schema = pa.schema([known.field(f.name) if f.name in known.names else f for f in schema])
    except pa.ArrowException as error:
        raise Failure(f"The files of dataset {name} do not have the same types: {one_line(error)}") from error
    return Source(tuple(parts), schema)


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata of files, and without dictionaries of folder names."""
    import pyarrow as pa

    types = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in schema}
    return pa.schema(types)


def datasets_in(path: str, known: pa.Schema | None) -> Iterator[FileSystemDataset]:
    """What a file, a folder or a glob has: one dataset for each format."""
    found, base = [path], ""
    if Path(path).is_dir():
        base = path
        found = [str(p) for p in sorted(Path(path).rglob("*")) if p.is_file() and not _is_hidden(p, base)]
        found = [p for p in found if Path(p).suffix.lower() in _SUFFIXES]
    elif is_glob(path) and not Path(path).exists():
        parts = Path(path).parts
        first = next(i for i, part in enumerate(parts) if is_glob(part))
        base = str(Path(*parts[:first]))
        listed = sorted(glob(path, recursive=True))  # noqa: PTH207 - paths may be absolute
        found = [p for p in listed if Path(p).is_file() and not _is_hidden(Path(p), base)]
    if not found:
        raise Failure(f"There is no file of CSV or Parquet in {path}.")
    for file in found:
        if Path(file).suffix.lower() not in _SUFFIXES:
            raise Failure(f"A file ends in .parquet or .csv, not {file}.")
        if not Path(file).exists():
            raise Failure(f"There is no file {file}.")
    for suffix, name in _SUFFIXES.items():
        files = [file for file in found if Path(file).suffix.lower() == suffix]
        if files:
            yield opened_files(files, name, base, known)


def _is_hidden(path: Path, base: str) -> bool:
    """Whether a file or a folder below the base is no data, by its name: logs, markers."""
    return any(part.startswith(("_", ".")) for part in path.relative_to(base).parts)


def opened_files(files: Sequence[str], name: str, base: str, known: pa.Schema | None) -> FileSystemDataset:
    """Files of one format; below ``base``, if there is one, folders are called column=value."""
    import pyarrow as pa
    from pyarrow import csv, fs
    from pyarrow import dataset as ds

    file_format: FileFormat = ds.ParquetFileFormat()
    if name == "csv":
        # As `query --output` writes them: a text in quotes is no null, and `NA` is a text.
        convert = csv.ConvertOptions(
            column_types={} if known is None else {f.name: f.type for f in known},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(block_size=_BLOCK)
        file_format = ds.CsvFileFormat(read_options=read, convert_options=convert)
    options = ds.FileSystemFactoryOptions()
    if base:
        options.partitioning_factory = ds.HivePartitioning.discover()
        options.partition_base_dir = base
    try:
        factory = ds.FileSystemDatasetFactory(fs.LocalFileSystem(), list(files), file_format, options)
        return factory.finish(pa.unify_schemas(factory.inspect_schemas(), promote_options="permissive"))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Failure(
            f"Could not read {files[0] if len(files) == 1 else base or files[0]}: {one_line(error)}"
        ) from error


# --- what is shown --------------------------------------------------------------------------------


def check_columns(source: Source, columns: Sequence[str]) -> None:
    """Raise `Failure` if the seed lacks a column of the cube."""
    lacking = [column for column in columns if column not in source.schema.names]
    if lacking:
        hint = did_you_mean(lacking[:1], source.schema.names)
        raise Failure(f"The files have no column {lacking[0]}. They have {', '.join(source.schema.names)}.{hint}")


def perform(
    session: Session,
    store: Store,
    cube: Cube,
    sources: Mapping[str, Source],
    write: Write,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Show what would be written, ask, write, and show what was written."""
    import pyarrow as pa

    if dry_run:
        plan = {"dry_run": True, "datasets": {name: description_of(cube, source) for name, source in sources.items()}}
        show(session, plan, lambda: plan_lines(cube, sources))
        return
    if not (yes or session.json):
        for line in plan_lines(cube, sources):
            echo(line)
    files = pluralize(sum(source.files for source in sources.values()), "file")
    confirm(f"Write {files} to cube {session.prefix}?", store, yes=yes)
    partition_on = {name: [c for c in cube.partition_columns if c in s.schema.names] for name, s in sources.items()}
    rows = ({name: rows} for name, source in sources.items() for rows in source.tables())
    with working(session):
        try:
            written = write(rows, partition_on)
        except (pa.ArrowException, OSError) as error:
            raise Failure(f"Could not read the files: {one_line(error)}. Nothing of them is visible.") from error
    done = {name: {"partitions": len(each.snapshot.partitions)} for name, each in sorted(written.items())}
    show(session, {"dry_run": False, "datasets": done}, partial(done_lines, done))


def description_of(cube: Cube, source: Source) -> dict[str, Any]:
    """The files and columns of a dataset as plain values."""
    from kartothek_cube.core.arrow.types import stored_type

    by_role = {"index": cube.index_columns, "dimension": cube.dimension_columns, "partition": cube.partition_columns}
    roles = {column: role for role, names in by_role.items() for column in names}
    columns = [
        {"name": f.name, "type": str(stored_type(f.type)), "role": roles.get(f.name, "payload")} for f in source.schema
    ]
    return {"files": source.files, "columns": columns}


def plan_lines(cube: Cube, sources: Mapping[str, Source]) -> Iterator[str]:
    """Datasets with their files and columns, as text."""
    for name, source in sources.items():
        described = description_of(cube, source)
        yield f"{bold(f'{name}:')} {pluralize(described['files'], 'file')}"
        rows = [(column["name"], column["type"], column["role"]) for column in described["columns"]]
        yield from (f"  {line}" for line in table(["column", "type", "is"], rows))


def done_lines(done: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """One line a dataset."""
    for name, each in done.items():
        yield f"{bold(f'{name}:')} {pluralize(each['partitions'], 'partition')}"
