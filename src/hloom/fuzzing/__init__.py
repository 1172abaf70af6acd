"""Differential fuzzing: random valid programs on XLA, on native code or after passes, and on the evaluator.

::

    from hloom.fuzzing.child import Child
    from hloom.fuzzing.session import Session

    with Child("xla") as subject:
        Session(subject, "xla", Path("fuzz-xla")).run(minutes=60)

`generators` draws programs, `campaign` compares them, `known` has the differences that are understood,
`causes` reduces and bisects the others, and `pages` describes them. A `Session` does all of it in a folder.
"""
