"""The data model of values: element types, shapes, layouts, indices into them, and literals."""
