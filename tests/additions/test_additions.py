"""Additions take the files that they should: each is made in a copy of the sources, and used in every way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src" / "hloom"


def copied(folder: Path) -> Path:
    """A copy of the sources, which the additions change."""
    return Path(shutil.copytree(SOURCE, folder / "hloom", ignore=shutil.ignore_patterns("__pycache__")))


def run(package: Path, script: str) -> str:
    """Return the output of a program that imports the copy, in a process of its own, without a cache."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "HLOOM_CACHE": "0"}
    done = subprocess.run(
        [sys.executable, HERE / script], env=environment, capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_an_operation_with_an_emitter_takes_two_files_and_a_line(tmp_path: Path) -> None:
    """A declaration, and an emitter, which a line names by the opcode."""
    package = copied(tmp_path)
    with (package / "cpu" / "emitters.py").open("a") as file:
        file.write('KERNELS.imported_from("hloom.cpu.kernels.outer_kernel", "outer-sum")\n')
    shutil.copy(HERE / "outer_operation.py", package / "operations" / "outer_operation.py")
    shutil.copy(HERE / "outer_kernel.py", package / "cpu" / "kernels" / "outer_kernel.py")
    assert run(package, "use_operation.py") == f"used {package}\n"


def test_a_movement_takes_one_file(tmp_path: Path) -> None:
    """Its declaration, from which it is evaluated, planned and emitted."""
    package = copied(tmp_path)
    shutil.copy(HERE / "rotate_operation.py", package / "operations" / "rotate_operation.py")
    assert run(package, "use_movement.py") == f"used {package}\n"


def test_an_element_type_takes_two_files(tmp_path: Path) -> None:
    """Its declaration, from whose numpy dtype the rest follows, and the schema, here as generated from it."""
    package = copied(tmp_path)
    file = package / "shape" / "element_type.py"
    declared = file.read_text()
    changed = declared.replace('F8E3M4 = _number("f8e3m4", 29,', 'F8NEW = _number("f8new", 40,')
    assert changed != declared
    file.write_text(changed)
    schema = package / "proto" / "schema" / "schema.binpb"
    files = FileDescriptorSet.FromString(schema.read_bytes())
    (data,) = (f for f in files.file if f.name.endswith("xla_data.proto"))
    (value,) = (v for e in data.enum_type for v in e.value if v.name == "F8E3M4")
    value.name, value.number = "F8NEW", 40
    (field,) = (f for m in data.message_type for f in m.field if f.name == "f8e3m4s")
    field.name, field.json_name = "f8news", "f8news"
    schema.write_bytes(files.SerializeToString())
    assert run(package, "use_element_type.py") == f"used {package}\n"


def test_a_function_of_pjrt_takes_a_line(tmp_path: Path) -> None:
    """What it returns, by the path to it; the code of the copy has it, and the interface's table finds it."""
    package = copied(tmp_path)
    file = package / "jax" / "pjrt" / "routines" / "getters.py"
    line = "Client_ProcessIndex process_index=client.process\n"
    file.write_text(file.read_text().replace(line, f"{line}Device_PoisonExecution poisoned=device.is_own\n"))
    assert run(package, "use_pjrt_function.py") == f"used {package}\n"
