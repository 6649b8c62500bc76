"""Remedies of the readers of skies, HDF5 and uvh5 files, done as they are printed; see remedies.py."""
import re
import shutil
import unittest

import h5py
import numpy as np
from remedies import RemedyTest, Row
from sky_axes_peer_test import CHANNELS, OPTIONS, PLAIN, RA
from sky_axes_peer_test import write as write_sky
from uvh5_peer_test import write as write_uvh5


class Skies(RemedyTest):
    def test_files_that_say_too_much_or_other_things(self):
        sky = self.folder / "sky"

        def sound(name, **more):
            return lambda *_: write_sky(sky / f"{name}.h5", 1, **more)

        def units(name, two):
            def write():
                write_sky(sky / f"{name}.h5", 1, unit="K", cube_unit="Jy" if two else None)
            return lambda *_: write()

        nan = PLAIN.copy()
        nan[3] = np.nan
        ra = np.arange(RA) * 0.5
        rows = [
            Row("leave one unit in the file", units("foreground/a", True), units("foreground/a", False)),
            Row("convert signal and foreground to the same unit", sound("foreground/b", unit="Jy"), sound("foreground/b", unit="K")),
            Row("write the axis anew with as many numbers as the cube has, or leave it out of all files", sound("foreground/c", freq=PLAIN[:9]),
                sound("foreground/c")),
            Row("write the axis anew, or leave it out of all files", sound("foreground/d", freq=nan), sound("foreground/d")),
            Row("give signal and foreground the same grid along RA: regrid or remove the file", sound("foreground/e", ra=ra * 2), sound("foreground/e", ra=ra)),
            Row("…reverse the channels of one of the two files, in its cube and its axis…give signal and foreground the same channels: "
                "regrid or remove the file", sound("foreground/f", freq=PLAIN + 60), lambda _: (sky / "foreground" / "f.h5").unlink(),
                says="give signal and foreground the same channels: regrid or remove the file"),
            Row("…reverse the channels of one of the two files, in its cube and its axis…give signal and foreground the same channels: "
                "regrid or remove the file", sound("foreground/i", freq=PLAIN[::-1]), self.turned("foreground/i"), says="reverse the channels of one of the two files"),
            Row("remove or regrid the file", lambda: self.cube("foreground/g", (4, CHANNELS, RA * 2)), self.regridded("foreground/g")),
            Row("write it again as numbers, all in this file, or name another dataset with recipe.vis_dataset", lambda: self.text_cube("foreground/h"),
                sound("foreground/h")),
        ]
        for name in ("signal/a", "signal/b", "foreground/y", "foreground/z"):
            write_sky(sky / f"{name}.h5", 2, ra=ra)
        self.follow(rows, lambda status: self.run_millrace("train", "cosmology", "--data", sky, *OPTIONS, "--device.threads=1", status=status))

    def cube(self, name, shape):
        with h5py.File(self.folder / "sky" / f"{name}.h5", "w") as file:
            file["vis"] = np.ones(shape, np.complex64)

    def text_cube(self, name):
        with h5py.File(self.folder / "sky" / f"{name}.h5", "w") as file:
            file["vis"] = np.array(["a"] * 4, dtype=h5py.string_dtype())

    def turned(self, name):
        """Cube and axis in the other order of channels."""
        def write(_):
            with h5py.File(self.folder / "sky" / f"{name}.h5", "r+") as file:
                file["vis"][...] = file["vis"][()][:, ::-1]
                file["index_map/freq"][...] = file["index_map/freq"][()][::-1]
        return write

    def regridded(self, name):
        """Every second sample along RA, as a regridding to the others' grid gives it."""
        def write(_):
            with h5py.File(self.folder / "sky" / f"{name}.h5", "r+") as file:
                cube = file["vis"][..., ::2]
                del file["vis"]
                file["vis"] = cube
        return write



class OtherSkies(RemedyTest):
    def run_training(self, *words):
        return lambda status: self.run_millrace("train", "cosmology", *words, *self.options, status=status)

    def test_files_that_are_damaged(self):
        sky, self.options = self.folder / "sky", [*OPTIONS, "--data.batch_size=64", "--device.threads=1"]

        def sound(name):
            return lambda *_: write_sky(sky / f"{name}.h5", 1)

        def cut(name):
            sound(name)()
            path = sky / f"{name}.h5"
            path.write_bytes(path.read_bytes()[:700])

        def chunked(name, **how):
            path = sky / f"{name}.h5"
            with h5py.File(path, "w") as file:
                file.create_dataset("vis", data=np.ones((4, CHANNELS, RA), np.complex64), chunks=(4, CHANNELS, RA), **how)
                at = file["vis"].id.get_chunk_info(0).byte_offset
            content = bytearray(path.read_bytes())
            content[at + 20] ^= 0xFF
            path.write_bytes(content)

        def nan():
            sound("signal/f")()
            with h5py.File(sky / "signal" / "f.h5", "r+") as file:
                file["vis"][1, 2, 3] = np.nan

        for name in ("signal/a", "signal/b", "foreground/y", "foreground/z"):
            sound(name)()
        self.follow([
            Row("check the program that wrote it; …", lambda: cut("signal/c"), sound("signal/c"), says="check the program that wrote it; copy or convert the file again; it is cut off or damaged"),
            Row("copy or convert the file again; it is cut off or damaged", lambda: cut("signal/g"), sound("signal/g"),
                says="check the program that wrote it; copy or convert the file again; it is cut off or damaged"),
            Row("the file is damaged: make it again, or let data.bad_samples skip it", lambda: chunked("signal/d", fletcher32=True),
                sound("signal/d")),
            Row('repair the file, or set data.bad_samples="skip" (it is counted and logged)', nan, sound("signal/f")),
        ], self.run_training("--data", sky))

    def test_what_config_and_files_differ_in(self):
        sky = self.folder / "sky"
        for name in ("signal/a", "signal/b", "foreground/y", "foreground/z"):
            (sky / name).parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(sky / f"{name}.h5", "w") as file:
                file["cube"] = np.ones((3, CHANNELS, RA), np.complex64)
        (self.folder / "raw").mkdir()
        write_uvh5(self.folder / "raw" / "a.uvh5", 1)
        self.options = ["--preset", "smoke", "--recipe.ra_keep=32", "--recipe.split=2", "--recipe.filters=2", "--recipe.n_fg=16", "--device.threads=1", "--rehearse"]

        def option(old, new):
            return lambda _: self.options.__setitem__(self.options.index(old), new)

        nothing = lambda: None
        child = {"MILLRACE_HDF5_CHILD": "/nowhere"}

        def run(status):
            return self.run_millrace("train", "cosmology", "--data", "sky", *self.options, status=status, **child)

        self.follow([
            Row("unset the variable, or set it to the millrace-hdf5 of this installation", nothing, lambda _: child.clear()),
            Row("name the dataset with recipe.vis_dataset; for a uvh5 file, run millrace uvh5", nothing, lambda _: self.options.append("--recipe.vis_dataset=/cube")),
            Row("lower recipe.n_fg", nothing, option("--recipe.n_fg=16", "--recipe.n_fg=2")),
            Row("lower recipe.ra_keep (it must be a multiple of 4*split = …)", nothing, option("--recipe.ra_keep=32", "--recipe.ra_keep=8")),
            Row("set recipe.pad=mirror or circular, or cut the files: the U-Net halves each axis twice", nothing,
                lambda _: self.options.append("--recipe.pad=mirror")),
        ], run)

        data = {"words": ["--data", "raw"]}

        def convert(remedy):
            command = re.search(r"millrace (uvh5 \S+ --out \S+) ", remedy).group(1)
            self.run_millrace(*command.split(), "--make-signal", "0.01")
            data["words"] = ["--config", "sky/train.json"]

        shutil.rmtree(sky)
        self.follow([Row("…convert the uvh5 files there into the folders that a run reads: millrace uvh5 … --out sky --signal FOLDER, or --make-signal RMS…set recipe.…, "
                         "or make some: millrace make-data cosmology", nothing, convert, says="or --make-signal RMS")],
                    lambda status: self.run_millrace("train", "cosmology", *data["words"], "--device.threads=1", "--rehearse", status=status))


class Uvh5Files(RemedyTest):
    def edit(self, name, seed=1, **change):
        """A sound file with some of its datasets (__ for /) replaced or, None, left out."""
        def make(*_):
            write_uvh5(self.folder / name, seed)
            with h5py.File(self.folder / name, "r+") as file:
                for key, values in change.items():
                    del file[key.replace("__", "/")]
                    if isinstance(values, dict):
                        file.create_dataset(key.replace("__", "/"), **values)
                    elif values is not None:
                        file[key.replace("__", "/")] = values
        return make

    def values(self, name, key, seed=1):
        write_uvh5(self.folder / name, seed)
        with h5py.File(self.folder / name) as file:
            return file[key][()]

    def uvh5(self, *words):
        def run(status):
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            return self.run_millrace("uvh5", *words, *self.options, "--out", "out", status=status)
        return run

    def test_headers(self):
        visibilities, times = self.values("v.uvh5", "Data/visdata"), self.values("v.uvh5", "Header/time_array")
        channels = np.linspace(1e8, 1.07e8, 8)
        channels[3] = np.nan
        sound = self.edit
        rows = [
            Row("is it a uvh5 file? millrace inspect shows what it holds", self.edit("a.uvh5", Header__freq_array=None), sound("a.uvh5")),
            Row("write the file anew with pyuvdata", self.edit("b.uvh5", Header__freq_array=channels), sound("b.uvh5")),
            Row("write the file anew with pyuvdata", self.edit("c.uvh5", Header__ant_1_array=np.array([b"a"] * 12)), sound("c.uvh5")),
            Row("the file was cut off or put together wrongly: write it anew", self.edit("d.uvh5", Header__time_array=times[:-1]), sound("d.uvh5")),
            Row("write the file anew", self.edit("e.uvh5", Header__ant_1_array={"shape": (10**9,), "dtype": "i8", "chunks": (10**6,)}), sound("e.uvh5")),
            Row("write the file anew with pyuvdata, as complex64 or complex128", self.edit("f.uvh5", Data__visdata=np.abs(visibilities)),
                self.edit("f.uvh5", Data__visdata=visibilities)),
        ]
        for row in rows:
            row.spoil()
        said = self.run_millrace("uvh5", *(f"{name}.uvh5" for name in "abcdef"), "--out", "out", "--make-signal", "0.01", status=1)
        self.assertIn("/Header/ant_1_array can't be read", said)  # it is there, as text
        for row in rows:
            self.assertIsNotNone(self.printed(said, row), row.remedy)
            row.mend("")
        self.assertIn("repair these, then repeat the command", said)
        self.options = ["--make-signal", "0.01", "--signals=2"]
        self.follow([Row("give each value only once: leave out this file or the earlier file", lambda: None, lambda _: [(self.folder / f"{name}.uvh5").unlink() for name in "bcdefv"])],
                    self.uvh5("."))

    def test_what_signal_and_foreground_differ_in(self):
        write_uvh5(self.folder / "a.uvh5", 1)
        few = np.arange(12) % 3 < 2
        with h5py.File(self.folder / "a.uvh5") as file:
            visibilities, header = file["Data/visdata"][()], {key: values[()] for key, values in file["Header"].items()}
        wide = np.concatenate([visibilities, visibilities[:, :4]], 1)[few]
        rows = {f"Header__{key}": header[key][few] for key in ("ant_1_array", "ant_2_array", "time_array")}
        self.edit("b.uvh5", Data__visdata=wide, Data__flags=np.zeros(wide.shape, bool), Data__nsamples=np.ones(wide.shape, np.float32),
                  Header__Nfreqs=12, Header__freq_array=1e8 + 1e6 * np.arange(12), **rows)()
        self.options = ["--signal", "b.uvh5", "--channels=0:99", "--antennas=0,1,2", "--times-per-file=99"]

        def option(old, new):
            return lambda _: self.options.__setitem__(self.options.index(old), new)

        nothing = lambda: None
        self.follow([Row("give BEGIN:END with 0 <= BEGIN < END <= …", nothing, option("--channels=0:99", "--channels=:")),
                     Row("choose the same channels of both with --band or --channels", nothing, option("--channels=:", "--channels=0:8")),
                     Row("choose the same baselines of both with --baselines or --antennas", nothing, option("--antennas=0,1,2", "--baselines=0-1,0-9")),
                     Row("the files have …, …", nothing, option("--baselines=0-1,0-9", "--baselines=0-1,0-2"), says="the files have 0-1 0-2"),
                     Row("give a smaller number", nothing, option("--times-per-file=99", "--times-per-file=2"))], self.uvh5("a.uvh5"))

    def test_files_of_other_baselines_at_other_times(self):
        for i in range(9):
            write_uvh5(self.folder / f"{i}.uvh5", i)
            with h5py.File(self.folder / f"{i}.uvh5", "r+") as file:
                for name in ("ant_1_array", "ant_2_array", "antenna_numbers"):
                    file[f"Header/{name}"][...] += 3 * i
                file["Header/time_array"][...] += i
        files, self.options = [f"{i}.uvh5" for i in range(9)], ["--make-signal", "0.01", "--signals=2"]
        self.follow([Row("choose baselines (--baselines) that were observed together, or convert the files one by one", lambda: None,
                         lambda _: files.__delitem__(slice(1, None)))], lambda status: self.uvh5(*files)(status))

    def test_what_files_hold_together(self):
        visibilities = self.values("flagged.uvh5", "Data/visdata")
        bad = visibilities.copy()
        bad[0, 0, 0] = np.nan
        flags = np.ones(visibilities.shape, bool)
        flags[:3] = False  # the first time of each baseline
        dead = np.zeros(visibilities.shape, bool)
        dead[::3] = True
        self.edit("few.uvh5", Data__flags=flags)()
        self.edit("bad.uvh5", Data__visdata=bad)()
        self.edit("dead.uvh5", Data__flags=dead)()
        self.edit("jy.uvh5")()
        self.edit("kelvin.uvh5", Header__vis_units=np.bytes_("K"))()
        nothing = lambda: None

        def option(*words):
            return lambda _: self.options.extend(words)

        cases = [
            ("few.uvh5", Row("choose other channels (--channels, --band), times or baselines, or raise --max-flagged", nothing, option("--max-flagged=1"))),
            ("bad.uvh5", Row("…--flags=keep has no value to write for them: give --flags=interpolate --fill-bad…choose baselines, channels or times without them, "
                             "or give --fill-bad: then they count as flagged", nothing, option("--fill-bad"), says="or give --fill-bad")),
            ("dead.uvh5", Row("leave them out with --baselines or --antennas, or give --flags=zero", nothing, option("--flags=zero"))),
        ]
        for file, row in cases:
            with self.subTest(remedy=row.remedy):
                self.options = ["--make-signal", "0.01", "--signals=2"]
                self.follow([row], self.uvh5(file))
        self.options = ["--signal", "kelvin.uvh5", "--channels=0:4"]
        self.follow([Row("convert both to the same unit", nothing, self.edit("kelvin.uvh5"))], self.uvh5("jy.uvh5"))
        self.edit("kelvin.uvh5", Header__vis_units=np.bytes_("K"))()
        self.options = ["--make-signal", "0.01", "--signals=2"]
        self.follow([Row("convert both files to the same unit, or leave one out", nothing, lambda _: (self.folder / "kelvin.uvh5").unlink()),
                     Row("give each value only once: leave out this file or the earlier file", nothing, lambda _: [(self.folder / f"{name}.uvh5").unlink() for name in ("few", "bad", "dead", "flagged")])],
                    self.uvh5("."))


if __name__ == "__main__":
    unittest.main()
