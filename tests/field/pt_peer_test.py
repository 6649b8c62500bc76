"""Files of torch.save: lazily conjugated and negated tensors, views of all kinds, element types that nobody reads here."""
import itertools
import random
import unittest
import zipfile

import torch
from field import FieldTest
from remedies import RemedyTest, Row
from safetensors.torch import load_file, save_file

KINDS = [torch.complex64, torch.complex128, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16,
         torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64, torch.bool]


def plain(tensor):
    """What torch sees of it: each lazy turn done, the elements row-major."""
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor.detach().resolve_conj().resolve_neg())


def same(a, b):
    """Equal bits, or equal values: torch itself turns the sign of a zero in some of its loops and not in others."""
    one, two = plain(a).reshape(-1), plain(b).reshape(-1)
    return one.view(torch.uint8).equal(two.view(torch.uint8)) or one.equal(two)


def view_of(draw, tensor):
    """The same elements seen otherwise: other order, steps, a part, a turn that is left for later."""
    for _ in range(draw.randrange(4)):
        kind = draw.randrange(6)
        if kind == 0 and tensor.dim() > 1:
            tensor = tensor.transpose(0, tensor.dim() - 1)
        elif kind == 1 and tensor.dim() > 0 and tensor.shape[0] > 2:
            tensor = tensor[1::2]
        elif kind == 2 and tensor.dim() > 0:
            tensor = tensor.narrow(tensor.dim() - 1, tensor.shape[-1] // 2, tensor.shape[-1] - tensor.shape[-1] // 2)
        elif kind == 3:
            tensor = tensor.conj()
        elif kind == 4 and tensor.dtype != torch.bool:
            tensor = torch._neg_view(tensor)  # what .imag of a conjugate is
        elif kind == 5 and tensor.is_complex():
            tensor = draw.choice([tensor.imag, tensor.conj().imag, tensor.real])
    return tensor


class PtFiles(FieldTest):
    def imported(self, path):
        """The tensors of a file by name, as `millrace import` copies them."""
        to = self.folder / "copied" / "x.pt"
        to.unlink(missing_ok=True)
        to.parent.mkdir(exist_ok=True)
        self.run_millrace("import", path, "--to", to)
        copied = torch.load(to, weights_only=True)
        self.assertFalse([name for name, x in copied.items() if x.is_conj() or x.is_neg()])
        return copied

    def assert_as_torch(self, path):
        loaded = torch.load(path, weights_only=True)
        copied = self.imported(path)
        self.assertEqual(sorted(copied), sorted(loaded))
        for name, tensor in loaded.items():
            self.assertEqual((copied[name].dtype, copied[name].shape), (tensor.dtype, tensor.shape), name)
            self.assertTrue(same(copied[name], tensor), f"{name} of {path}: {copied[name]}, torch has {tensor}")

    def test_the_files_of_the_field(self):
        for path in sorted(self.shared("pt-lazy-views").glob("*.pt")):
            self.assert_as_torch(path)

    def test_conjugates_and_negatives(self):
        z = torch.tensor([[1 + 2j, 3 - 4j], [0.5j, -2.25]], dtype=torch.complex64)
        torch.save({"conj": z.conj(), "turned": z.conj().T, "imag": z.clone().conj().imag, "both": torch._neg_view(z.conj()), "z": z,
                    "one": z.conj()[0, 1]}, self.folder / "a.pt")
        self.assert_as_torch(self.folder / "a.pt")
        copied = self.imported(self.folder / "a.pt")
        self.assertEqual(copied["conj"].tolist(), [[1 - 2j, 3 + 4j], [-0.5j, -2.25]])
        self.assertEqual(copied["imag"].tolist(), [[-2, 4], [-0.5, 0]])

    def test_every_type_is_negated_as_torch_does(self):
        names = [str(kind).split(".")[1] for kind in KINDS]
        made = {name: torch.tensor([0, 1, 2, 100, 3], dtype=kind) for name, kind in zip(names, KINDS)}
        torch.save({name: x if x.dtype == torch.bool else torch._neg_view(x) for name, x in made.items()}, self.folder / "a.pt")
        copied = self.imported(self.folder / "a.pt")
        for name, x in torch.load(self.folder / "a.pt", weights_only=True).items():
            if name.startswith("uint") and name != "uint8":  # of which torch itself knows no negation
                self.assertEqual(copied[name].numpy().tolist(), (0 - made[name].numpy()).tolist(), name)
            else:
                self.assertTrue(same(copied[name], x), name)

    def test_random_views(self):
        for seed in range(24):
            draw = random.Random(seed)
            torch.manual_seed(seed)
            made = {}
            for i, kind in itertools.product(range(2), KINDS[:11]):
                shape = [draw.randrange(1, 6) for _ in range(draw.randrange(4))]
                base = torch.randn(shape, dtype=kind) if kind.is_complex or kind.is_floating_point else torch.randint(0, 100, shape).to(kind)
                made[f"{i}.{str(kind).split('.')[1]}"] = view_of(draw, base)
            torch.save(made, self.folder / "a.pt")
            with self.subTest(seed=seed):
                self.assert_as_torch(self.folder / "a.pt")

    def test_eight_bits_are_named_with_a_remedy_that_works(self):
        path = self.folder / "a.pt"
        state_dict = {"w": torch.randn(3, 2).to(torch.float8_e4m3fn), "n": torch.arange(3)}
        torch.save(state_dict, path)
        said = self.run_millrace("import", path, "--to", "x.pt", status=None)
        self.assertIn('tensor "w" has the element type "torch.float8_e4m3fn", which Millrace does not read', said)
        code = self.next_of(said).split(": ", 1)[1]
        exec(code, {"torch": torch, "state_dict": state_dict, "path": path})  # pylint: disable=exec-used
        self.assert_as_torch(path)

    def test_types_without_numbers_are_named_with_a_remedy_that_works(self):
        path = self.folder / "a.pt"
        made = {str(kind): torch.arange(6, dtype=torch.uint8).view(kind) for kind in
                (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2, torch.bits8)}
        made["_rebuild_qtensor"] = torch.quantize_per_tensor(torch.randn(6), 0.1, 0, torch.qint8)
        for kind, tensor in made.items():
            with self.subTest(kind=kind):
                state_dict = {"w": tensor, "n": torch.arange(3)}
                torch.save(state_dict, path)
                said = self.run_millrace("import", path, "--to", "x.pt", status=None)
                self.assertIn(kind, said)
                exec(self.next_of(said).split(": ", 1)[1], {"torch": torch, "state_dict": state_dict, "path": path})  # pylint: disable=exec-used
                self.assert_as_torch(path)

    def test_eight_bits_in_safetensors_are_named_with_a_remedy_that_works(self):
        path = self.folder / "a.safetensors"
        for kind in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu):
            state_dict = {"w": torch.tensor([1, 2, 8.0]).to(kind), "n": torch.arange(3)}
            save_file(state_dict, path)
            said = self.run_millrace("import", path, "--to", "x.pt", status=None)
            self.assertIn('tensor "w" has the dtype "F8_', said)
            exec(self.next_of(said).split(": ", 1)[1], {"save_file": save_file, "load_file": load_file, "path": path})  # pylint: disable=exec-used
            self.assertEqual({name: x.tolist() for name, x in self.imported(path).items()}, {"w": [1, 2, 8], "n": [0, 1, 2]})

    def test_what_may_change_values_and_is_unknown_is_refused(self):
        path = self.folder / "a.pt"
        state_dict = {"w": torch.tensor([1 + 2j, 3]).conj()}
        torch.save(state_dict, path)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members.items():
                archive.writestr(name, content.replace(b"conj", b"turn"))
        said = self.run_millrace("import", path, "--to", "x.pt", status=None)
        self.assertIn('tensor "w" has "turn" as an attribute that may change its values', said)
        exec(self.next_of(said).split(": ", 1)[1], {"torch": torch, "state_dict": state_dict, "path": path})  # pylint: disable=exec-used
        self.assertEqual(self.imported(path)["w"].tolist(), [1 - 2j, 3])



class Weights(RemedyTest):
    def importing(self, name):
        def run(status):
            (self.folder / "copied.safetensors").unlink(missing_ok=True)
            return self.run_millrace("import", name, "--to", "copied.safetensors", status=status)
        return run

    def members(self, name, change):
        """Rewrites a .pt file, each member as change(name, content) has it."""
        path = self.folder / name
        with zipfile.ZipFile(path) as archive:
            held = {member: archive.read(member) for member in archive.namelist()}
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in held.items():
                archive.writestr(member, change(member, content))

    def test_pt(self):
        model = torch.nn.Linear(3, 2)
        state = {"w": torch.ones(3)}

        def save(what, **how):
            return lambda *_: torch.save(what, self.folder / "a.pt", **how)

        def python(remedy):
            exec(remedy.split(": ", 1)[1], {"torch": torch, "model": model, "path": self.folder / "a.pt"})  # pylint: disable=exec-used

        def damaged():
            save(state)()
            content = (self.folder / "a.pt").read_bytes()
            (self.folder / "a.pt").write_bytes(content[:len(content) // 2])

        def foreign():
            save(state)()
            self.members("a.pt", lambda member, content: b"big" if member.endswith("byteorder") else content)

        for row in (Row("copy or download the file again", damaged, save(state)),
                    Row("in Python, save the model's state_dict() alone: torch.save(model.state_dict(), path)",
                        lambda: torch.jit.script(model).save(str(self.folder / "a.pt")), python),
                    Row("load and save it again with a newer torch", save(state, _use_new_zipfile_serialization=False),
                        lambda _: torch.save(torch.load(self.folder / "a.pt", weights_only=True), self.folder / "a.pt")),
                    Row("save it on a little-endian machine", foreign, save(state))):
            with self.subTest(remedy=row.remedy):
                self.follow([row], self.importing("a.pt"))

    def test_safetensors(self):
        path = self.folder / "a.safetensors"

        def cut():
            save_file({"w": torch.ones(9)}, path)
            path.write_bytes(path.read_bytes()[:-3])

        self.follow([Row("use an intact safetensors file: copy or download it again", cut, lambda _: save_file({"w": torch.ones(9)}, path))],
                    self.importing("a.safetensors"))


if __name__ == "__main__":
    unittest.main()
