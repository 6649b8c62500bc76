"""Random HDF5 files against h5py: layouts, filters, types, byte orders, versions of the format, texts, complex numbers."""
import unittest

import h5py
import numpy as np

from probe import Made, ProbeTest, numbers, same

VERSIONS = ["earliest", "v108", "v110", "v112", "v114", "latest"]
NUMBERS = ["?", "u1", "i1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", "<i8", ">i8", "<u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8", "<c8",
           ">c8", "<c16"]
COMPLEX = [("r", "i"), ("real", "imag"), ("re", "im"), ("i", "r"), ("imag", "real")]
# Of files whose writer asked for the newest forms: these are refused by name.
NEWER = "in a newer form of HDF5"


def layout_of(draws, shape):
    """Keywords for create_dataset."""
    if not shape or 0 in shape or draws.random() < 0.3:
        return {}
    chunks = tuple(int(draws.integers(1, n + 1)) for n in shape)
    options = {"chunks": chunks, "shuffle": bool(draws.random() < 0.4), "fletcher32": bool(draws.random() < 0.3)}
    options["compression"] = [None, None, "gzip", "lzf"][draws.integers(0, 4)]
    if draws.random() < 0.4:
        options["maxshape"] = tuple(n if draws.random() < 0.5 else [None, n + 3][draws.integers(0, 2)] for n in shape)
    return options


def put_numbers(draws, file, name, shape):
    values = numbers(draws, draws.choice(NUMBERS), shape)
    options = layout_of(draws, shape)
    way = draws.integers(0, 6)
    if way == 0 and values.dtype.kind in "iu" and options and values.dtype.itemsize < 8:
        options.update(scaleoffset=0, compression=None, shuffle=False, fletcher32=False)
    if way == 1 and options:  # only a part is written
        part = tuple(slice(0, int(draws.integers(0, n + 1))) for n in shape)
        made = file.create_dataset(name, shape, values.dtype, fillvalue=values.flat[0] if draws.random() < 0.5 else None, **options)
        made[part] = values[part]
    elif way == 2 and "maxshape" in options:  # grows and shrinks
        made = file.create_dataset(name, data=values, **options)
        for _ in range(2):
            made.resize(tuple(n if m == n else int(draws.integers(1, min(n + 3, m or n + 3) + 1)) for n, m in zip(made.shape, made.maxshape)))
    elif way == 3 and options:  # edges without filters, and a chunk that says so of itself
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk(options["chunks"])
        plist.set_deflate(4)
        if draws.random() < 0.5:
            plist.set_fletcher32()
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(shape), plist)
        file[name][...] = values
        whole = np.zeros(options["chunks"], values.dtype)
        file[name].id.write_direct_chunk((0,) * len(shape), whole.tobytes(), filter_mask=3)
        try:
            file[name][()]
        except OSError:  # h5py does not read it back
            file[name][...] = values
    elif way == 4 and values.size and values.nbytes < 1000:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        h5py.h5d.create(file.id, name.encode(), h5py.h5t.py_create(values.dtype, logical=True), h5py.h5s.create_simple(shape), plist)
        file[name][...] = values
    else:
        file.create_dataset(name, data=values, **options)
    return file[name][()]


def put_complex(draws, file, name, shape):
    """As programs without h5py's names write them."""
    first, second = COMPLEX[draws.integers(0, len(COMPLEX))]
    part = draws.choice(["<f2", "<f4", "<f8", ">f4", ">f8", "<i2", "<i4"])
    padding = int(draws.choice([0, 0, 4]))
    kind = np.dtype({"names": [first, second], "formats": [part, part], "offsets": [0, np.dtype(part).itemsize],
                     "itemsize": 2 * np.dtype(part).itemsize + padding})
    values = np.zeros(shape, kind)
    for member in kind.names:
        values[member] = draws.normal(size=shape) * 100
    file.create_dataset(name, data=values, dtype=kind, **layout_of(draws, shape))
    real = first if first.startswith("r") else second
    imag = second if real == first else first
    wide = np.complex128 if part in ("<f8", ">f8", "<i4") else np.complex64
    return (values[real].astype(np.float64) + 1j * values[imag].astype(np.float64)).astype(wide)


def put_other(draws, file, name, shape):
    """What is no number: the words of its refusal."""
    kind = draws.integers(0, 8)
    if kind == 0:
        file[name] = "words µ"
        return "text"
    if kind == 1:
        file[name] = np.array([b"a", b"bc"], "S5")
        return "text"
    if kind == 2:
        file.create_dataset(name, shape, h5py.vlen_dtype("i4"))
        return "rows of variable length"
    if kind == 3:
        file.create_dataset(name, shape, np.dtype([("a", "f4"), ("b", "i4"), ("c", "f8")]))
        return "a compound"
    if kind == 4:
        file.create_dataset(name, shape, h5py.opaque_dtype(np.dtype("V6")))
        return "opaque bytes"
    if kind == 5:
        file.create_dataset(name, shape, h5py.ref_dtype)
        return "references"
    if kind == 6:
        file[name] = h5py.Empty("f4")
        return "no elements at all"
    number = h5py.h5t.STD_I32LE.copy()
    number.set_size(3)
    h5py.h5d.create(file.id, name.encode(), number, h5py.h5s.create_simple(shape or (1,)))
    return "integers of 3 bytes"


def put_virtual(draws, file, name):
    """Of another data set of the file, and of no data at its edge."""
    source = name + " source"
    file.create_dataset(source, data=numbers(draws, draws.choice(NUMBERS), (4, 3)), **layout_of(draws, (4, 3)))
    kind = file[source].dtype
    layout = h5py.VirtualLayout((3, 5), kind)
    layout[:, :3] = h5py.VirtualSource(".", source, (4, 3))[:3, :]
    file.create_virtual_dataset(name, layout, fillvalue=numbers(draws, kind, (1,))[0])
    return {"/" + each: file[each][()] for each in (name, source)}


def make(folder, seed):
    draws = np.random.default_rng(5000 + seed)
    path = folder / f"{seed}.h5"
    version = str(draws.choice(VERSIONS))
    arrays, unread = {}, {}
    with h5py.File(path, "w", libver=version, userblock_size=int(draws.choice([0, 0, 512, 2048])), track_order=bool(draws.random() < 0.3)) as file:
        for i in range(draws.integers(1, 8)):
            name = draws.choice(["a", "group/b", "deep/er/µ", "x y"]) + str(i)
            shape = tuple(int(n) for n in draws.integers(0 if draws.random() < 0.1 else 1, 9, draws.integers(0, 4)))
            file.require_group(("/" + name).rsplit("/", 1)[0] or "/")
            which = draws.random()
            if which < 0.08:
                arrays.update(put_virtual(draws, file, name))
            elif which < 0.65:
                arrays["/" + name] = put_numbers(draws, file, name, shape)
            elif which < 0.8:
                arrays["/" + name] = put_complex(draws, file, name, shape)
            else:
                unread["/" + name] = put_other(draws, file, name, shape)
            if draws.random() < 0.3:
                file[name].attrs["unit"] = "µV"
        if draws.random() < 0.3:
            file["link"] = h5py.SoftLink("/nowhere")
    return Made({"kind": "h5", "path": path}, arrays, unread), version


class RandomHdf5(ProbeTest):
    def test_hdf5(self):
        self.versions = {}

        def make_one(folder, seed):
            made, version = make(folder, seed)
            self.versions[made.request["path"]] = version
            return made

        self.check_random(make_one)

    def check_equal(self, made, arrays, words):
        version = self.versions[made.request["path"]]
        reasons = {name: reason for name, (reason, _) in words.items()}
        self.assertEqual(sorted({**arrays, **reasons}), sorted({**made.arrays, **made.words}))
        for name, reason in made.words.items():
            if name in arrays or (reason not in reasons[name] and not (NEWER in reasons[name] and version in VERSIONS[3:])):
                self.fail(f"{name}: {reasons.get(name, 'read')}, not {reason}")
        for name, theirs in made.arrays.items():
            if name in reasons:
                self.assertIn(NEWER, reasons[name], name)
                self.assertIn(version, VERSIONS[3:], name)
                continue
            theirs = np.asarray(theirs)
            theirs = theirs.astype(theirs.dtype.newbyteorder("="))
            self.assertTrue(same(arrays[name], theirs), f"{name}: {arrays[name].ravel()[:12]}, h5py has {theirs.ravel()[:12]}")


if __name__ == "__main__":
    unittest.main()
