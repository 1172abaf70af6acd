"""The viewer's graph, search, details and text, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hloom import HloModule
from hloom.tools.reports.statistics import statistics_of
from tests.viewer.conftest import Viewed

WORKLOADS = Path(__file__).parents[2] / "examples" / "workloads"

PROGRAM = """HloModule model

%body (s: (s32[], f32[4,4])) -> (s32[], f32[4,4]) {
  %s = (s32[], f32[4,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %x = f32[4,4]{1,0} get-tuple-element(%s), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %inner_dot = f32[4,4]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %t = (s32[], f32[4,4]{1,0}) tuple(%next, %inner_dot)
}

%condition (s.1: (s32[], f32[4,4])) -> pred[] {
  %s.1 = (s32[], f32[4,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%s.1), index=0
  %limit = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %limit), direction=LT
}

ENTRY %main (p: f32[4,4]) -> f32[4,4] {
  %p = f32[4,4]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %a = f32[4,4]{1,0} tanh(%p), metadata={op_name="jit(f)/layer_0/tanh" source_file="model.py" source_line=7}
  %b = f32[4,4]{1,0} exponential(%a), metadata={op_name="jit(f)/layer_0/exp"}
  %c = f32[4,4]{1,0} add(%b, %p), metadata={op_name="jit(f)/layer_1/add"}
  %d = f32[4,4]{1,0} negate(%c), metadata={op_name="jit(f)/layer_1/neg"}
  %state = (s32[], f32[4,4]{1,0}) tuple(%zero, %d)
  %loop = (s32[], f32[4,4]{1,0}) while(%state), condition=%condition, body=%body,
    backend_config={"known_trip_count":{"n":"5"}}
  ROOT %r = f32[4,4]{1,0} get-tuple-element(%loop), index=1
}
""".replace(",\n    backend", ", backend")


def test_search_opens_the_groups_around_a_match(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM))
    viewed.press("c", "/")
    assert "dot · inner_dot" not in viewed.texts("svg .name")
    viewed.page.keyboard.type("opcode:dot")
    viewed.page.wait_for_selector("#search-count:has-text('1 / 1')")
    assert "dot · inner_dot" in viewed.texts("svg .name")
    assert viewed.texts("#details h2") == ["%inner_dot"]
    details = dict(zip(viewed.texts("#details dt"), viewed.texts("#details dd"), strict=True))
    assert details["lhs_contracting_dims"] == "{1}"
    assert details["flops"] == "128 flop".removesuffix(" flop")
    assert details["runs"] == "5×"


def test_a_trip_count_that_follows_from_the_program_counts(view: Callable[..., Path], viewed: Viewed) -> None:
    end = "ROOT %r = f32[4,4]{1,0} get-tuple-element(%loop), index=1"
    counting = PROGRAM.partition(", backend_config")[0] + f"\n  {end}\n}}\n"
    viewed.open(view(counting, options=("--no-compile",)), "#selected=loop")
    details = dict(zip(viewed.texts("#details dt"), viewed.texts("#details dd"), strict=True))
    assert details["trip count"] == "5"
    assert details["flops"] == str(5 * (128 + 2))


def test_scopes_are_groups_and_open_in_place(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM))
    viewed.press("c")
    assert {"layer_0", "layer_1"} <= set(viewed.texts("svg .closed.scope .name"))
    viewed.page.locator("svg .closed.scope .box").first.dblclick()
    assert viewed.texts("svg .open.scope > .title") == ["layer_0"]
    assert {"tanh · a", "exponential · b"} <= set(viewed.texts("svg .name"))


def layers(count: int, op_names: bool) -> str:
    """Return a program of layers with weights, and of loose instructions between them."""
    lines, last = [], "x"
    for n in range(count):
        lines.append(f"  params__layers___{n}___w__.1 = f32[4,4] parameter({2 * n + 1})")
        lines.append(f"  params__layers___{n}___v__.1 = f32[4,4] parameter({2 * n + 2})")
        for part in ("a", "b"):
            metadata = f', metadata={{op_name="jit(f)/layer_{n}/{part}"}}' if op_names else ""
            weight = f"params__layers___{n}___w__.1"
            lines.append(f"  {part}{n} = f32[4,4] multiply({last}, {weight}){metadata}")
            last = f"{part}{n}"
        lines.append(f"  loose{n} = f32[4,4] negate({last})")
        last = f"loose{n}"
    return "\n".join(["HloModule deep", "ENTRY e {", "  x = f32[4,4] parameter(0)", *lines, "}"])


def test_layers_come_before_pieces_of_the_order(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(layers(60, op_names=True), options=("--no-compile",)))
    titles = viewed.texts("svg .closed .name")
    assert "layer_0 – layer_2" in titles
    assert not [title for title in titles if title[0].isdigit()]
    assert len(titles) <= 48


def test_without_op_names_parameters_tell_the_layers(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(layers(60, op_names=False), options=("--no-compile",)))
    titles = viewed.texts("svg .closed .name")
    assert "layers 0 – layers 2" in titles
    assert "parameters" in titles
    viewed.page.evaluate(
        "hloom.actions.toggle(hloom.graph.root.children.find((n) => n.title === 'parameters'))"
    )
    assert "params" in viewed.texts("svg .closed.scope .name")


def test_keys_walk_along_edges(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM), "#selected=b")
    assert viewed.texts("#details h2") == ["%b"]
    viewed.press("ArrowUp")
    assert viewed.texts("#details h2") == ["%a"]
    viewed.press("ArrowDown", "ArrowDown")
    assert viewed.texts("#details h2") == ["%c"]
    viewed.press("Escape")
    assert viewed.texts("#details h2") == ["model"]


def test_a_neighbourhood_shows_only_what_is_near(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM), "#focus=b,1")
    assert sorted(viewed.texts("svg .name")) == ["add · c", "exponential · b", "tanh · a"]
    viewed.press("Escape")
    assert viewed.texts("#details h2") == ["%b"]
    assert len(viewed.texts("svg .node.selected")) == 1


def test_a_path_shows_what_is_between(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM), "#focus=d>a")
    assert sorted(viewed.texts("svg .name")) == ["add · c", "exponential · b", "negate · d", "tanh · a"]
    viewed.open(view(PROGRAM), "#focus=a>zero")
    assert viewed.texts("#message") == ["No path connects them."]


def test_the_address_restores_the_view(view: Callable[..., Path], viewed: Viewed) -> None:
    page = view(PROGRAM)
    viewed.open(page)
    viewed.press("c", "/")
    viewed.page.keyboard.type("inner_dot")
    viewed.page.wait_for_selector("#details h2:has-text('inner_dot')")
    viewed.page.locator("#scheme").select_option("flops")
    viewed.page.keyboard.press("Escape")
    viewed.press("d")
    theme = viewed.page.evaluate("document.documentElement.dataset.theme")
    place = viewed.page.locator("svg .world").get_attribute("transform")
    viewed.page.wait_for_function("location.hash.includes('color=flops') && location.hash.includes('theme')")
    state = viewed.page.evaluate("location.hash")
    names = viewed.texts("svg .name")
    viewed.page.goto("about:blank")
    viewed.requests.clear()
    viewed.open(page, state)
    assert viewed.texts("svg .name") == names
    assert viewed.texts("#details h2") == ["%inner_dot"]
    assert viewed.page.evaluate("document.documentElement.dataset.theme") == theme
    restored = viewed.page.locator("svg .world").get_attribute("transform")
    assert restored.split("scale")[1][:6] == place.split("scale")[1][:6]


def test_the_text_is_linked_with_the_graph(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(PROGRAM), "#selected=b")
    viewed.press("t")
    assert "%b = " in viewed.texts(".line.selected")[0]
    assert "op_name" not in viewed.texts(".line.selected")[0]
    viewed.page.locator(".line.selected .h-name", has_text="%a").click()
    assert viewed.texts("#details h2") == ["%a"]
    viewed.page.locator("#tab-text input").check()
    assert "op_name" in viewed.texts(".line.selected")[0]
    viewed.press("g")
    assert viewed.page.locator("#graph").is_visible()


def test_several_programs_are_one_page(view: Callable[..., Path], viewed: Viewed) -> None:
    other = "HloModule other\n\nENTRY e {\n  ROOT q = f32[2] parameter(0)\n}\n"
    viewed.open(view(PROGRAM, other))
    viewed.page.locator("#program-place select").select_option("1")
    viewed.page.wait_for_selector("#details h2:has-text('other')")
    assert viewed.texts("svg .name") == ["parameter · q"]


def test_long_lists_open_at_once(view: Callable[..., Path], viewed: Viewed) -> None:
    """A hundred thousand instructions without scopes are cut into pieces of pieces."""
    lines = [f"  %n{i + 1} = f32[8]{{0}} add(%n{i}, %n{max(0, i - 3)})" for i in range(100_000)]
    lines[-1] = "  ROOT" + lines[-1][1:]
    program = "HloModule long\n\nENTRY %e {\n  %n0 = f32[8]{0} parameter(0)\n" + "\n".join(lines) + "\n}\n"
    viewed.open(view(program))
    assert len(viewed.texts("svg .node")) <= 49
    viewed.press("/")
    viewed.page.keyboard.type("name:n77777")
    viewed.page.wait_for_selector("#details h2:has-text('%n77777')")
    assert len(viewed.texts("svg .node")) <= 4 * 49
    viewed.press("Enter", "Escape", "t")
    assert "%n77777 = " in viewed.texts(".line.selected")[0]


def test_opening_is_quick(view: Callable[..., Path], viewed: Viewed) -> None:
    """A page opens within two seconds, a group within one, of the time of the browser's main thread."""
    session = viewed.page.context.new_cdp_session(viewed.page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    viewed.open(view(WORKLOADS / "gpt_train_step.hlo"))
    assert seconds() < 2
    boxes = viewed.page.locator("svg .closed.piece .toggle")
    before = seconds()
    boxes.first.click()
    viewed.page.wait_for_selector("svg .open.piece")
    assert seconds() - before < 1  # fifteen times what it takes


FUSED = """HloModule fused

%inside (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %e = f32[8]{0} exponential(%x)
  ROOT %n = f32[8]{0} negate(%e)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %f = f32[8]{0} fusion(%p), kind=kLoop, calls=%inside
}
"""


def test_fusions_are_groups_in_place(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(FUSED, options=("--no-compile",)))
    assert viewed.texts("svg .open.instruction > .title") == ["fusion · f"]
    assert {"exponential · e", "negate · n"} <= set(viewed.texts("svg .name"))
    totals = dict(zip(viewed.texts("#details dt"), viewed.texts("#details dd"), strict=True))
    assert totals["bytes moved"] == "64 B"
    assert totals["transcendentals"] == "8"


def test_a_page_opens_with_the_whole_program_in_the_window(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(FUSED, options=("--no-compile",)))
    window = viewed.page.locator("#graph").bounding_box()
    root = viewed.page.locator("svg .node > .box").first.bounding_box()
    assert root["x"] >= window["x"] and root["x"] + root["width"] <= window["x"] + window["width"]
    assert root["height"] > window["height"] / 3


def test_edges_say_what_they_carry(view: Callable[..., Path], viewed: Viewed) -> None:
    viewed.open(view(FUSED, options=("--no-compile",)))
    assert "%e: f32[8]{0}" in viewed.texts("svg .edge title")
    assert "f32[8]" in viewed.texts("svg .edge-label")


SHARED = """HloModule shared

%twice (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %d = f32[8]{0} add(%x, %x)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} call(%p), to_apply=%twice
  ROOT %b = f32[8]{0} call(%a), to_apply=%twice
}
"""


def test_the_totals_are_those_of_hloom_stats(view: Callable[..., Path], viewed: Viewed) -> None:
    """A computation counts once for each of its calls."""
    cost = statistics_of(HloModule.from_text(SHARED)).cost
    viewed.open(view(SHARED, options=("--no-compile",)))
    totals = dict(zip(viewed.texts("#details dt"), viewed.texts("#details dd"), strict=True))
    assert totals["flops"] == f"{cost.flops:.0f}" == "16"
    assert totals["bytes moved"] == f"{cost.bytes:.0f} B"
    viewed.open(view(SHARED, options=("--no-compile",)), "#selected=d")
    details = dict(zip(viewed.texts("#details dt"), viewed.texts("#details dd"), strict=True))
    assert details["runs"] == "2×"
