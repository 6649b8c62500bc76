"""Random skies, uvh5 headers and weights in the names of wrappers, against what h5py and torch wrote."""
import unittest

import h5py
import numpy as np
import torch
from safetensors.torch import save_file

from probe import Made, ProbeTest

REAL = ["u1", "<i2", ">i4", "<i8", "<f4", ">f4", "<f8", ">f8"]
LINE_MHZ = 1420.405751768
UNITS = {"K": ["K", "kelvin", " Kelvin ", "K\0\0"], "Jy": ["Jy", "jansky", "JY"], "mK": ["mK"], "Jy/beam": ["Jy/beam"], "": [""]}


def put_list(draws, file, name, values, kinds):
    """The values in a type that holds them; returns them as that type has them."""
    kind = np.dtype(str(draws.choice([k for k in kinds if np.dtype(k).kind == "f" or np.array_equal(values, values.astype(k))])))
    options = {"chunks": (max(1, values.size // 2),), "compression": "gzip"} if draws.random() < 0.3 else {}
    file.create_dataset(name, data=values.astype(kind), **options)
    return values.astype(kind).astype(np.float64)


def put_frequencies(draws, file, count):
    """MHz that the file says."""
    mhz = float(draws.integers(40, 900)) + np.arange(count) * float(draws.choice([1, 2, 0.25, 0.5]))
    if draws.random() < 0.3:
        mhz = mhz[::-1].copy()
    way = draws.integers(0, 5)
    if way == 0:
        return np.zeros(0)
    if way == 1:
        redshift = put_list(draws, file, "index_map/redshift", LINE_MHZ / mhz - 1, ["<f8", ">f8", "<f4"])
        return LINE_MHZ / (1 + redshift)
    unit, factor = [("MHz", 1), ("Hz", 1e-6), ("GHz", 1e3), ("kHz", 1e-3), ("mhz", 1)][draws.integers(0, 5)]
    values = put_list(draws, file, "index_map/freq", mhz / factor, REAL)
    if way == 2 and unit in ("MHz", "Hz"):
        return values * (1e-6 if abs(values[0]) > 1e6 else 1)  # told by the size of the numbers
    file["index_map/freq"].attrs[str(draws.choice(["unit", "units"]))] = unit
    return values * factor


def put_unit(draws, file):
    unit = str(draws.choice(list(UNITS)))
    text = str(draws.choice(UNITS[unit]))
    way = draws.integers(0, 5)
    if not unit:
        return unit
    if way == 0:
        file["index_map/unit"] = text.strip("\0")
    elif way == 1:
        file["index_map/unit"] = np.bytes_(text)
    elif way == 2:
        file["index_map/unit"] = np.frombuffer(text.encode(), np.uint8)
    else:
        (file["vis"] if way == 3 else file).attrs[str(draws.choice(["unit", "units"]))] = text.strip("\0")
    return unit


def put_ra(draws, file, count):
    way = draws.integers(0, 4)
    if way == 0:
        return np.zeros(0)
    degrees = put_list(draws, file, "index_map/ra", np.arange(count) * float(draws.choice([1, 3, 0.5])), REAL)
    if way == 2:
        file["index_map/ra"].attrs["unit"] = str(draws.choice(["rad", "radian", "hours", "hourangle"]))
        return degrees * (180 / np.pi if file["index_map/ra"].attrs["unit"].startswith("rad") else 15)
    if way == 3:
        file["index_map/ra"].attrs["units"] = str(draws.choice(["deg", "degrees"]))
    return degrees


class RandomRecipes(ProbeTest):
    def test_skies(self):
        def make(folder, seed):
            draws = np.random.default_rng(11000 + seed)
            path = folder / f"{seed}.h5"
            channels, ra = (int(n) for n in draws.integers(2, 9, 2))
            with h5py.File(path, "w", libver=str(draws.choice(["earliest", "v110"]))) as file:
                file["vis"] = np.zeros((3, channels, ra), np.complex64)
                arrays = {"freq_mhz": put_frequencies(draws, file, channels), "ra": put_ra(draws, file, ra)}
                return Made({"kind": "sky", "path": path}, arrays, {"unit": put_unit(draws, file), "unread": []})

        self.check_random(make)

    def test_uvh5(self):
        def make(folder, seed):
            draws = np.random.default_rng(12000 + seed)
            path = folder / f"{seed}.uvh5"
            antennas, rows, channels = (int(n) for n in draws.integers(2, 9, 3))
            numbers = draws.permutation(60)[:antennas]
            polarisations = draws.permutation([-8, -7, -6, -5, 1, 2])[:draws.integers(1, 4)]
            shape = (rows, channels, len(polarisations))
            if draws.random() < 0.3:
                shape = (rows, 1, channels, len(polarisations))
            arrays = {}
            with h5py.File(path, "w", libver=str(draws.choice(["earliest", "v110"]))) as file:
                file.create_dataset("Data/visdata", data=np.ones(shape, str(draws.choice(["c8", "c16", ">c8"]))),
                                    chunks=(1, *shape[1:]) if draws.random() < 0.4 else None)
                whole = ["u1", "<i4", ">i4", "<i8", "<f8", "<f4"]
                first, second = draws.choice(numbers, (2, rows))
                pairs = [put_list(draws, file, f"Header/ant_{i}_array", v, whole) for i, v in ((1, first), (2, second))]
                arrays["pairs"] = np.stack(pairs, 1).astype(np.int64).ravel()
                arrays["times"] = put_list(draws, file, "Header/time_array", 2459000 + draws.random(rows), ["<f8", ">f8"])
                frequencies = np.arange(channels) * 1e6 + 1e8
                arrays["freq_hz"] = put_list(draws, file, "Header/freq_array", frequencies, ["<f4", "<f8", ">f8", "<i8"])
                kinds = ["i1", "<i4", "<i8", ">i8", "<f8"]
                arrays["polarisations"] = put_list(draws, file, "Header/polarization_array", polarisations, kinds).astype(int)
                file["Header/vis_units"] = np.bytes_("Jy") if draws.random() < 0.5 else "Jy"
                order = np.argsort(numbers)
                places = draws.normal(size=(antennas, 3)).astype(str(draws.choice(["<f4", "<f8", ">f8"])))
                put_list(draws, file, "Header/antenna_numbers", numbers, whole)
                file["Header/antenna_positions"] = places
                file["Header/latitude"], file["Header/longitude"] = -30.7, 21.4
                arrays["antennas"] = numbers[order].astype(int)
                arrays["places"] = places[order].astype(np.float64).ravel()
            return Made({"kind": "uvh5", "path": path}, arrays, {"unit": "Jy"})

        self.check_random(make)

    def test_weights_of_wrappers(self):
        def make(folder, seed):
            draws = np.random.default_rng(13000 + seed)
            torch.manual_seed(seed)
            kinds = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
            names = ["embed.weight", "layers.0.w", "layers.0.b", "layers.1.w", "head", "model.norm", "blocks.module_a.w"]
            tensors = {n: torch.randn([int(s) for s in draws.integers(1, 5, draws.integers(0, 3))]).to(kinds[draws.integers(0, 4)])
                       for n in [str(n) for n in draws.permutation(names)[:draws.integers(1, 8)]]}
            words = ["module.", "_orig_mod.", "model.", "state_dict.", "model_state_dict."]
            prefix = "".join(str(w) for w in draws.choice(words, draws.integers(0, 4)))
            saved = {}
            for name, tensor in tensors.items():
                inside = name.replace("layers.0.", "layers.0._orig_mod.") if draws.random() < 0.3 else name
                saved[prefix + inside] = tensor
            if draws.random() < 0.4:
                saved["optimizer.step"] = torch.ones(1)
            path = folder / (f"{seed}.pt" if draws.random() < 0.5 else f"{seed}.safetensors")
            if path.suffix == ".pt":
                torch.save(nested(saved) if draws.random() < 0.5 else saved, path)
            else:
                save_file(saved, path)
            return Made({"kind": "weights", "path": path, "wanted": {n: list(t.shape) for n, t in tensors.items()}},
                        {n: t.to(torch.float64).numpy() for n, t in tensors.items()}, optional=("is missing",))

        self.check_random(make, most_refused=0.2)


def nested(flat):
    """What stands before the first point is a dictionary, as trainers save a part beside others."""
    made = {}
    for name, tensor in flat.items():
        part, point, rest = name.partition(".")
        if point:
            made.setdefault(part, {})[rest] = tensor
        else:
            made[part] = tensor
    return made


if __name__ == "__main__":
    unittest.main()
