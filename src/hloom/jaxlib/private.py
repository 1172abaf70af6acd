"""Private names of JAX and jaxlib, which only this file mentions; `check` tests that all exist.

Calling a `Private` imports it, so this module does not load JAX. Before registration changes anything in JAX,
it checks every name that the plug-in uses, and the parameters of the functions that it wraps or calls.
"""

from __future__ import annotations

import inspect
import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final

from hloom.errors import HloError

TESTED: Final = ("0.10.2", "0.12.0.1")
"""Versions of JAX with which all tests pass, the oldest first."""


class Private:
    """A private name of JAX or jaxlib.

    Attributes:
        module: the name of its module.
        path: dotted attribute names that lead from the module to the value; empty for the module itself.
        parameters: names of parameters that the function or constructor must have.
    """

    plugin: ClassVar[list[Private]] = []
    """Private names that registration checks."""

    def __init__(
        self, module: str, path: str = "", *, parameters: tuple[str, ...] = (), plugin: bool = True
    ) -> None:
        self.module: Final = module
        self.path: Final = path
        self.parameters: Final = parameters
        if plugin:
            Private.plugin.append(self)

    def __call__(self) -> Any:
        """Import and return the value.

        Raises ImportError if JAX is not installed, and HloError with the rule ``jax.private`` if the
        installed version has no such name.
        """
        try:
            return reduce(getattr, self._names, import_module(self.module))
        except (ImportError, AttributeError) as error:
            if find_spec(self.module.partition(".")[0]) is None:
                raise
            raise HloError(_refusal([f"no {self}"]), rule="jax.private") from error

    def set(self, value: object) -> None:
        """Replace the value in its module or class."""
        *owners, name = self._names
        setattr(reduce(getattr, owners, import_module(self.module)), name, value)

    def complaint(self) -> str:
        """Describe what the installed version lacks; empty if it has the name and the parameters."""
        try:
            value = self()
        except HloError:
            return f"no {self}"
        if not self.parameters:
            return ""
        parameters = inspect.signature(value).parameters
        lacking = [name for name in self.parameters if name not in parameters]
        return f"no parameter {', '.join(lacking)} of {self}" if lacking else ""

    def __str__(self) -> str:
        return ".".join((self.module, *self._names))

    @property
    def _names(self) -> list[str]:
        return self.path.split(".") if self.path else []


def check() -> None:
    """Check the installed JAX.

    Raises HloError with the rule ``jax.version`` if it is too old, ``jax.private`` if it lacks a name.
    """
    jax: object = import_module("jax")
    numbers = tuple(map(int, re.findall(r"\d+", jax.__version__)[:3]))
    if numbers < tuple(map(int, TESTED[0].split("."))):
        message = f"JAX {jax.__version__} is older than {TESTED[0]}; hloom is tested with {_tested()}"
        raise HloError(message, rule="jax.version")
    complaints = [complaint for name in Private.plugin if (complaint := name.complaint())]
    if complaints:
        raise HloError(_refusal(complaints), rule="jax.private")


def _refusal(complaints: list[str]) -> str:
    return (
        f"JAX {_version('jax')} with jaxlib {_version('jaxlib')} has {'; '.join(complaints)}; hloom is "
        + (f"tested with JAX {_tested()}: pip install 'hloom[jax]' installs a version that it knows")
    )


def _tested() -> str:
    return f"{', '.join(TESTED[:-1])} and {TESTED[-1]}"


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "of an unknown version"


_BRIDGE: Final = "jax._src.xla_bridge"
_CLIENT: Final = "jaxlib.xla_client"
_MLIR: Final = "jax._src.interpreters.mlir"
_JAXLIB: Final = "jaxlib._jax"
_HLO: Final = "jaxlib._hlo"

# -- platforms
backends: Final = Private(_BRIDGE, "_backends")
backend_factories: Final = Private(_BRIDGE, "_backend_factories")
make_client: Final = Private(_BRIDGE, "make_pjrt_c_api_client")
distributed_state: Final = Private("jax._src.distributed", "global_state")
Private("jax._src.distributed", "global_state.coordinator_address")
Private("jax._src.distributed", "global_state.client")
Private("jax._src.distributed", "global_state.service")
register_backend_factory: Final = Private(
    _BRIDGE,
    "register_backend_factory",
    parameters=("name", "factory", "priority", "fail_quietly", "make_topology", "c_api"),
)
plugin_is_loaded: Final = Private(_CLIENT, "pjrt_plugin_loaded")
load_plugin: Final = Private(_CLIENT, "load_pjrt_plugin_with_c_api")

# -- functions and types in C that JAX registers for a platform
register_profiler: Final = Private("jaxlib._profiler", "register_plugin_profiler")
register_custom_call_handler: Final = Private(_CLIENT, "register_custom_call_handler")
register_custom_type_handler: Final = Private(_CLIENT, "register_custom_type_handler")
register_custom_call_target: Final = Private(_JAXLIB, "register_custom_call_target")
register_custom_type: Final = Private(_JAXLIB, "register_custom_type")
execution_stage: Final = Private(_JAXLIB, "ffi.ExecutionStage.EXECUTE")

# -- lowerings
platforms_with_donation: Final = Private(_MLIR, "_platforms_with_donation")
platform_lowerings: Final = Private(_MLIR, "_platform_specific_lowerings")
lowerings: Final = Private(_MLIR, "_lowerings")
register_lowering: Final = Private(
    _MLIR, "register_lowering", parameters=("prim", "rule", "platform", "inline")
)
HOMES_OF_LOWERINGS: Final = (
    Private("jax._src.lax.linalg"),
    Private("jax._src.debugging"),
    Private("jax._src.callback"),
    Private("jax._src.checkify"),
    Private("jax._src.lax.lax"),
    Private("jax._src.buffer_callback"),
)
"""Modules that register lowerings for cpu."""
CALLBACK_PRIMITIVES: Final = (
    Private("jax._src.callback", "pure_callback_p"),
    Private("jax._src.callback", "io_callback_p"),
    Private("jax._src.buffer_callback", "buffer_callback_p"),
)
"""Primitives with a single lowering rule, which tests the platform's name."""
COMPOSITE_PRIMITIVES: Final = {"chlo.erfc": Private("jax._src.lax.special", "erfc_p")}
"""Primitives that are lowered to an operation of CHLO, by its name."""
functions: Final = Private("jaxlib.mlir.dialects.func")

# -- compilation
compile_and_load: Final = Private(
    "jax._src.compiler",
    "backend_compile_and_load",
    parameters=("backend", "module", "executable_devices", "options", "host_callbacks"),
)
read_cached: Final = Private(
    "jax._src.compilation_cache",
    "get_executable_and_time",
    parameters=("cache_key", "compile_options", "backend", "executable_devices"),
)
make_ir_context: Final = Private(_MLIR, "make_ir_context")
thread_pool: Final = Private(_MLIR, "global_thread_pool")
ir: Final = Private("jaxlib.mlir.ir")
parse_passes: Final = Private("jaxlib.mlir.passmanager", "PassManager.parse")
stablehlo: Final = Private("jaxlib.mlir.dialects.stablehlo")
to_computation: Final = Private(_JAXLIB, "mlir.mlir_module_to_xla_computation")
parse_compile_options: Final = Private(_JAXLIB, "CompileOptions.ParseFromString")

# Attributes of objects that JAX passes to the plug-in.
Private(_MLIR, "ModuleContext", parameters=("platforms", "backend"))
Private(_MLIR, "ModuleContext.replace")
Private(_MLIR, "ModuleContext.get_backend")
Private(_MLIR, "LoweringRuleContext", parameters=("module_context", "platforms", "tokens_out"))
Private(_MLIR, "LoweringRuleContext.replace")
Private(_MLIR, "LoweringRuleContext.set_tokens_out")
Private(_MLIR, "LoweringRuleEntry", parameters=("rule", "inline"))
Private("jaxlib.mlir.ir", "Module.context")
Private("jaxlib.mlir.ir", "SymbolTable")
Private("jaxlib.mlir.dialects.stablehlo", "CompositeOp")
Private("jaxlib.mlir.dialects.stablehlo", "deserialize_portable_artifact")
Private("jaxlib.mlir.dialects.stablehlo", "get_current_version")
Private("jaxlib.mlir.dialects.stablehlo", "get_minimum_version")
Private(_JAXLIB, "CompileOptions.SerializeAsString")
Private(_JAXLIB, "CompileOptions.env_option_overrides")
Private(_JAXLIB, "CompileOptions.device_assignment")
Private(_JAXLIB, "CompileOptions.executable_build_options")
Private(_JAXLIB, "ExecutableBuildOptions.num_replicas")
Private(_JAXLIB, "ExecutableBuildOptions.num_partitions")
Private(_JAXLIB, "ExecutableBuildOptions.device_assignment")
Private(_JAXLIB, "ExecutableBuildOptions.allow_spmd_sharding_propagation_to_parameters")
Private(_JAXLIB, "DeviceAssignment.serialize")
Private(_JAXLIB, "LoadedExecutable.serialize")
Private(_JAXLIB, "Client.deserialize_executable")

# -- conversion of programs, and XLA:CPU, without the plug-in
to_stablehlo: Final = Private(_JAXLIB, "mlir.xla_computation_to_mlir_module", plugin=False)
XlaComputation: Final = Private(_HLO, "XlaComputation", plugin=False)
hlo_module_from_text: Final = Private(_HLO, "hlo_module_from_text", plugin=False)
HloModule: Final = Private(_HLO, "HloModule", plugin=False)
HloPrintOptions: Final = Private(_HLO, "HloPrintOptions", plugin=False)
DeviceList: Final = Private(_JAXLIB, "DeviceList", plugin=False)
CompileOptions: Final = Private(_JAXLIB, "CompileOptions", plugin=False)
DeviceAssignment: Final = Private(_JAXLIB, "DeviceAssignment", plugin=False)
