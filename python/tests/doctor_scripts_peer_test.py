"""Training loops of many shapes below `headrace.watch`: each is a script that checks itself, and what was seen of it is compared here.

All run one after the other in one process, which imports torch once; those that need a process of their own are at the end.
"""
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("MILLRACE_BUILD") or PACKAGE.parent / "build/release").resolve()

HEAD = """
import time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
torch.manual_seed(0)
class Samples(Dataset):
    def __len__(self): return 40
    def __getitem__(self, index): return torch.ones(4)
def new():
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.001)
model, optimizer = new()
def train(x, model=model, optimizer=optimizer):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
"""
SCRIPTS = {
    "one_batch": "x = next(iter(DataLoader(Samples(), batch_size=4)))\nfor _ in range(200): train(x)",
    "cycle": "import itertools\nfor _, x in zip(range(200), itertools.cycle(DataLoader(Samples(), batch_size=4))): train(x)",
    "folds": """
kept = []
for fold in range(3):
    kept.append(new())
    for _ in range(100): train(torch.ones(4), *kept[-1])
""",
    "threads": """
import threading
from concurrent.futures import ThreadPoolExecutor
done = threading.Event()
others = []
for fold in range(3):
    thread = threading.Thread(target=lambda: [(time.sleep(0.004), train(torch.ones(4))) for _ in range(40)])
    thread.start()
    thread.join()
    others.append(threading.Thread(target=done.wait))  # may have the number of the one before
    others[-1].start()
done.set()
""",
    "summed": """
loss = 0
for i, x in enumerate(DataLoader([torch.ones(4)] * 200, batch_size=2)):
    time.sleep(0.004)
    loss = loss + model(x).sum()
    if i % 4 == 3:
        loss.backward()
        optimizer.step()
        loss = 0
""",
    "own_optimizer": """
for _ in range(20):
    model(torch.ones(4)).sum().backward()
    with torch.no_grad():
        for each in model.parameters(): each -= 0.01 * each.grad
""",
    "threads_that_are_listed": """
import threading
for _ in range(20): train(torch.ones(4))
assert threading.enumerate() == [threading.main_thread()], threading.enumerate()
""",
    "edges_and_iterables": """
for i in range(30):
    time.sleep(0.01)
    optimizer.zero_grad()
    loss = model(torch.ones(4)).sum()
    torch.autograd.backward({"loss": loss}.values() if i % 2 else torch.autograd.graph.get_gradient_edge(loss))
    optimizer.step()
""",
    "scaled": """
scaler = torch.amp.GradScaler("cpu")
for _ in range(20):
    time.sleep(0.01)
    optimizer.zero_grad()
    loss = (model(torch.ones(4)) ** 2).sum()
    if _ % 2:
        scaler.scale(loss).backward()
    else:
        scaler.scale((model(torch.ones(4)) ** 2).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "two_networks": """
for _ in range(400):
    for judge, level in ((True, 0.5), (False, 5.0)):
        optimizer.zero_grad()
        loss = level + 0 * model(torch.ones(4)).sum()
        if judge:
            loss.backward()
        else:
            loss.backward()
        time.sleep(0.0005)
        optimizer.step()
""",
    "made_anew": """
def epoch():
    for x in DataLoader(Samples(), batch_size=4): train(x)
for _ in range(300): epoch()
""",
    "one_dataset": """
samples = Samples()
judged = DataLoader(samples, batch_size=4)
loader = DataLoader(samples, batch_size=4)
for x in loader: train(x)
""",
    "two_loaders": """
for x, y in zip(DataLoader(Samples(), batch_size=1), DataLoader(Samples(), batch_size=1)):
    mask = torch.zeros(2000, 1000)
    train(x)
""",
    "iterable": """
class Stream(IterableDataset):
    def __iter__(self):
        for _ in range(240):
            time.sleep(0.002)
            yield torch.ones(4)
loader = DataLoader(Stream(), batch_size=2)
for _ in range(5):
    for x in loader: train(x)
""",
    "broken_off": """
import multiprocessing
for at in range(100, 110):
    for i, x in enumerate(DataLoader([torch.ones(4)] * 400, batch_size=1, num_workers=1)):
        train(x)
        if i == at: break
    assert not multiprocessing.active_children()
""",
    "results_of_one_look": """
import gc
for i, x in enumerate(DataLoader(Samples(), batch_size=1)):
    mask = torch.zeros(1000, 1000)
    train(x)
    del mask
    if i == 11: torch.set_default_device("cpu")  # from here on there is a mode
torch.set_default_device(None)
assert not [each for each in gc.get_objects() if type(each) is torch.Tensor and each.numel() == 1000000]
""",
    "teacher": """
def losses():
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    teacher = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    model = torch.nn.Linear(16, 16)
    found = []
    for x in DataLoader(list(torch.randn(120, 5, 16)), batch_size=4):
        with torch.no_grad(): aim = teacher(x)
        loss = ((model(x) - aim) ** 2).mean()
        loss.backward()
        found.append(loss.item())
    return found
import builtins
builtins.losses = getattr(builtins, "losses", None) or losses()
assert losses() == builtins.losses
""",
    "captured_as_a_graph": """
from unittest import mock
from headrace._script import borders
loss = mock.Mock(is_cuda=True, numel=lambda: 1, grad_fn=None)
with mock.patch.object(borders, "plain_tensor", lambda _: loss), mock.patch("torch.cuda.is_current_stream_capturing", lambda: True):
    for _ in range(5): train(torch.ones(4))
assert not loss.detach.called
""",
    "pickled": "import os, pickle\nfor each in (torch.save, os._exit): assert pickle.loads(pickle.dumps(each)) is each\nfor _ in range(5): train(torch.ones(4))",
    "no_question_for_cuda": """
is_available, asked = torch.cuda.is_available, []
torch.cuda.is_available = lambda: asked.append(1)
for _ in range(5): train(torch.ones(4))
torch.cuda.is_available = is_available
assert not asked
""",
    "folder_that_is_gone": """
import os, tempfile
with tempfile.TemporaryDirectory() as folder: os.chdir(folder)
for x in DataLoader(Samples(), batch_size=4): train(x)
""",
    "kept_loader": """
import builtins
builtins.kept = getattr(builtins, "kept", None) or DataLoader(Samples(), batch_size=4, num_workers=1, persistent_workers=True)
for x in builtins.kept: train(x)
""",
}
DRIVER = """
import json, os, runpy, sys, traceback, warnings
warnings.simplefilter("ignore")
import headrace
here, failed = os.getcwd(), 0
for name in sys.argv[1:]:
    if name == "teacher":
        runpy.run_path(os.path.join(here, name + ".py"))
    for time in range(2 if name == "kept_loader" else 1):
        try:
            with headrace.watch(os.path.join(here, f"run-{name}-{time}")) as watch:
                runpy.run_path(os.path.join(here, name + ".py"))
        except Exception:
            failed = 1
            traceback.print_exc()
        os.chdir(here)
    with open(name + ".json", "w") as file:
        json.dump({"evidence": watch.evidence, "text": str(watch), "findings": [[each.id, each.text] for each in watch.findings]}, file)
sys.exit(failed)
"""
# A loop that is started in another process, and one whose workers are.
CHILD = """
import os, sys, torch
from torch.utils.data import DataLoader
def train(rank, **words):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x in DataLoader([torch.ones(4)] * 40, batch_size=4, **words):
        model(x).sum().backward()
        optimizer.step()
if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        torch.multiprocessing.spawn(train)
    else:
        train(0, num_workers=1, multiprocessing_context="forkserver")
        os._exit(0)
"""


def settings():
    path = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "HEADRACE_LIBRARY": str(BUILD / "libheadrace.so"), "OMP_NUM_THREADS": "1"}


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Scripts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name, text in SCRIPTS.items():
            (cls.folder / f"{name}.py").write_text(HEAD + text)
        cls.done = subprocess.run([sys.executable, "-c", DRIVER, *SCRIPTS], cwd=cls.folder, env=settings(), capture_output=True, text=True)

    def seen(self, name):
        file = self.folder / f"{name}.json"
        self.assertTrue(file.exists(), self.done.stderr)
        return json.loads(file.read_text())

    def line(self, name, text):
        """The last one of a script that has this text."""
        return f"{name}.py:" + str(max(number for number, line in enumerate((HEAD + SCRIPTS[name]).splitlines(), 1) if text in line))

    def steps(self, name):
        return self.seen(name)["evidence"]["step"]

    def losses(self, name):
        return {each["name"]: [line["loss"] for line in each["lines"]] for each in self.seen(name)["evidence"]["numbers"]["objectives"]}

    def test_all_of_them_end_well(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        self.assertNotIn("stopped watching", self.done.stderr)

    def test_steps_on_batches_that_are_kept(self):
        for name in ("one_batch", "cycle"):
            with self.subTest(name):
                self.assertGreater(self.steps(name), 130)
                self.assertLess(self.steps(name), 200)

    def test_another_optimizer_or_thread_for_each_fold(self):
        self.assertGreater(self.steps("folds"), 200)
        self.assertGreater(self.steps("threads"), 110)

    def test_a_loss_of_several_batches(self):
        seen = self.seen("summed")["evidence"]
        self.assertEqual(seen["step"], 24)
        seconds = seen["times"]["seconds"]
        self.assertNotIn("validate", seconds)
        self.assertGreater(seconds["forward"], 0.8 * seen["run_seconds"])

    def test_steps_that_can_not_be_told_apart(self):
        self.assertIn("steps can't be told apart", self.seen("own_optimizer")["text"])

    def test_backward_passes_of_other_things_than_a_tensor(self):
        self.assertEqual(self.steps("edges_and_iterables"), 29)

    def test_losses_without_the_scalers_factor(self):
        found = self.losses("scaled")
        self.assertEqual(len(found), 2)
        self.assertLess(max(loss for losses in found.values() for loss in losses), 100)

    def test_losses_of_two_networks_are_told_apart(self):
        found = self.losses("two_networks")
        self.assertEqual(set(found), {f"two_networks.py:{int(self.line('two_networks', 'loss.backward()').split(':')[1]) - back}" for back in (0, 2)})
        self.assertTrue(all(len(set(each)) == 1 for each in found.values()), found)
        lines = [json.loads(line) for line in (self.folder / "run-two_networks-0/log.jsonl").read_text().splitlines()]
        losses = [{name: line[name] for name in line if name.startswith("loss")} for line in lines if line["kind"] == "step"]
        self.assertEqual({name.partition("/")[0] for each in losses for name in each}, {"loss"})
        self.assertEqual(len({each["loss"] for each in losses if "loss" in each}), 1)

    def test_a_loader_that_is_made_anew_for_each_pass(self):
        loader = self.seen("made_anew")["evidence"]["script"]["loader"]
        self.assertGreater(loader["epochs"], 290)
        self.assertEqual(loader["where"], self.line("made_anew", "DataLoader("))

    def test_tensors_that_are_made_again_beside_two_loaders(self):
        self.assertIn("torch.zeros [2000, 1000]", self.seen("two_loaders")["evidence"]["census"].get("rebuilt_by", ""))

    def test_the_line_of_the_loader_that_is_trained_from(self):
        self.assertEqual(self.seen("one_dataset")["evidence"]["script"]["loader"]["where"], self.line("one_dataset", "loader = "))

    def test_workers_for_an_iterable_dataset(self):
        seen = self.seen("iterable")
        text = dict(seen["findings"])["no_readers"]
        self.assertIn("num_workers=", text)
        self.assertIn("each worker reads all of it, unless its __iter__ asks torch.utils.data.get_worker_info() for its share", text)
        self.assertIn("Stream is iterable", seen["text"])

    def test_a_loader_that_is_kept_for_another_watch(self):
        self.assertEqual(self.seen("kept_loader")["evidence"]["script"]["loader"]["workers"], 1)


@unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "train.py").write_text(CHILD)

    def evidence(self, word):
        done = subprocess.run([sys.executable, "-m", "headrace", "doctor", "--run", "run", "--", sys.executable, "train.py", word], cwd=self.folder, env=settings(), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-3000:])
        self.assertTrue((self.folder / "run/evidence.json").exists(), done.stderr)
        return json.loads((self.folder / "run/evidence.json").read_text())["evidence"]

    def test_a_spawned_process_keeps_what_was_seen_of_the_machine(self):
        self.assertIn("memory", self.evidence("spawn"))

    def test_workers_of_a_server_and_an_end_without_atexit(self):
        self.assertGreater(self.evidence("forkserver")["input"]["read_seconds"], 0)


if __name__ == "__main__":
    unittest.main()
