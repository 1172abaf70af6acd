"""Annotations: typed facts about single instructions, by which one pass of a pipeline speaks to the next.

A backend config is text that came with a program, perhaps from another compiler and perhaps from before the
program was changed: a hint at best. An annotation is established by a pass of this process from the program
as it is. It has no text and no proto form, is never read from either, and is not copied by a clone: a pass
that copies an instruction knows if the fact holds for the copy, and then annotates it anew.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Annotation:
    """The base of all annotations; an instruction holds at most one of each class."""
