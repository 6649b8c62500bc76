"""What headrace.Loader is compared with in Python: the same map-style data set and collate in each library's own way.

DataLoader  PyTorch's, with the best of 0, 1, 2 and 4 worker processes
torchdata   StatefulDataLoader with as many, and torchdata.nodes with threads; the faster
SPDL        a pipeline of threads over the data set; for pictures also its own decoder, where FFmpeg's libraries are installed
"""
import torch

try:
    import torchdata.nodes
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    torchdata = None
try:
    import spdl.pipeline
except ImportError:
    spdl = None

THREADS = (1, 2, 4)
MISSING = [name for name, module in (("torchdata", torchdata), ("SPDL", spdl)) if module is None]


class Epochs:
    """An iterable whose every loop is an epoch made by `make`."""

    def __init__(self, make):
        self.make = make

    def __iter__(self):
        return iter(self.make())


def nodes_of_torchdata(workload, threads):
    dataset = workload.dataset(False)

    def make():
        node = torchdata.nodes.SamplerWrapper(torch.utils.data.RandomSampler(dataset))
        node = torchdata.nodes.ParallelMapper(node, dataset.__getitem__, num_workers=threads, method="thread")
        node = torchdata.nodes.Batcher(node, workload.rows, drop_last=False)
        node = torchdata.nodes.Prefetcher(torchdata.nodes.Mapper(node, workload.collate), 2)
        return torchdata.nodes.Loader(node)

    return Epochs(make)


def pipeline_of_spdl(workload, threads):
    dataset = workload.dataset(False)

    def make():
        builder = spdl.pipeline.PipelineBuilder().add_source(torch.randperm(len(dataset)).tolist())
        builder = builder.pipe(dataset.__getitem__, concurrency=threads).aggregate(workload.rows).pipe(workload.collate).add_sink(4)
        pipeline = builder.build(num_threads=threads + 1)
        with pipeline.auto_stop():
            yield from pipeline

    return Epochs(make)


def families(workload):
    """Library -> {how it is set up: its loader}."""
    found = {"DataLoader": {f"{n} workers": workload.documented(n) for n in workload.workers}}
    if torchdata is not None:
        found["torchdata"] = {f"{n} workers": workload.documented(n, loader=StatefulDataLoader) for n in workload.workers}
        found["torchdata"] |= {f"{n} threads": nodes_of_torchdata(workload, n) for n in THREADS}
    if spdl is not None:
        found["SPDL"] = {f"{n} threads": pipeline_of_spdl(workload, n) for n in THREADS}
        found["SPDL"] |= {name: Epochs(make) for name, make in getattr(workload, "others", dict)().items()}
    return found
