"""No remedy of a reader is left out: each is in a row of a test of this folder, is done by the test named here, or can't be done here."""
import ast
import re
import unittest
from pathlib import Path

from remedies import readers, remedies_in

HERE = Path(__file__).resolve().parent
# Done by a test that has no row for it.
DONE = {
    "text_peer_test.py test_no_remedy_makes_garbage": ["…iconv -f … -t UTF-8…"],
    "text_peer_test.py test_archives": ["extract it and name the text files in it: python3 -m zipfile -e … texts"],
    "pt_peer_test.py test_eight_bits_are_named_with_a_remedy_that_works": [
        "in Python, save such tensors as float32: torch.save({name: x.float() if x.is_floating_point() else x for name, x in state_dict.items()}, path)"],
    "pt_peer_test.py test_what_may_change_values_and_is_unknown_is_refused": [
        "in Python, save copies: torch.save({name: x.detach().resolve_conj().resolve_neg().clone() for name, x in state_dict.items()}, path)"],
    "pt_peer_test.py test_types_without_numbers_are_named_with_a_remedy_that_works": [
        "in Python, save their bytes: torch.save({name: x.view(torch.uint8) if x.dtype == … else x for name, x in state_dict.items()}, path)"],
    "pt_peer_test.py test_eight_bits_in_safetensors_are_named_with_a_remedy_that_works": [
        "…in Python, save such tensors as float32: save_file({name: x.float() if x.is_floating_point() else x for name, x in "
        "load_file(path).items()}, path)…convert its tensors to a type that Millrace reads, such as F32"],
    "hdf5_peer_test.py test_forms_of_later_libraries": ["write the file anew in an older form, with h5py: python3 -c \"import …"],
    "hdf5_peer_test.py test_filters_of_plug_ins": [
        "write the file anew without the filter, with h5py and hdf5plugin: python3 -c \"import hdf5plugin, …"],
    "../../tools/converters_peer_test.py class": [
        "run tools/dset_to_h5.py on it, and only if you trust it: a pickle can run any program"],
}
# Of each reason the remedies that no test of this folder can do.
NOT_HERE = {
    "the file changes while it is read, or the network's connection to it breaks: nothing to do but to start again": [
        "don't change data while it is read", "don't change data while it is read; start again", "start again", "start again when it is finished"],
    "of limits and faults of the machine, which a test would have to bring about; tests/limits walks through those of a process": [
        "this process may open no more files: raise the limit (ulimit -n 65536) and try again",
        "the machine can open no more files: end programs that hold many open files, or have fs.file-max raised",
        "the file would exceed the limit on file sizes: raise the limit (ulimit -f unlimited), or write to another file system",
        "free space there, or choose another folder (df -h shows the space, df -i the number of files left)",
        "your disk quota there is used up: remove some of your files, or choose another folder",
        "check the permissions of the path and of the folders above it", "check the path and its permissions",
        "check the disk (dmesg says more), or choose another folder",
        "the file system is read-only: choose another folder, or have it mounted for writing",
        "raise the limit on processes (ulimit -u), or end other programs", "free memory, or raise the limit on address space (ulimit -v)",
        "…see whether memory ran out (dmesg); otherwise the file is damaged: make it again…the file is damaged or hostile: make it again, or remove it",
        "give a smaller --tile, or end other programs", "keep only pixelnorm and unsqueeze in the stimulus's ops, or shorten the session"],
    "of an installation that was put together of two": [
        "install millrace again, or name the program in MILLRACE_HDF5_CHILD", "build and install both from the same sources",
        "check that millrace-hdf5 is the one built with this program, and that memory is free"],
    "of HDF5 files that only a fault of a byte makes: hdf5/*_test.cpp make them, and the same file without the fault is read": [
        "the file is damaged or hostile: make it again, or remove it", "the file is damaged: make it again",
        "the file is damaged, or needs a newer HDF5 library: write it again with h5repack", "write the dataset, or define a fill value"],
    "of what a recipe of one's own asks of a file: no recipe here asks for what is not there": [
        "name an existing one; millrace inspect shows all of the file", "name an existing one", "ask for a block inside the dataset",
        "name another dataset (millrace inspect lists all of the file), or write this one as numbers", "read them as stored, or convert the file",
        "use an intact .npy file of plain numbers: write it again with numpy.save", "give each array a short name of its own",
        "put the files of each class into a folder of its own: photos/cat/*.jpg, photos/dog/*.jpg", "name at least one",
        "check the program that made it", "make the token file with the tokenizer of this run",
        'repair or remove the sample, or set data.bad_samples="skip" (counted and logged), "substitute" or "quarantine"',
        "check the paths and filters of the data", "remove the file; in a cache folder it is made again from its sources", "the file is cut off or its tokens have another size",
        "write it anew: ffmpeg -i FILE -c:a pcm_s16le OUT.wav", "repair or remove the file; ffmpeg -i FILE -c:a pcm_s16le OUT.wav writes it anew"],
    "of bare token ids, which headrace reads and no recipe: data/files/token_test.cpp": [
        "leave out the size of an id, which the file states", "write bare ids: numpy.load(FILE).astype('<u2').tofile(NEW); '<u4' for ids above 65535",
        "give the size of the ids in the file, 2 or 4 bytes, or write the file again: ids.astype('<u2').tofile(FILE)"],
    "of snapshots: tests/resume": [
        "restore the data, set data.accept_changed=true to resume with the present data, or begin a new run"],
    "of keys and flags, not of files": [
        "set it between 0 and 1", "give it one", "lower data.batch_size, or raise data.max_buffer_bytes", "set it to auto, or to a number from 0 to 1024",
        "release batches, or clone the tensors that are to be kept", "give it at least one", "set it to 1 or more", "lower it",
        "lower data.batch_size, or set data.drop_last=false",
        "-1 takes all files", "choose a multiple of recipe.split, because all chunks must have one length; recipe.pad only pads them to a multiple of 4",
        "each chunk is halved twice: choose a multiple, or set recipe.pad", "write its lower edge first",
        "…only autos are chosen: give --autos to keep them…choose others", "the files have …"],
}


def told(names):
    return "".join(f"\n  {name}" for name in sorted(names))


class NoRemedyIsLeftOut(unittest.TestCase):
    held = remedies_in(readers())
    rows = {node.value for path in HERE.glob("*_peer_test.py") for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    listed = {remedy for table in (DONE, NOT_HERE) for remedies in table.values() for remedy in remedies}

    def test_each_remedy_is_done_or_has_a_reason(self):
        self.assertGreater(len(self.held), 150, "the sources are searched")
        left = [f"{', '.join(sources)}: {remedy}" for remedy, sources in self.held.items() if remedy not in self.rows | self.listed]
        self.assertFalse(left, f"remedies that no test does: give each a row (remedies.py), or a reason here{told(left)}")

    def test_the_tables_hold_what_the_sources_have(self):
        self.assertFalse(self.listed - set(self.held), f"no source has these any more{told(self.listed - set(self.held))}")
        self.assertFalse(self.listed & self.rows, f"these have rows{told(self.listed & self.rows)}")
        for where in DONE:
            file, test = where.split()
            self.assertRegex((HERE / file).read_text(), rf"(?:def |\b){re.escape(test)}\b", where)

    def test_remedies_of_all_kinds_are_found_in_sources(self):
        for name, remedy in (("format/png.cpp", "use an intact PNG file: copy or write it again"), ("recipes/cosmology/originals/uvh5_file.cpp", "write the file anew"),
                             ("data/files/nifti.cpp", "use an intact NIfTI file: copy or convert it again"), ("hdf5/file.cpp", "name an existing one"),
                             ("base/fs.cpp", "use a shorter name or path"), ("recipes/neural_response/sessions/dataset_file.cpp", "filters make dfs")):
            self.assertIn(name, self.held.get(remedy, []), remedy)


if __name__ == "__main__":
    unittest.main()
