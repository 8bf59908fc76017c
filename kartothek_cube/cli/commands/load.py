"""The commands `build`, `append` and `extend`: cubes from files of CSV and Parquet.

In order:

- the commands
- files, folders of Hive and globs as datasets of Arrow
- what is shown before anything is written
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from glob import glob
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

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
from kartothek_cube.errors import Unsupported, one_line

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.dataset import FileFormat, FileSystemDataset

    from kartothek_cube.api.dataset import DatasetMetadata
    from kartothek_cube.core.stores.contract import Store
    from kartothek_cube.cube.cube import Cube

F = TypeVar("F", bound=Callable[..., Any])
Columns = Mapping[str, "pa.Schema"]
Check = Callable[[Columns, dict[str, list[str]]], object]
Write = Callable[[Iterator[dict[str, "pa.Table"]], dict[str, list[str]]], "Mapping[str, DatasetMetadata]"]

_SUFFIXES = (".parquet", ".csv")
# Types of CSV are found in the first block of each file; rows come in smaller ones.
_BLOCK, _BLOCK_OF_ROWS = 16 * 2**20, 4 * 2**20
# The name of a folder whose rows have no value.
_NULL = "__HIVE_DEFAULT_PARTITION__"


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
    from kartothek_cube.cube.write.stage import begin_datasets

    with working(session), loading(session) as store:
        columns = {"dimension_columns": _names(dimension), "partition_columns": _names(partition)}
        cube = Cube(uuid_prefix=session.prefix, index_columns=_names(index), seed_dataset=seed, **columns)
        sources = read_sources({seed: files}, named, {})
        check_columns(sources[seed], [*cube.dimension_columns, *cube.partition_columns, *sorted(cube.index_columns)])

    def write(rows: Iterator[dict[str, pa.Table]], partition_on: dict[str, list[str]]) -> Mapping[str, DatasetMetadata]:
        return build_cube(rows, cube, store, partition_on=partition_on)

    def check(columns: Columns, partition_on: dict[str, list[str]]) -> object:
        return begin_datasets(cube, store, columns, None, False, partition_on, None, "raise", extends=False)(columns)

    perform(session, store, cube, sources, check, write, dry_run=dry_run, yes=yes)


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
    from kartothek_cube.cube.write.stage import begin_append

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

    def check(columns: Columns, _: dict[str, list[str]]) -> object:
        return begin_append(loaded.cube, loaded.store, None, None)(columns)

    perform(session, loaded.store, loaded.cube, sources, check, write, dry_run=dry_run, yes=yes)


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
    from kartothek_cube.cube.write.stage import begin_datasets

    with working(session):
        loaded = load_cube(session)
        # Columns of the cube have its types, so that rows are found.
        cells = [*loaded.cube.dimension_columns, *loaded.cube.partition_columns]
        known = pa.schema({name: loaded.types[name] for name in cells})
        sources = read_sources({dataset: files}, named, {}, known)

    def write(rows: Iterator[dict[str, pa.Table]], partition_on: dict[str, list[str]]) -> Mapping[str, DatasetMetadata]:
        return extend_cube(rows, loaded.cube, loaded.store, partition_on=partition_on)

    def check(columns: Columns, partition_on: dict[str, list[str]]) -> object:
        cube, store = loaded.cube, loaded.store
        return begin_datasets(cube, store, columns, None, False, partition_on, None, "raise", extends=True)(columns)

    perform(session, loaded.store, loaded.cube, sources, check, write, dry_run=dry_run, yes=yes)


def _names(texts: Sequence[str]) -> list[str]:
    return [part for text in texts for part in parts_of(text) if part]


# --- files ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class File:
    """A file: its own columns, and the texts of its folders that are called column=value."""

    path: str
    suffix: str
    folders: Mapping[str, str | None]
    schema: pa.Schema

    def batches(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows; CSV has the types of the dataset, Parquet its own."""
        import pyarrow as pa

        own = self.schema
        if self.suffix == ".csv":
            own = pa.schema([schema.field(column) for column in own.names])
        # Few batches at once: memory does not grow with rows.
        yield from opened_file(self.path, self.suffix, own).to_batches(batch_readahead=2, fragment_readahead=1)


@dataclass(frozen=True, slots=True)
class Source:
    """The rows of one dataset: its files in order, and the type of each column."""

    name: str
    parts: tuple[File, ...]
    schema: pa.Schema

    @property
    def files(self) -> int:
        """The number of files."""
        return len(self.parts)

    def tables(self) -> Iterator[pa.Table]:
        """The rows piece by piece; the first piece has none, for files without rows."""
        import pyarrow as pa

        yield self.schema.empty_table()
        for part in self.parts:
            added = [f for f in self.schema if f.name not in part.schema.names]
            try:
                for batch in part.batches(self.schema):
                    if batch.num_rows:
                        rows = pa.Table.from_batches([batch])
                        for field in added:
                            rows = rows.append_column(field, self.constant(part, field, rows.num_rows))
                        yield rows.select(self.schema.names)
            except pa.ArrowException as error:
                raise self._unreadable(part, error) from error

    def constant(self, part: File, field: pa.Field, count: int) -> pa.Array:
        """A column that a file lacks: the text of its folder, else nulls."""
        import pyarrow as pa

        text = part.folders.get(field.name)
        if text is None:
            return pa.nulls(count, field.type)
        try:
            return pa.repeat(pa.array([text]).cast(field.type)[0], count)
        except pa.ArrowException as error:
            raise Failure(
                f"Column {field.name} of dataset {self.name} is {field.type}, but the folder of {part.path} "
                f"is called {field.name}={text}: {one_line(error)}. Rename the folder."
            ) from error

    def check(self) -> None:
        """Refuse what `tables` would refuse, as far as types and folders tell it."""
        import pyarrow as pa

        def unsupported(data_type: pa.DataType) -> bool:
            return pa.types.is_nested(data_type) or pa.types.is_duration(data_type)

        for part, field in product(self.parts, self.schema):
            if field.name in part.folders:
                self.constant(part, field, 1)
            elif part.suffix == ".csv" and field.name in part.schema.names and unsupported(field.type):
                raise Failure(
                    f"Column {field.name} of {part.path} cannot be read as {field.type}, its type in dataset "
                    f"{self.name}: CSV has no such values. Give it in Parquet."
                )

    def _unreadable(self, part: File, error: pa.ArrowException) -> Failure:
        text = one_line(error).rstrip(".")
        at = re.search(r"In CSV column #(\d+): ?(.*)", text)
        if at is None:
            return Failure(f"Could not read {part.path} for dataset {self.name}: {text}. Nothing of it is visible.")
        field = self.schema.field(part.schema.names[int(at[1])])
        return Failure(
            f"Column {field.name} of {part.path} cannot be read as {field.type}, its type in dataset {self.name}: "
            f"{at[2]}. Correct the file, or give it in Parquet. Nothing of it is visible."
        )


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

    # A column without values has no type yet: its first values give it one.
    types = {} if known is None else {f.name: f.type for f in known if not pa.types.is_null(f.type)}
    parts = [read_file(*file, types) for path in paths for file in files_in(path)]
    for part in parts:
        if part.suffix == ".parquet":
            add_types(name, part, types, () if known is None else known.names)
    add_found_types(name, parts, types)
    columns = dict.fromkeys(column for part in parts for column in (*part.schema.names, *part.folders))
    source = Source(name, tuple(parts), pa.schema({column: types.get(column, pa.null()) for column in columns}))
    source.check()
    return source


def add_types(name: str, part: File, types: dict[str, pa.DataType], known: Collection[str]) -> None:
    """Widen types by those of a Parquet file: no value changes, so that families have to agree."""
    from kartothek_cube.core.arrow.types import common_type, stored_type

    for field in part.schema:
        try:
            stored = stored_type(field.type)
        except Unsupported as error:
            raise Failure(f"Column {field.name} of {part.path}, for dataset {name}: {one_line(error)}") from error
        present = types.get(field.name, stored)
        common = common_type(present, stored)
        if common is None:
            where = f"in dataset {name}" if field.name in known else f"in other files of dataset {name}"
            raise Failure(
                f"Column {field.name} of {part.path} is {stored}, but {present} {where}. Cast it to {present} first."
            )
        types[field.name] = common


def add_found_types(name: str, parts: Sequence[File], types: dict[str, pa.DataType]) -> None:
    """Add the types that Arrow finds in CSV, and those of folders, for columns that have none."""
    import pyarrow as pa

    found: dict[str, pa.DataType] = {}
    folders = folder_types(parts)
    for part in parts:
        fields = [*(part.schema if part.suffix == ".csv" else ()), *(folders.field(c) for c in part.folders)]
        for field in (field for field in fields if field.name not in types):
            before = found.get(field.name, field.type)
            try:
                both = [pa.schema({field.name: one}) for one in (before, field.type)]
                found[field.name] = pa.unify_schemas(both, promote_options="permissive").field(0).type
            except pa.ArrowException as error:
                raise Failure(
                    f"The files of dataset {name} do not have the same types: column {field.name} of {part.path} "
                    f"is {field.type}, but {before} in other files. Correct the files, or give them in Parquet."
                ) from error
    types |= found


def folder_types(parts: Sequence[File]) -> pa.Schema:
    """Whole numbers if their texts are those of the numbers, else texts: 01 stays 01."""
    import pyarrow as pa

    texts: dict[str, set[str]] = {column: set() for part in parts for column in part.folders}
    for part in parts:
        for column, text in part.folders.items():
            texts[column].update(() if text is None else (text,))

    def is_number(text: str) -> bool:
        return bool(re.fullmatch("0|-?[1-9][0-9]{0,9}", text)) and -(2**31) <= int(text) < 2**31

    return pa.schema(
        {c: pa.int32() if found and all(map(is_number, found)) else pa.string() for c, found in texts.items()}
    )


def files_in(path: str) -> Iterator[tuple[str, str]]:
    """What a file, a folder or a glob has: each file, with the folder below which it was found."""
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
        yield file, base


def _is_hidden(path: Path, base: str) -> bool:
    """Whether a file or a folder below the base is no data, by its name: logs, markers."""
    return any(part.startswith(("_", ".")) for part in path.relative_to(base).parts)


def read_file(path: str, base: str, types: Mapping[str, pa.DataType]) -> File:
    """The columns of a file; below ``base``, if there is one, folders are called column=value."""
    import pyarrow as pa

    suffix = Path(path).suffix.lower()
    above = [part.partition("=") for part in Path(path).relative_to(base).parent.parts] if base else []
    folders = {
        unquote(column): None if text == _NULL else unquote(text) for column, sign, text in above if column and sign
    }
    try:
        schema = opened_file(path, suffix, found=types).schema
    except (pa.ArrowException, OSError, ValueError) as error:
        raise Failure(f"Could not read {path}: {one_line(error)}") from error
    twice = [column for column in schema.names if schema.names.count(column) > 1]
    if twice:
        raise Failure(f"{path} has several columns {twice[0]}. Rename all but one.")
    both = [column for column in schema.names if column in folders]
    if both:
        raise Failure(f"Column {both[0]} is both in {path} and in the name of its folder. Remove it from the file.")
    return File(path, suffix, folders, schema.remove_metadata())


def opened_file(
    path: str, suffix: str, schema: pa.Schema | None = None, *, found: Mapping[str, pa.DataType] | None = None
) -> FileSystemDataset:
    """A file in a schema; without one, columns of CSV get the types that Arrow finds.

    Columns in ``found`` have a type already, so that none is looked for.
    """
    import pyarrow as pa
    from pyarrow import csv, fs
    from pyarrow import dataset as ds

    file_format: FileFormat = ds.ParquetFileFormat()
    if suffix == ".csv":
        # As `query --output` writes them: a text in quotes is no null, and `NA` is a text.
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(found or (), pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(block_size=_BLOCK if schema is None else _BLOCK_OF_ROWS)
        parse = csv.ParseOptions(newlines_in_values=True)
        file_format = ds.CsvFileFormat(
            read_options=read,
            convert_options=convert,
            parse_options=parse,
        )
    options = ds.FileSystemFactoryOptions()
    factory = ds.FileSystemDatasetFactory(fs.LocalFileSystem(), [path], file_format, options)
    return factory.finish(schema or factory.inspect_schemas()[0])


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
    check: Check,
    write: Write,
    *,
    dry_run: bool,
    yes: bool,
) -> None:
    """Check and show what would be written, ask, write, and show what was written."""
    import pyarrow as pa

    from kartothek_cube.core.arrow.types import stored_schema

    partition_on = {name: [c for c in cube.partition_columns if c in s.schema.names] for name, s in sources.items()}
    with working(session):
        # A plan that is shown is one that the call accepts, as far as columns tell it.
        check({name: stored_schema(source.schema) for name, source in sources.items()}, partition_on)
    if dry_run:
        plan = {"dry_run": True, "datasets": {name: description_of(cube, source) for name, source in sources.items()}}
        show(session, plan, lambda: plan_lines(cube, sources))
        return
    if not (yes or session.json):
        for line in plan_lines(cube, sources):
            echo(line)
    files = pluralize(sum(source.files for source in sources.values()), "file")
    confirm(f"Write {files} to cube {session.prefix}?", store, yes=yes)
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
