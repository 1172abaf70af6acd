"""How a value is split over devices."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.ir.cursor import Cursor


@dataclass(frozen=True, slots=True)
class Sharding:
    """A sharding, kept as its text."""

    text_form: str

    @classmethod
    def parse(cls, cursor: Cursor) -> Sharding:
        """``{devices=[2,1]<=[2]}`` and its kin."""
        return cls(cursor.braced_text())

    def text(self) -> str:
        """The sharding as XLA prints it."""
        return self.text_form
