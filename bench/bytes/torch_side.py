"""What Python torch's step moves on a GPU, counted without one: a peer of bench/step, whose operations compute nothing.

    tools/python-peer bench/bytes/torch_side.py gpt_step_peer eager|compile --shape gpu-small --dtype bf16 [--channels-last ...]

eager: the operations of the step as the dispatcher sees them. compile: what Inductor's scheduler makes of the graphs of the same step for an H100
(its kernels after fusion; each reads and writes a buffer once, Scheduler's get_read_write_buffers_sizes), and the operations that are not compiled.
The graphs are traced on the CPU with a GPU's autocast. Prints JSON: [[name, kind, bytes], ...].
"""

import importlib
import json
import sys
import warnings
from collections import Counter
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "step"))
from operands import Moved, Operand, kind_of, moved  # noqa: E402

H100 = SimpleNamespace(name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, regs_per_multiprocessor=65536,
                       max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32, total_memory=80 << 30,
                       shared_memory_per_block=49152, shared_memory_per_block_optin=232448, L2_cache_size=50 << 20)
# Autocast on a GPU computes these in fp32, on a CPU it does not (AT_FORALL_FP32 in ATen/autocast_mode.h), and leaves the second ones alone.
WIDE = ("exp expm1 log log10 log2 log1p reciprocal rsqrt pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar softplus layer_norm group_norm "
        "poisson_nll_loss nll_loss l1_loss smooth_l1_loss huber_loss mse_loss kl_div logsumexp upsample_nearest2d upsample_nearest3d "
        "upsample_trilinear3d softmax.int log_softmax.int sum sum.dim_IntList cumsum prod").split()
AS_IT_IS = ("avg_pool3d", "grid_sampler")
FREE = ("empty", "new_empty", "detach", "lift")


def widened(x):
    return x.float() if isinstance(x, torch.Tensor) and x.dtype in (torch.bfloat16, torch.float16) else x


def below_autocast(operation, change):
    def call(*arguments, **words):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)):
            return operation(*map(change, arguments), **words)

    return call


def cast_as_a_gpu(library):
    warnings.filterwarnings("ignore", message=".*[Oo]verrid")
    for names, change in ((WIDE, widened), (AS_IT_IS, lambda x: x)):
        for name in names:
            base, _, overload = name.partition(".")
            operation = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(name, below_autocast(operation, change), "AutocastCPU", allow_override=True)


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """As a GPU has it: fused where it computes in 16 bits, composed otherwise."""
    if torch.is_autocast_enabled("cpu"):
        query, key, value = (x.to(torch.get_autocast_dtype("cpu")) for x in (query, key, value))
    if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16) and query.size(-1) <= 256:
        return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, False, scale=scale)[0]
    return torch.ops.aten._scaled_dot_product_attention_math(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]


def dropout(x, p=0.5, training=True, inplace=False):
    return torch.native_dropout(x, p, True)[0] if training and 0 < p < 1 else x


def storage_of(x):
    return x.untyped_storage()._cdata


def operand_of(x, written):
    elements = 1
    for size, stride in zip(x.shape, x.stride()):
        elements *= size if stride else min(size, 1)
    return Operand(storage_of(x) + x.storage_offset(), elements * x.element_size(), not written, written)


class Blank(TorchDispatchMode):
    """Operations of the CPU's tensors that compute nothing: their results have shapes and no values. Views and what makes memory are real. What
    each would move is in `operations`."""

    def __init__(self):
        super().__init__()
        self.fake = FakeTensorMode()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = function.name()
        schema = function._schema
        if function.is_view or name.split("::")[-1].startswith(FREE):
            return function(*args, **kwargs)
        with _disable_current_modes(), self.fake:
            shapes = function(*tree_map(self.shape, args), **tree_map(self.shape, kwargs))
        changed = [argument for place, argument in enumerate(schema.arguments) if argument.alias_info is not None and argument.alias_info.is_write]
        named = {argument.name: value for argument, value in zip(schema.arguments, args)} | kwargs
        taken = self.operands(named, {argument.name for argument in changed}, name)
        returned = [named[argument.name] for argument in changed if argument.name in named]
        if changed and schema.returns and schema.returns[0].alias_info is not None:
            result = returned[0] if len(schema.returns) == 1 else tuple(returned)
            new = []
        else:
            result = tree_map(lambda x: torch.empty_strided(x.size(), x.stride(), dtype=x.dtype) if isinstance(x, torch.Tensor) else x, shapes)
            new = [operand_of(x, True) for x in tree_leaves(result) if isinstance(x, torch.Tensor) and x.numel()]
        if new or changed:
            self.operations.append(moved(name, taken + new))
        return result

    def shape(self, x):
        return self.fake.from_tensor(x, static_shapes=True) if isinstance(x, torch.Tensor) else x

    @staticmethod
    def operands(named, changed, name):
        if name.startswith("aten::convolution_backward"):
            of_x, of_weight, _ = named["output_mask"]
            named = {"gradient": named["grad_output"], **({"x": named["input"]} if of_weight else {}), **({"weight": named["weight"]} if of_x else {})}
        found = {}
        for argument, value in named.items():
            for x in tree_leaves(value):
                if isinstance(x, torch.Tensor) and x.numel():
                    operand = operand_of(x, False)
                    known = found.setdefault((operand.address, operand.bytes), operand)
                    known.written |= argument in changed
        return list(found.values())


class Scheduled(Exception):
    """Inductor has made its kernels; it writes no code."""


def as_on_an_h100():
    """Inductor takes its decisions for an H100, and needs no Triton as long as it writes no code."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler

    for interface in (CudaInterface, CudaInterface.Worker):
        interface.get_device_properties = staticmethod(lambda *_: H100)
    CudaInterface.get_compute_capability = staticmethod(lambda *_: 90)
    CudaInterface.is_bf16_supported = staticmethod(lambda *_, **__: True)
    torch.cuda.get_device_properties = lambda *_: H100
    torch.cuda.get_device_capability = lambda *_: (H100.major, H100.minor)
    torch.cuda.current_device = lambda: 0
    scheduler.has_triton = lambda *_: True


def kind_of_kernel(node):
    """Of a product, convolution or attention Inductor calls the library's kernel; all else it writes."""
    from torch._inductor.scheduler import ExternKernelSchedulerNode

    origins = [str(origin.target) for part in node.get_nodes() if part.node is not None for origin in part.node.origins]
    names = [name.replace("aten.", "aten::") for name in origins]
    kinds = [kind_of(name) for name in names if kind_of(name) != "rest"] if isinstance(node, ExternKernelSchedulerNode) else []
    counted = Counter(name.split("::")[-1].split(".")[0] for name in names)
    return "+".join(sorted(counted)[:6]), kinds[0] if kinds else "rest"


class Compiled:
    """A backend of torch.compile that stops after the scheduler; what it gives back computes nothing."""

    def __init__(self):
        from torch._inductor import compile_fx, graph

        self.operations = []
        self.compile_fx, self.compile_inner = compile_fx.compile_fx, compile_fx.compile_fx_inner
        graph.GraphLowering.compile_to_module = lambda lowered: self.schedule(lowered)

    def __call__(self, graph, inputs):
        return self.compile_fx(graph, inputs, inner_compile=self.inner)

    def schedule(self, graph):
        from torch._inductor.scheduler import Scheduler

        graph.scheduler = Scheduler(graph.operations)
        for node in graph.scheduler.nodes:
            name, kind = kind_of_kernel(node)
            self.operations.append(Moved(name, kind, node.get_read_write_buffers_sizes()))
        raise Scheduled

    def inner(self, graph, inputs, **words):
        results = blank(graph)
        try:
            self.compile_inner(graph, moved_to_gpu(graph, inputs), **words)
            sys.exit("Error  Inductor compiled a graph that it was asked only to schedule\n  next     this needs torch 2.11")
        except Exception as error:  # Dynamo and Inductor wrap what they catch
            if not isinstance(error, Scheduled) and "Scheduled" not in repr(error):
                raise
        return results


def moved_to_gpu(graph, inputs):
    """Puts the GPU in place of the CPU in the graph, and gives its inputs there. Inductor finds out anew which layouts follow."""
    gpu = torch.device("cuda", 0)
    mode = next(x.fake_mode for x in inputs if isinstance(x, FakeTensor))

    def there(x):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device=gpu) if isinstance(x, FakeTensor) else x

    with mode:
        for node in graph.graph.nodes:
            node.args, node.kwargs = tree_map(lambda x: gpu if isinstance(x, torch.device) and x.type == "cpu" else x, (node.args, node.kwargs))
            if "val" in node.meta:
                node.meta["val"] = tree_map(there, node.meta["val"])
        graph.recompile()
        return [there(x) for x in inputs]


def blank(graph):
    """Gives tensors of the graph's results, without values; what is handed through stays what it is."""
    places = {node: place for place, node in enumerate(node for node in graph.graph.nodes if node.op == "placeholder")}

    def maker_of(node):
        if not isinstance(node, torch.fx.Node):
            return lambda given: node
        if node in places:
            return lambda given: given[places[node]]
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            return lambda given: value
        size, stride, dtype = tuple(value.size()), tuple(value.stride()), value.dtype
        return lambda given: torch.empty_strided(size, stride, dtype=dtype)

    output = next(node for node in graph.graph.nodes if node.op == "output")
    makers = [maker_of(node) for node in output.args[0]]

    def run(inputs):
        given = list(inputs)
        return [make(given) for make in makers]

    run._boxed_call = True
    return run


@contextmanager
def counted(functions, mode):
    """Puts `functions`, pairs of an owner and a name, under `mode`."""
    before = [(owner, name, getattr(owner, name)) for owner, name in functions]

    def under(function):
        def call(*arguments, **words):
            with mode:
                return function(*arguments, **words)

        return call

    for owner, name, function in before:
        setattr(owner, name, under(function))
    try:
        yield
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


CLIPS = [(torch.nn.utils, "clip_grad_norm_"), (torch.nn.utils, "clip_grad_value_")]
UPDATES = [(torch.optim.Adam, "step"), (torch.optim.AdamW, "step")]


def step(made, forward):
    with forward if isinstance(forward, Blank) else nullcontext():
        made.run()


def count(script, way, options_words):
    """The operations of a step of bench/step's `script`."""
    torch.manual_seed(0)
    library = torch.library.Library("aten", "IMPL")
    cast_as_a_gpu(library)
    torch.nn.functional.scaled_dot_product_attention, torch.nn.functional.dropout = attention, dropout
    peer = importlib.import_module(script)
    forward, update = (Compiled(), Blank()) if way == "compile" else (Blank(), Blank())
    if way == "compile":
        as_on_an_h100()
        peer.compiled = lambda options, function: torch.compile(function, backend=forward)
    made = []
    peer.serve = lambda options, make_step: made.append(make_step(options))
    sys.argv = [script, "--device", "cpu", *options_words]
    peer.main()
    with counted(CLIPS + UPDATES, update):
        step(made[0], forward)
        update.operations.clear()  # the first update makes the optimizer's state
        if way == "eager":
            forward.operations.clear()
        step(made[0], forward)
    for operation in update.operations:
        operation.kind = "update"
    return forward.operations + update.operations


def main():
    script, way, *words = sys.argv[1:]
    print(json.dumps([[operation.name, operation.kind, operation.bytes] for operation in count(script, way, words)]))


if __name__ == "__main__":
    main()
