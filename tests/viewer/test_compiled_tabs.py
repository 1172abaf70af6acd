"""The viewer's passes, memory, time and code, in a browser."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import hloom
from hloom import HloModule
from hloom.dumps import largest_program
from hloom.errors import HloError
from hloom.tools.cli import main
from hloom.tools.viewer.compiled import compiled_parts
from hloom.tools.viewer.dump_folder import dumped_stages, folder_stages
from hloom.tools.viewer.page import page_parts
from tests.viewer.conftest import Viewed

WORKLOADS = Path(__file__).parents[2] / "examples" / "workloads"
PROGRAM = """HloModule model

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %s = f32[] add(%x, %y)
}

ENTRY %main (p: f32[64,64], q: f32[64,64]) -> f32[64] {
  %p = f32[64,64]{1,0} parameter(0)
  %q = f32[64,64]{1,0} parameter(1)
  %twice = f32[64,64]{1,0} add(%p, %p), metadata={op_name="jit(f)/first/add"}
  %again = f32[64,64]{1,0} add(%p, %p), metadata={op_name="jit(f)/second/add"}
  %product = f32[64,64]{1,0} dot(%twice, %q), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(f)/first/dot_general" source_file="model.py" source_line=12}
  %sum = f32[64,64]{1,0} multiply(%product, %again), metadata={op_name="jit(f)/second/mul"}
  %zero = f32[] constant(0)
  ROOT %r = f32[64]{0} reduce(%sum, %zero), dimensions={1}, to_apply=%add
}
"""


def test_passes_show_what_they_change(view: Callable[..., Path], viewed: Viewed) -> None:
    page = view(PROGRAM)
    viewed.open(page, "#tab=passes")
    stages = viewed.texts(".stages li > span")
    assert stages[0] == "model" and "after cse" in stages
    viewed.page.locator(".stages li", has_text="after cse").first.click()
    viewed.page.wait_for_selector(".line.removed")
    assert any("%again = " in line for line in viewed.texts(".line.removed"))
    assert any("multiply(%product, %twice)" in line for line in viewed.texts(".line.added"))
    viewed.press("g")
    assert viewed.texts("svg .node.changed.instruction .name") == ["multiply · sum"]
    viewed.press("[")
    before = stages[stages.index("after cse") - 1]
    viewed.page.wait_for_selector(f".stages li.chosen:has-text('{before}')", state="attached")


def test_changes_of_two_files(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM, PROGRAM.replace("multiply(", "subtract(")), "#tab=passes&program=1")
    assert [line.split("=")[0].split("%")[1].strip() for line in viewed.texts(".line.removed")] == ["sum"]
    assert "subtract" in viewed.texts(".line.added")[0]
    assert "+1 −1 lines" in viewed.texts("#tab-passes .hint")[0]


def test_memory_lists_what_is_live_at_the_peak(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM), "#tab=memory")
    memory: Any = compiled_parts(HloModule.from_text(PROGRAM))[1]["memory"]
    arena = memory["arena"]
    assert arena == hloom.compile(HloModule.from_text(PROGRAM)).memory.temp > 0
    head = viewed.texts("#tab-memory .bar-of-tab b")[0]
    assert head == f"arena {arena / 1000:.3g} kB"
    rows = viewed.texts(".peak td:first-child")
    assert rows and all(row == "16.4 kB" for row in rows if "kB" in row)
    viewed.page.locator(".peak tr").first.click()
    name = viewed.texts(".peak td b")[0]
    viewed.page.wait_for_selector(f"#details h2:has-text('{name}')")


def test_time_has_every_kernel(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM, options=("--random", "0")), "#tab=time")
    rows = viewed.texts(".times td:first-child")
    flames = viewed.texts(".flame title")
    assert len(rows) == len(set(rows)) > 0
    assert any(title.startswith("first: ") for title in flames)
    assert len(viewed.texts("circle.kernel title")) >= 1
    viewed.page.locator(".times td").first.click()
    viewed.page.wait_for_selector(f"#details h2:has-text('{rows[0]}')")
    assert "time" in viewed.texts("#details dt")
    viewed.press("g")
    viewed.page.locator("#scheme").select_option("time")
    assert "µs" in viewed.page.locator(".legend").text_content()


def test_code_of_the_chosen_kernel(view: Callable[..., Path], viewed: Viewed) -> None:
    page = view(PROGRAM)
    last = viewed_last(viewed, page)
    kernels = viewed.page.evaluate("hloom.parts('code').then(code => Object.entries(code.kernelOf))")
    instruction, function = kernels[0]
    viewed.page.goto("about:blank")
    viewed.open(page, f"#tab=text&program={last}&selected={instruction}")
    viewed.page.locator("#tab-text button", has_text="LLVM IR").click()
    assert re.search(rf"define .*@\"?{function}\"?\(", viewed.texts(".line")[0])
    viewed.page.locator("#tab-text button", has_text="assembly").click()
    assert function in viewed.texts(".line")[0]
    assert f"the kernel of %{instruction}" in viewed.texts("#tab-text .hint")


def viewed_last(viewed: Viewed, page: Path) -> int:
    """Open the page and return the number of its last program."""
    viewed.open(page)
    return viewed.page.evaluate("document.querySelectorAll('.stages li').length - 1")


@pytest.mark.parametrize("name", ["gpt_train_step", "lstm_scan", "resnet_block", "mandelbrot_while"])
def test_what_is_live_fits_into_the_arena(name: str) -> None:
    module = hloom.load(WORKLOADS / f"{name}.hlo")
    memory: Any = compiled_parts(module)[1]["memory"]
    live = np.zeros(2 * memory["steps"] + 3, np.int64)
    for offset, size, spans, users in memory["buffers"]:
        assert 0 <= offset <= offset + size <= memory["arena"]
        assert users
        for first, last in spans:
            live[first : last + 1] += size
    assert live.max(initial=0) <= memory["arena"]


# -- folders of dumps


def dumped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={folder} --xla_dump_hlo_pass_re=.*")
    hloom.compile(HloModule.from_text(PROGRAM))
    return folder


def test_a_folder_of_dumps_is_shown_pass_by_pass(
    view: Callable[..., Path], viewed: Viewed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = dumped(tmp_path / "dump", monkeypatch)
    viewed.open(view(folder), "#tab=passes")
    stages = viewed.texts(".stages li > span")
    assert stages[0] == "before optimizations"
    assert "after cse (simplification)" in stages


def test_the_stages_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = dumped(tmp_path / "dump", monkeypatch)
    texts = [stage.data["text"] for stage in dumped_stages(largest_program(folder), no_errors)]
    assert len(texts) == len(set(texts)) > 3


def no_errors(path: Path, error: HloError) -> None:
    raise AssertionError(f"{path}: {error}")


def test_files_that_cannot_be_read_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = dumped(tmp_path / "dump", monkeypatch)
    program = largest_program(folder)
    unread: list[Path] = []
    wrong = program.stages[0].path
    wrong.write_text(wrong.read_text().replace(" parameter(", " parametre("))
    stages = dumped_stages(program, lambda path, error: unread.append(path))
    assert unread == [wrong]
    assert stages[0].title == program.stages[1].title
    for stage in program.stages:
        stage.path.write_text("nothing")
    with pytest.raises(HloError) as caught:
        folder_stages([program], lambda name: None, lambda path, error: None)
    assert caught.value.rule == "view.unreadable"


def test_a_menu_switches_between_the_programs_of_a_folder(
    view: Callable[..., Path], viewed: Viewed, tmp_path: Path
) -> None:
    small = "HloModule small\n\nENTRY e {\n  ROOT p = f32[3] parameter(0)\n}\n"
    for name, text in (
        ("module_0001.small.before_optimizations.txt", small),
        ("module_0002.model.before_optimizations.txt", PROGRAM),
        (
            "module_0002.model.0001.p.after_cse.before_dce.txt",
            PROGRAM.replace("%product, %again", "%product, %twice"),
        ),
    ):
        (tmp_path / name).write_text(text)
    viewed.open(view(tmp_path))
    menus = viewed.page.locator("#program-place select")
    assert menus.nth(0).locator("option").all_text_contents() == ["module_0002.model", "module_0001.small"]
    stages = menus.nth(1).locator("option").all_text_contents()
    assert stages == ["before optimizations", "after cse (p)"]
    menus.nth(0).select_option("module_0001.small")
    viewed.page.wait_for_selector("#details h2:has-text('small')")
    assert viewed.page.locator("#program-place select").count() == 1
    viewed.press("]")
    assert viewed.texts("#details h2") == ["small"]


def test_the_rewrites_of_a_pass_are_listed(view: Callable[..., Path], viewed: Viewed) -> None:
    twice = "%twice = f32[64,64]{1,0} transpose(%middle), dimensions={1,0}"
    middle = "%middle = f32[64,64]{1,0} transpose(%p), dimensions={1,0}"
    start, end = PROGRAM.split("%twice = f32[64,64]{1,0} add(%p, %p)")
    viewed.open(view(f"{start}{middle}\n  {twice}{end}"), "#tab=passes")
    viewed.page.locator(".stages li", has_text="after algsimp").first.click()
    viewed.page.wait_for_selector(".rewrites summary:has-text('rewrites')")
    viewed.page.locator(".rewrites summary").click()
    rewrites = viewed.texts(".rewrites li")
    assert f"{len(rewrites)} rewrites" in viewed.texts(".rewrites summary")
    assert any("transpose_twice" in words and "%twice" in words for words in rewrites)
    viewed.page.locator(".rewrites li", has_text="%twice").first.click()
    viewed.page.wait_for_selector(".rewrites li.chosen:has-text('%twice')")
    viewed.page.wait_for_selector("#details h2:has-text('%transpose')")
    assert any("%twice = " in line for line in viewed.texts(".changes .line.removed"))
    assert "twice" not in viewed.page.evaluate("window.hloom.graph.program.names")
    viewed.page.evaluate("window.hloom.showTab('text')")
    viewed.page.wait_for_selector("#tab-text .line:has-text('%transpose = ')")
    assert not any("%twice = " in line for line in viewed.texts("#tab-text .line"))
    viewed.page.evaluate("window.hloom.showTab('passes')")
    viewed.page.locator(".stages li.chosen").click()
    viewed.page.wait_for_selector(".rewrites:not(:has(li.chosen))")


@pytest.mark.parametrize("room", [10_000, 0])
def test_a_page_has_the_program_after_each_rewrite(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hloom.tools.viewer.compiled._MOST_INSTRUCTIONS", room)
    module = HloModule.from_text(
        "HloModule m\nENTRY e {\n  p = f32[2,3] parameter(0)\n  a = f32[3,2] transpose(p), dimensions={1,0}\n"
        "  b = f32[2,3] transpose(a), dimensions={1,0}\n  c = f32[2,3] negate(b)\n"
        "  d = f32[2,3] negate(c)\n  ROOT r = f32[2,3] exponential(d)\n}\n"
    )
    stages, _ = compiled_parts(module)
    stage = next(stage for stage in stages if stage.title == "after algsimp")
    assert len(stage.states) == (len(stage.rewrites) - 1 if room else 0)
    texts = [str(data["text"]) for data in (*stage.states, stage.data)]
    assert len(set(texts)) == len(texts)
    for text in texts:
        HloModule.from_text(text).verify()
    parts: dict[str, Any] = page_parts(stages, {})
    number = stages.index(stage)
    assert parts["manifest"]["programs"][number]["states"] == len(stage.states)
    assert all(parts[f"program-{number}.{k}"] is data for k, data in enumerate(stage.states, 1))


def test_a_stage_that_was_chosen_in_another_tab_fits_the_graph(
    view: Callable[..., Path], viewed: Viewed
) -> None:
    viewed.open(view(PROGRAM), "#tab=passes")
    viewed.page.locator(".stages li").last.click()
    viewed.page.wait_for_selector(".stages li.chosen:last-child")
    viewed.press("g")
    place, picture = (viewed.page.locator(s).first.bounding_box() for s in ("#graph", "svg .node"))
    assert picture["x"] >= place["x"] and picture["y"] >= place["y"]
    assert picture["x"] + picture["width"] <= place["x"] + place["width"]


def test_elements_of_a_tuple_are_told_apart_in_memory(view: Callable[..., Path], viewed: Viewed) -> None:
    program = """HloModule pairs

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT l = pred[] compare(a, b), direction=LT
}

ENTRY e {
  x = f32[4096] parameter(0)
  n = s32[4096] parameter(1)
  s = (f32[4096], s32[4096]) sort(x, n), dimensions={0}, to_apply=less
  v = f32[4096] get-tuple-element(s), index=0
  w = s32[4096] get-tuple-element(s), index=1
  r = f32[4096] reverse(v), dimensions={0}
  t = (f32[4096], s32[4096]) sort(r, w), dimensions={0}, to_apply=less
  u = f32[4096] get-tuple-element(t), index=0
  z = f32[4096] reverse(u), dimensions={0}
  k = s32[4096] get-tuple-element(t), index=1
  l = s32[4096] reverse(k), dimensions={0}
  ROOT both = (f32[4096], s32[4096]) tuple(z, l)
}
"""
    viewed.open(view(program), "#tab=memory")
    words = viewed.texts(".peak td .hint")
    assert any(re.fullmatch(r"element 0 · f32\[4096\].*", word) for word in words)
    assert any(re.fullmatch(r"element 1 · s32\[4096\].*", word) for word in words)


def test_no_kernel_lies_above_its_roof(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM, options=("--random", "0")), "#tab=time")
    limits = viewed.texts("circle.kernel title")
    assert limits and all(int(title.split(", ")[-1].split(" %")[0]) <= 100 for title in limits)
    assert viewed.page.locator("path.roof").count() == 3


def test_the_timeline_has_every_instruction_of_every_thread(
    view: Callable[..., Path], viewed: Viewed
) -> None:
    """A click where an instruction ran goes to it."""
    viewed.open(view(PROGRAM, options=("--random", "0")), "#tab=time")
    (thread,) = viewed.page.evaluate("hloom.parts('time').then((time) => time.threads)")
    ran = [thread["names"][number] for number, _, _ in thread["records"]]
    names = [name.removeprefix("%") for name in viewed.texts(".times td:first-child")]
    assert sorted(ran) == sorted(names)
    assert all(0 <= start <= end for _, start, end in thread["records"])
    number, start, end = max(thread["records"], key=lambda record: record[2] - record[1])
    whole = max(end for _, _, end in thread["records"])
    box = viewed.page.locator(".timeline").bounding_box()
    x = 110 + (start + end) / 2 / whole * (box["width"] - 118)
    viewed.page.locator(".timeline").click(position={"x": x, "y": 30})
    viewed.page.wait_for_selector(f"#details h2:has-text('%{thread['names'][number]}')")


@pytest.mark.parametrize("tab", ["graph", "text", "passes", "memory", "time"])
def test_narrow_screens_hold_every_tab(view: Callable[..., Path], viewed: Viewed, tab: str) -> None:
    viewed.page.set_viewport_size({"width": 480, "height": 800})
    viewed.open(view(PROGRAM, options=("--random", "0")), f"#tab={tab}")
    width = viewed.page.evaluate("document.documentElement.scrollWidth")
    assert width == 480
    box = viewed.page.locator(f"#tab-{tab}").bounding_box()
    assert box["width"] == 480 and box["height"] > 200
    for place in ("#tabs", "#search", "#details"):
        assert viewed.page.locator(place).bounding_box()["x"] >= 0


# -- the command


def test_the_commands_of_the_page_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = Path(__file__).parents[2] / "docs" / "viewer.md"
    commands = re.findall(r"^hloom (view [^#\n]*?)(?: +#.*)?$", document.read_text(), re.M)
    assert len(commands) >= 4
    for name in ("model.hlo", "before.hlo", "after.hlo"):
        (tmp_path / name).write_text(PROGRAM)
    dumped(tmp_path / "dump", monkeypatch)
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.chdir(tmp_path)
    for command in commands:
        result = CliRunner().invoke(main, shlex.split(command), catch_exceptions=False)
        assert result.exit_code == 0, command
        page = Path(result.output.split(": ")[0])
        assert page.read_text().startswith("<!DOCTYPE html>")
        page.unlink()


def test_a_program_that_cannot_be_compiled_is_shown_all_the_same(tmp_path: Path) -> None:
    program = tmp_path / "call.hlo"
    program.write_text(
        "HloModule m\n\nENTRY e {\n  p = f32[2] parameter(0)\n"
        '  ROOT c = f32[2] custom-call(p), custom_call_target="nobody_knows"\n}\n'
    )
    page = tmp_path / "page.html"
    shown = CliRunner().invoke(main, ["view", str(program), "-o", str(page)])
    assert shown.exit_code == 0
    assert "passes" in shown.output or "not compiled" in shown.output
    several = CliRunner().invoke(main, ["view", str(program), str(program), "--compile", "-o", str(page)])
    assert several.exit_code == 2
    assert "one program is compiled" in several.output
