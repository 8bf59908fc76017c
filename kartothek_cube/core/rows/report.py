"""The result of a change of rows, as a value that explains itself. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kartothek_cube.core.arguments import pluralize
from kartothek_cube.core.display import (
    Explanation,
    Markup,
    Step,
    StepRow,
    details,
    escape,
    first_files,
    in_notebook,
    render,
    table_cell,
)

__all__ = ["RowsReport"]


@dataclass(frozen=True, slots=True, eq=False)
class RowsReport:
    """What a change of rows did, or with ``dry_run`` would do.

    Attributes
    ----------
    dataset : str
        The dataset.
    matched : int
        Rows of the dataset that satisfied the predicates, or had a key of the source.
    deleted, updated, inserted : int
        Rows that are gone, that have new values, and that are new.
    files_rewritten : int
        Files that another file replaced, with the rows that stay.
    files_added : int
        Files of inserted rows, and of rows that moved to another partition; 0 in a dry run.
    files_removed : int
        Files of which no row stays.
    files_untouched : int
        All other files. They may have been read, but no row of them changes.
    bytes : int
        Size of the new files; in a dry run the size of the files that would be rewritten.
    commit : str or None
        Id of the commit; None if nothing was written.
    dry_run : bool
        Nothing was written.
    files : tuple of str
        Keys of the files that were rewritten or removed.

    Examples
    --------
    >>> RowsReport("sales", 3, deleted=3, files_rewritten=1, files_untouched=9, dry_run=True)
    RowsReport('sales': 3 rows matched, 3 deleted; 1 file rewritten, 9 untouched; a dry run)
    """

    dataset: str
    matched: int = 0
    deleted: int = 0
    updated: int = 0
    inserted: int = 0
    files_rewritten: int = 0
    files_added: int = 0
    files_removed: int = 0
    files_untouched: int = 0
    bytes: int = 0
    commit: str | None = None
    dry_run: bool = False
    files: tuple[str, ...] = ()

    def explain(self, format: str = "text") -> str:  # noqa: A002 - the name users know from data frames
        """Explain the result, as ``"text"``, ``"html"`` or ``"json"``.

        Raises
        ------
        InvalidInput
            For another format.
        """
        if format == "text":
            return "\n".join(self._lines())
        if format == "html":
            return self._html()
        # Programs get all steps in the form of other plans and reports.
        return render(self._explanation(), format)

    def _figures(self) -> list[tuple[str, str, str]]:
        """What is counted, the count, and a remark; counts of 0 that say nothing are left out."""
        total = self.files_rewritten + self.files_removed + self.files_untouched
        rows = [
            ("rows deleted", self.deleted, ""),
            ("rows updated", self.updated, ""),
            ("rows inserted", self.inserted, ""),
            ("files rewritten", self.files_rewritten, "with the rows that stay"),
            ("files removed", self.files_removed, "no row stays"),
            ("files added", self.files_added, "of inserted and moved rows"),
        ]
        shown = [("rows matched", self.matched, ""), *(row for row in rows if row[1])]
        shown.append(("files untouched", self.files_untouched, f"of {total:,}"))
        size = "of the files to rewrite" if self.dry_run else "of the new files"
        figures = [(name, f"{count:,}", note) for name, count, note in shown]
        # Where files are only removed, or rows only added in a dry run, there is no size to tell.
        return [*figures, ("bytes", f"{self.bytes:,}", size)] if self.bytes else figures

    @property
    def _outcome(self) -> str:
        return self.commit or ("none, a dry run" if self.dry_run else "none, nothing to do")

    def _lines(self) -> list[str]:
        figures = self._figures()
        width = max(len(count) for _, count, _ in figures)
        lines = [f"Rows of dataset {self.dataset!r}", f"commit: {self._outcome}", ""]
        lines += [f"   {name:<15}  {count:>{width}}  {note}".rstrip() for name, count, note in figures]
        if self.files:
            lines += [
                "",
                f"{self._head_of_files}: {len(self.files):,}",
                *(f"   {key}" for key in first_files(self.files)),
            ]
        return lines

    @property
    def _head_of_files(self) -> str:
        return "Files that would be replaced or removed" if self.dry_run else "Files that were replaced or removed"

    def _html(self) -> str:
        head = f"<strong>{escape(f'Rows of dataset {self.dataset!r}')}</strong>"
        commit = f'<br><span class="q">commit:</span> <code>{escape(self._outcome)}</code>'
        rows = (
            f"<tr>{table_cell(name)}{table_cell(count, 'n')}{table_cell(note, 'q')}</tr>"
            for name, count, note in self._figures()
        )
        parts = [Markup(f"{head}{commit}<table><tbody>{''.join(rows)}</tbody></table>")]
        if self.files:
            keys = "<br>".join(f"<code>{escape(key)}</code>" for key in first_files(self.files))
            parts.append(details(f"{self._head_of_files}: {len(self.files):,}", Markup(keys)))
        return in_notebook(*parts)

    def _explanation(self) -> Explanation:
        """All counts, those of 0 as well, for programs."""
        facts = (("commit", self._outcome), ("bytes", f"{self.bytes:,}"))
        total = self.files_rewritten + self.files_removed + self.files_untouched
        rows = [(name, getattr(self, name)) for name in ("matched", "deleted", "updated", "inserted")]
        files = (
            StepRow("rewritten", self.files_rewritten, self.files_rewritten, "with the rows that stay"),
            StepRow("removed", self.files_removed, 0, "no row stays"),
            StepRow("added", 0, self.files_added, "inserted and moved rows"),
            StepRow("untouched", self.files_untouched, self.files_untouched, f"of {pluralize(total, 'file')}"),
        )
        steps = (
            Step("Rows", "rows", tuple(StepRow(name, None, count) for name, count in rows)),
            Step("Files", "files", files),
        )
        return Explanation(f"Rows of dataset {self.dataset!r}", facts, steps, self.files)

    def __repr__(self) -> str:
        rows = ", ".join(f"{n:,} {name}" for name in ("deleted", "updated", "inserted") if (n := getattr(self, name)))
        counts = (self.files_rewritten, "rewritten"), (self.files_added, "added"), (self.files_removed, "removed")
        files = [f"{pluralize(n, 'file')} {word}" for n, word in counts if n]
        parts = [f"{pluralize(self.matched, 'row')} matched" + (f", {rows}" if rows else "")]
        untouched = f"{self.files_untouched:,}" if files else pluralize(self.files_untouched, "file")
        parts.append(", ".join([*files, f"{untouched} untouched"]))
        parts.append(f"commit {self.commit}" if self.commit else "a dry run" if self.dry_run else "nothing to do")
        return f"RowsReport({self.dataset!r}: {'; '.join(parts)})"

    def _repr_html_(self) -> str:
        return self.explain("html")
