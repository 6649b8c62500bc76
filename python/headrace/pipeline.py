"""Describes what a loader reads: sources of samples, and operations that select, join and change samples.

    data = headrace.hdf5("sky/*.h5", {"vis": "/vis", "truth": "/cosmo"})
    data = data.augment(["vis", "truth"], headrace.random_flip([-1]), headrace.random_roll([-2]))
    train, held_out = data.split(0.9, seed=1)          # the same samples in every run

A pipeline is a description: files are opened when a Loader is made of it. Paths are relative to the current folder. The last part
of a path may be a pattern such as *.h5, whose files are sorted by name. The last axes of a sample's array are rows and columns.
Axes are counted from the end: -1 columns, -2 rows, -3 depth.
"""
from __future__ import annotations

import glob
import os
from typing import Any, Callable, Iterable, Mapping, Sequence, Union

from headrace.errors import KindError, MissingError, UsageError

Path = Union[str, "os.PathLike[str]"]
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


def _numbers(value: Any, name: str, call: str) -> list[Any]:
    """A list of numbers. Raises for one number alone, of which it is not known how many axes or channels it is for."""
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__") or getattr(value, "ndim", 1) != 1:
        alone = isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0
        raise KindError(f"{name} is {value!r}, no list of numbers", f"{call}()", f"write {name}=[{value}], a number for each axis or channel" if alone else
                        "give a list with a number for each axis or channel")
    return list(value)


def _names(value: Any, name: str, call: str) -> list[str]:
    """A list of names, also of one alone: as a list a text would be its letters."""
    names = [value] if isinstance(value, str) else list(value) if hasattr(value, "__iter__") else [value]
    for each in names:
        if not isinstance(each, str):
            raise KindError(f"{name} names {each!r}, a {type(each).__name__}", f"{call}()", "give the name of a field, or a list of names")
    return names


def _mapping(value: Any, name: str, call: str, right: str) -> dict[str, Any]:
    # Not dict(value), which makes {"/": "x"} of ["/x"].
    if not isinstance(value, Mapping):
        raise KindError(f"{name} is a {type(value).__name__}, no dictionary", f"{call}()", f"write {right}")
    return dict(value)


class Step:
    """A step of an augmentation, for Pipeline.augment()."""

    def __init__(self, kind: str, **keys: Any):
        self._json = {"kind": kind, **{name: value for name, value in keys.items() if value is not None}}

    def __repr__(self) -> str:
        keys = ", ".join(f"{name}={value!r}" for name, value in self._json.items() if name != "kind")
        return f"headrace.{self._json['kind']}({keys})"


class Pipeline:
    """A source of samples, made by hdf5(), nifti(), images(), npy(), npz(), csv(), tokens(), concat() or groups(). It never
    changes: each method returns another pipeline."""

    def __init__(self, part: Mapping[str, Any]):
        self._part = dict(part)

    def __repr__(self) -> str:
        words, part = [], self._part
        while part is not None:
            words.append(part["kind"])
            part = None if part["kind"] in ("concat", "groups") else part.get("of")
        return f"<headrace.Pipeline {' < '.join(words)}>"

    def _above(self, kind: str, **keys: Any) -> Pipeline:
        if self._part["kind"] == "groups":
            raise UsageError(f"{kind} of groups", f"Pipeline.{kind}()", "call it on each data set, then make the groups")
        return Pipeline({"kind": kind, **keys, "of": self._part})

    def augment(self, fields: str | Sequence[str], *steps: Step) -> Pipeline:
        """Applies steps to `fields`. Each read draws new random numbers by (seed, epoch, position). All fields of one call get the
        same numbers, so that a picture and its mask are flipped alike. The steps run on the reader threads."""
        names = _names(fields, "fields", "Pipeline.augment")
        for step in steps:
            if not isinstance(step, Step):
                raise KindError(f"a step is {step!r}", "Pipeline.augment()", "give steps such as headrace.random_flip([-1])")
        return self._above("augment", names=names, steps=[step._json for step in steps])

    def split(self, share: float = 0.9, *, seed: int = 0) -> tuple[Pipeline, Pipeline]:
        """Returns two pipelines: about `share` of the samples, and the others. The choice depends only on `seed` and the number of
        a sample. So it is the same in every run, and samples that are appended later move no other sample."""
        if isinstance(share, (str, bytes)) or not 0 < share < 1:
            raise UsageError(f"a share of {share}", "Pipeline.split()", "give a number between 0 and 1")
        return self.share(0, share, seed=seed), self.share(share, 1, seed=seed)

    def share(self, begin: float, end: float, *, seed: int = 0) -> Pipeline:
        """The samples whose random number, drawn from 0 to 1, is in [begin, end). For splits into more than two parts."""
        return self._above("share", **{"from": begin, "to": end}, seed=seed)

    def subset(self, indices: Iterable[int]) -> Pipeline:
        """The samples with these numbers, in this order; a number may occur several times."""
        if not hasattr(indices, "__iter__"):
            raise KindError(f"indices is {indices!r}, no list", "Pipeline.subset()", f"the first samples are pipeline.take({indices})" if isinstance(indices, int) else "give whole numbers")
        numbers = [index.item() if hasattr(index, "item") else index for index in indices]
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int):
                raise KindError(f"an index is {number!r}, a {type(number).__name__}", "Pipeline.subset()",
                                "give whole numbers; of a mask, those of numpy.flatnonzero(mask)")
        return self._above("subset", indices=numbers)

    def take(self, count: int) -> Pipeline:
        """The first `count` samples."""
        return self._above("take", count=count)

    def repeat(self, times: int) -> Pipeline:
        """All samples `times` times in an epoch, each augmented anew."""
        return self._above("repeat", times=times)

    def map(self, function: Callable | int, makes: Mapping[str, tuple[str, Sequence[int]]], *, name: str | None = None,
            drops: Sequence[str] = ()) -> Pipeline:
        """Adds fields that a function makes from each sample, on the reader threads. `makes` names them: {"x": ("f32", (3, 64))}. A
        made field replaces a field of the same name. All other fields are passed on, except those in `drops`. `name` is by
        default the function's name. A state can be loaded only if `name` is the same, so put parameters into it.

        A Python function is called as function(sample, random). `sample` is {field: numpy array}, valid during the call. `random`
        is a numpy Generator for this sample, epoch and position. The function returns {field: array}, with numbers that the field's
        dtype can hold. Only one thread at a time runs Python, so such functions slow down readers and the training loop;
        Loader.counters()["python_seconds"] says how long.
        The address of a C function, or a function compiled by numba.cfunc, runs on all readers at once: int f(const void* const*
        fields, void* const* made, uint64_t seed, void* context), with `makes` sorted by name. It returns 0 for success. An
        exception, or another result than 0, means a bad sample: see Loader(bad_samples=...)."""
        address = function if isinstance(function, int) else getattr(function, "address", None)
        if isinstance(function, bool) or address == 0 or address is None and not callable(function):
            raise KindError(f"the function of a map is {function!r}", "Pipeline.map()", "give a function, or the address of a C function")
        called = name or getattr(function, "__qualname__", None)
        if called is None:
            raise UsageError("the function of a map has no name", "Pipeline.map()", 'give name="...", with its parameters in it')
        try:
            made = {field: {"dtype": dtype, "shape": list(shape)} for field, (dtype, shape) in makes.items()}
        except (TypeError, ValueError, AttributeError):
            raise KindError(f"makes is {makes!r}", "Pipeline.map()", 'write {"x": ("f32", (3, 64))}: dtype and shape of each field; () is the shape of a number') from None
        return self._above("map", function=_Function(function, address), name=called, makes=made, drops=_names(drops, "drops", "Pipeline.map"))


class _Function:
    """The function of a map. It gets a number when a loader is opened."""

    def __init__(self, function: Any, address: int | None):
        self.function, self.address = function, address


def described(part: Any, functions: list[_Function]) -> Any:
    """The JSON of a part. Its functions are replaced by their numbers in `functions`."""
    if isinstance(part, _Function):
        functions.append(part)
        return len(functions) - 1
    if isinstance(part, Mapping):
        return {key: described(value, functions) for key, value in part.items()}
    if isinstance(part, list) and part and isinstance(part[0], Mapping):
        return [described(value, functions) for value in part]
    return part


def _part(pipeline: Any, call: str) -> Mapping[str, Any]:
    if not isinstance(pipeline, Pipeline):
        raise KindError(f"{pipeline!r} is no pipeline", f"headrace.{call}()", "give pipelines, as of headrace.hdf5()")
    return pipeline._part


def _file(path: Path, call: str) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise KindError(f"a path is a {type(path).__name__}", f"headrace.{call}()", "give the path of a file, as a text or a pathlib.Path")
    name = os.fsdecode(path)
    folder, last = os.path.split(name)
    pattern = glob.has_magic(last)
    if not (pattern and glob.glob(os.path.join(glob.escape(folder), last)) or os.path.exists(name)):
        raise MissingError(f'no file matches "{name}"' if pattern else f'there is no file "{name}"', f"headrace.{call}()",
                           f"check the path; only its last part may be a pattern; the current folder is {os.getcwd()}")
    return name


def _files(paths: Path | Iterable[Path], call: str) -> list[str]:
    some = list(paths) if hasattr(paths, "__iter__") and not isinstance(paths, (str, bytes, os.PathLike)) else [paths]
    if not some:
        raise UsageError("no file is named", f"headrace.{call}()", "give a path, a pattern such as *.h5, or a list of paths")
    return [_file(path, call) for path in some]


def hdf5(files: Path | Iterable[Path], datasets: Mapping[str, str], *, rows: bool = True,
         keep: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> Pipeline:
    """Data sets of HDF5 files: {"x": "/x"} names each field and its data set. A sample is an index of the first axis (rows=True) or
    a whole file (rows=False). All files must have the same types and shapes; with rows=True the first axis may differ. `keep`
    reads only parts [begin, end) of a field's last axes: {"vis": [(0, 64)]}."""
    part: dict[str, Any] = {"kind": "hdf5", "files": _files(files, "hdf5"), "rows": rows,
                            "datasets": _mapping(datasets, "datasets", "headrace.hdf5", '{"x": "/x"}: a field, and its data set')}
    if keep:
        given = _mapping(keep, "keep", "headrace.hdf5", '{"x": [(0, 64)]}')
        part["keep"] = {name: [_numbers(pair, f"a part of keep[{name!r}]", "headrace.hdf5") for pair in pairs] for name, pairs in given.items()}
    return Pipeline(part)


def nifti(files: Path | Iterable[Path], *, name: str = "volume", crop: Sequence[int] = (), random: bool = True,
          as_float: bool = False) -> Pipeline:
    """Volumes of .nii and .nii.gz files. With `crop` (one size per axis, slowest first), a block of each volume, at a random place
    or in the centre. Values are the stored numbers, or with as_float f32 values scaled as the header says."""
    return Pipeline({"kind": "nifti", "files": _files(files, "nifti"), "name": name, "crop": _numbers(crop, "crop", "headrace.nifti"),
                     "random": random, "as_float": as_float})


def images(files: Path | Iterable[Path] | None = None, *, labelled: Path | None = None, name: str = "image",
           crop: int | tuple[int, int] = (224, 224), pixels: str = "rgb", random: bool = True, flip: bool = False, reduce: bool = False,
           normalise: bool = False, mean: Sequence[float] = _MEAN, deviation: Sequence[float] = _DEVIATION) -> Pipeline:
    """Crops of JPEG and PNG files: u8 [height, width, channels], or with normalise=True f32 [channels, height, width] of (value /
    255 - mean) / deviation. `labelled`, instead of `files`, is a folder with a subfolder for each class, and adds the field
    "label", i64 []. `crop` is height and width in pixels, or one number for both. Pictures are not resized, so a picture that is
    smaller than the crop is a bad sample. `reduce` decodes a JPEG at 1/2, 1/4 or 1/8 of its size if the crop still fits.
    `pixels`: "rgb" or "gray"."""
    sides = _numbers((crop, crop) if isinstance(crop, int) else crop, "crop", "headrace.images")
    part: dict[str, Any] = {"kind": "images", "name": name, "crop": sides, "pixels": pixels, "random": random,
                            "flip": flip, "reduce": reduce, "normalise": normalise, "mean": _numbers(mean, "mean", "headrace.images"),
                            "deviation": _numbers(deviation, "deviation", "headrace.images")}
    for given, numbers, usual in (("mean", mean, _MEAN), ("deviation", deviation, _DEVIATION)):
        if numbers is not usual and not normalise:
            raise UsageError(f"{given} is given, and pictures are not normalised", "headrace.images()", f"add normalise=True, or leave {given} out")
        if numbers is not usual and len(part[given]) not in (1, 1 if pixels == "gray" else 3):
            raise UsageError(f"{given} has {len(part[given])} numbers for pixels={pixels!r}", "headrace.images()", "give one for each channel, or one for all")
    if (files is None) == (labelled is None):
        raise UsageError("images needs files or a labelled folder", "headrace.images()", "give one of them")
    if files is not None:
        part["files"] = _files(files, "images")
    else:
        part["labelled"] = _file(labelled, "images")
    return Pipeline(part)


def npy(arrays: Mapping[str, Path]) -> Pipeline:
    """Rows of .npy files, each file a field: {"x": "x.npy", "y": "y.npy"}. The first axes must have equal length."""
    given = _mapping(arrays, "arrays", "headrace.npy", '{"x": "x.npy"}: a field, and its file')
    return Pipeline({"kind": "npy", "arrays": {name: _file(path, "npy") for name, path in given.items()}})


def npz(files: Path | Iterable[Path], names: Sequence[str] = ()) -> Pipeline:
    """Each .npz file is a sample. Its fields are the arrays `names`, or all arrays."""
    return Pipeline({"kind": "npz", "files": _files(files, "npz"), "names": _names(names, "names", "headrace.npz")})


def csv(file: Path, columns: Mapping[str, str | Sequence[str] | None], *, whole: Sequence[str] = ()) -> Pipeline:
    """Rows of a table whose first row names the columns: {"x": ["speed", "angle"]} is f32 [2]; {"distance": None} is the column of that
    name, f32 []. Fields of `whole` are i64. The table is read into memory."""
    given = _mapping(columns, "columns", "headrace.csv", '{"x": ["speed", "angle"]}: a field, and its columns')
    fields = {name: _names(() if chosen is None else chosen, f"columns[{name!r}]", "headrace.csv") for name, chosen in given.items()}
    return Pipeline({"kind": "csv", "file": _file(file, "csv"), "columns": fields, "whole": _names(whole, "whole", "headrace.csv")})


def tokens(file: Path, window: int, *, overlap: int = 0, dtype: str | None = None, vocabulary: int | None = None) -> Pipeline:
    """Windows of `window` tokens, as the field "tokens", from a token file of Millrace. With `dtype` "u16" or "u32", from a file of
    bare little-endian ids, all below `vocabulary`. Neighbouring windows share `overlap` tokens: 1 if the next token is the
    target."""
    sizes = {None: 0, "u16": 2, "uint16": 2, "u32": 4, "uint32": 4}
    if not isinstance(dtype, (str, type(None))) or dtype not in sizes:
        raise UsageError(f"tokens of dtype {dtype!r}", "headrace.tokens()", 'give "u16" or "u32", or None for a token file of Millrace')
    part = {"kind": "tokens", "file": _file(file, "tokens"), "window": window, "overlap": overlap, "bytes": sizes[dtype]}
    if vocabulary is not None and not sizes[dtype]:
        raise UsageError("vocabulary is given without dtype", "headrace.tokens()", 'give dtype="u16" or "u32" for bare ids; a token file of Millrace states its vocabulary')
    if vocabulary is not None:
        part["vocabulary"] = vocabulary
    elif sizes[dtype]:
        part["vocabulary"] = 1 << (8 * sizes[dtype])
    return Pipeline(part)


def concat(pipelines: Iterable[Pipeline]) -> Pipeline:
    """The samples of all pipelines, one after the other. Their fields must be equal."""
    some = [pipelines] if not hasattr(pipelines, "__iter__") else pipelines
    return Pipeline({"kind": "concat", "of": [_part(one, "concat") for one in some]})


def groups(pipelines: Mapping[str, Pipeline], grouping: str = "each", *, weights: Mapping[str, float] | None = None,
           samples_per_epoch: int | None = None) -> Pipeline:
    """Several data sets of different shapes in each batch: {"a": {field: tensor}, "b": ...}. `grouping`: "each" has batch_size rows
    of each until the longest ends; "repeat" begins the shorter ones again; "cut" ends with the shortest; "mix" has batch_size
    rows in total, drawn by `weights`. A group may have no rows."""
    part: dict[str, Any] = {"kind": "groups", "grouping": grouping, "of": {
        name: _part(one, "groups") for name, one in _mapping(pipelines, "pipelines", "headrace.groups", '{"a": pipeline, "b": pipeline}').items()}}
    if weights:
        part["weights"] = _mapping(weights, "weights", "headrace.groups", '{"a": 2, "b": 1}')
    if samples_per_epoch is not None:
        part["samples_per_epoch"] = samples_per_epoch
    return Pipeline(part)


def random_crop(size: Sequence[int], *, margin: Sequence[int] = (), border: str = "constant", value: float = 0) -> Step:
    """Cuts out a part of `size` (of the last axes) at a random place. Margins are added first: constant, or border="reflect"."""
    return Step("random_crop", size=_numbers(size, "size", "headrace.random_crop"), margin=_numbers(margin, "margin", "headrace.random_crop"), border=border, value=value)


def centre_crop(size: Sequence[int], *, margin: Sequence[int] = (), border: str = "constant", value: float = 0) -> Step:
    """Cuts out the central part of `size`."""
    return Step("centre_crop", size=_numbers(size, "size", "headrace.centre_crop"), margin=_numbers(margin, "margin", "headrace.centre_crop"), border=border, value=value)


def pad(margin: Sequence[int], *, border: str = "constant", value: float = 0) -> Step:
    """Adds margins on both sides of the last axes."""
    return Step("pad", margin=_numbers(margin, "margin", "headrace.pad"), border=border, value=value)


def random_flip(axes: Sequence[int], probability: float = 0.5) -> Step:
    """Reverses each of `axes` with `probability`."""
    return Step("random_flip", axes=_numbers(axes, "axes", "headrace.random_flip"), probability=probability)


def random_roll(axes: Sequence[int]) -> Step:
    """Shifts each of `axes` cyclically, for periodic arrays."""
    return Step("random_roll", axes=_numbers(axes, "axes", "headrace.random_roll"))


def normalise(mean: Sequence[float], deviation: Sequence[float]) -> Step:
    """Computes (x - mean) / deviation as f32, with one number for each index of the first axis, or one for all; u8 is first divided
    by 255."""
    return Step("normalise", mean=_numbers(mean, "mean", "headrace.normalise"), deviation=_numbers(deviation, "deviation", "headrace.normalise"))


def gaussian_noise(deviation: float) -> Step:
    """Adds normal random numbers to an f32 array."""
    return Step("gaussian_noise", deviation=deviation)
