"""Annotations: typed facts about single instructions, passed from one pass of a pipeline to later ones.

A backend config is text that came with the program, perhaps from another compiler or from before the program
was changed, so it is only a hint. An annotation is established by a pass of this process from the program as
it is. It has no text and no proto form and is not copied by a clone: a pass that copies an instruction
annotates the copy if the fact holds for it too.
"""

from __future__ import annotations

from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class Annotation:
    """Base class of all annotations; an instruction holds at most one of each class."""
