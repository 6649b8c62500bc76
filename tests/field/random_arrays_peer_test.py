"""Random .npy, .npz, .safetensors and NIfTI files against NumPy, safetensors and nibabel."""
import gzip
import io
import unittest
import zipfile

import nibabel
import numpy as np
import torch
from safetensors.torch import save_file

from probe import Made, ProbeTest, numbers, shape_of

NUMBERS = ["?", "u1", "i1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8", "<u8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8",
           ">f8", "<c8", ">c8", "<c16", ">c16"]
OTHERS = ["S3", "<U2", "<M8[ns]", "<m8[s]", "<f16", "V4"]


def ordered(draws, array):
    """The same array, as its bytes may lie."""
    way = draws.integers(0, 4)
    if way == 1:
        return np.asfortranarray(array)
    if way == 2 and array.ndim > 1:
        return array.transpose(draws.permutation(array.ndim))
    return array


def any_array(draws):
    if draws.random() < 0.08:
        return np.zeros(shape_of(draws), draws.choice(OTHERS)), False
    return ordered(draws, numbers(draws, draws.choice(NUMBERS), shape_of(draws))), True


def npy_bytes(draws, array):
    """As NumPy writes it, or as others do: other versions, spaces, keys in another order, double quotes."""
    file = io.BytesIO()
    version = [None, (1, 0), (2, 0), (3, 0)][draws.integers(0, 4)]
    np.lib.format.write_array(file, array, version=version)
    content = file.getvalue()
    if draws.random() < 0.7 or version not in (None, (1, 0)):
        return content
    data = content[10 + int.from_bytes(content[8:10], "little"):]
    header = np.lib.format.header_data_from_array_1_0(array)
    keys = list(draws.permutation(sorted(header)))
    blank = " " * int(draws.integers(0, 3))
    text = "{" + ",".join(f"{blank}'{key}':{blank}{header[key]!r}" for key in keys) + draws.choice(["}", ", }", ",}"])
    if draws.random() < 0.5:
        text = text.replace("'", '"')
    text += " " * int(draws.integers(0, 40)) + draws.choice(["\n", ""])
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text.encode() + data


class RandomArrays(ProbeTest):
    def test_npy(self):
        def make(folder, seed):
            draws = np.random.default_rng(1000 + seed)
            array, is_read = any_array(draws)
            path = folder / f"{seed}.npy"
            path.write_bytes(npy_bytes(draws, array))
            return Made({"kind": "npy", "path": path}, {"": np.load(path)}, refused=() if is_read else ("the array has",))

        self.check_random(make)

    def test_npz(self):
        def make(folder, seed):
            draws = np.random.default_rng(2000 + seed)
            path = folder / f"{seed}.npz"
            read, words = {}, {}
            mode = zipfile.ZIP_DEFLATED if draws.random() < 0.5 else zipfile.ZIP_STORED
            with zipfile.ZipFile(path, "w", mode) as archive:
                for name in ["x", "a b", "µ/deep", "n.1", "arr_0", "X"][:draws.integers(1, 7)]:
                    array, is_read = any_array(draws)
                    how = [None, zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED][draws.integers(0, 3)]
                    content = npy_bytes(draws, array)
                    if draws.random() < 0.3:  # of unknown length: sizes stand behind the data
                        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=bool(draws.random() < 0.5)) as member:
                            member.write(content)
                    else:
                        archive.writestr(f"{name}.npy", content, how)
                    if is_read:
                        read[name] = array
                if draws.random() < 0.3:
                    archive.writestr("notes.txt", "words")
                if draws.random() < 0.3:
                    archive.writestr("__MACOSX/._x.npy", b"\0\5\x16\7")
                if draws.random() < 0.2:
                    archive.comment = b"a comment"
            if draws.random() < 0.3:
                path.write_bytes(path.read_bytes() + [b"\n", b"\0" * 50, b"\r\n"][draws.integers(0, 3)])
            with np.load(path) as theirs:
                read = {name: theirs[name] for name in read}
            return Made({"kind": "npz", "path": path}, read, words)

        self.check_random(make)

    def test_safetensors(self):
        kinds = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
                 torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
        eights = [torch.float8_e4m3fn, torch.float8_e5m2]

        def make(folder, seed):
            draws = np.random.default_rng(3000 + seed)
            tensors, odd = {}, False
            for i in range(draws.integers(1, 9)):
                kind = kinds[draws.integers(0, len(kinds))]
                if draws.random() < 0.02:
                    kind, odd = eights[draws.integers(0, 2)], True
                shape = shape_of(draws)
                size = torch.empty((), dtype=kind).element_size()
                raw = torch.frombuffer(bytearray(draws.bytes(int(np.prod(shape)) * size + 8)), dtype=torch.uint8)[:int(np.prod(shape)) * size]
                tensor = (raw > 127) if kind == torch.bool else raw.view(kind)
                tensors[draws.choice(["a", "layer.weight", "ü.ö", "b c", 'q"t'], 1)[0] + str(i)] = tensor.reshape(shape).clone()
            path = folder / f"{seed}.safetensors"
            save_file(tensors, path, metadata={"format": "pt", "ü": "\n\"x\""} if draws.random() < 0.5 else None)
            expected = {name: (t.view(torch.uint16) if t.dtype == torch.bfloat16 else t).numpy() for name, t in tensors.items()
                        if t.dtype not in eights}
            return Made({"kind": "safetensors", "path": path}, expected, refused=("F8_E",) if odd else ())

        self.check_random(make)

    def test_nifti(self):
        kinds = ["u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "c8", "c16"]

        def make(folder, seed):
            draws = np.random.default_rng(4000 + seed)
            kind = draws.choice(kinds)
            shape = tuple(int(n) for n in draws.integers(1, 8, draws.integers(1, 6)))
            order = draws.choice(["<", ">"])
            image_class = [nibabel.Nifti1Image, nibabel.Nifti2Image, nibabel.Nifti1Pair][draws.integers(0, 3)]
            values = numbers(draws, kind, shape)
            if kind[0] == "f":
                values = np.where(np.isfinite(values), values, 1).astype(kind)
            header = image_class.header_class(endianness=order)
            image = image_class(values, np.eye(4), header=header, dtype=values.dtype)
            image.header.set_data_dtype(values.dtype)
            scaled = kind[0] != "c" and draws.random() < 0.6
            if draws.random() < 0.3:
                image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", draws.bytes(int(draws.integers(0, 40))).strip(b"\0")))
            suffix = ".img" if image_class is nibabel.Nifti1Pair else ".nii" + draws.choice(["", ".gz"])
            path = folder / f"{seed}{suffix}"
            nibabel.save(image, path)
            head = path.with_suffix(".hdr") if suffix == ".img" else path
            # Slopes are put in afterwards: nibabel's writer would scale the numbers by them.
            content = bytearray(gzip.decompress(head.read_bytes()) if suffix.endswith("gz") else head.read_bytes())
            slope, intercept = (draws.choice([0.37, -2.5, 1e-3, 1, 0, np.nan, np.inf]), draws.choice([0, -4.25, 1000, 1e7])) if scaled else (1, 0)
            at, word = (176, "f8") if image_class is nibabel.Nifti2Image else (112, "f4")
            pair = np.array([slope, intercept], order + word).tobytes()
            content[at:at + len(pair)] = pair
            head.write_bytes(gzip.compress(content) if suffix.endswith("gz") else content)
            theirs = nibabel.load(path)
            stored = np.asarray(theirs.dataobj.get_unscaled())
            read = {"stored": stored.transpose()}
            if kind[0] != "c":
                with np.errstate(over="ignore", invalid="ignore"):
                    read["scaled"] = theirs.get_fdata().astype("f4").transpose()
            return Made({"kind": "nifti", "path": path}, read)

        self.check_random(make)


if __name__ == "__main__":
    unittest.main()
