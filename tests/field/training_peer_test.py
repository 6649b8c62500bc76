"""Habits of training: losses below zero, longer runs, kills, judges without a validation, threads by the environment.

Curves are read back with the tensorboard package, weights are written with torch.
"""
import json
import random
import re
import signal
import subprocess
import time
import unittest

import h5py
import numpy as np
import torch
from field import FieldTest, program
from sessions_peer_test import BINS, DATASET, SHORT, UNITS, arrays

TINY = ["--preset", "smoke", "--recipe.model_embd=8", "--recipe.model_layer=1", "--recipe.model_head=2", "--precision.dtype=fp32",
        "--data.batch_size=16", "--log.doctor=false", "--off=rehearsal"]


def text(seed, lines=400):
    rng = random.Random(seed)
    words = ["the", "mill", "race", "water", "wheel", "turns", "grain", "to", "flour", "slowly"]
    return "\n".join(" ".join(rng.choice(words) for _ in range(9)) for _ in range(lines)) + "\n"


class Training(FieldTest):
    def setUp(self):
        super().setUp()
        (self.folder / "plain.txt").write_text(text(1))

    def train(self, *words, status=0, **variables):
        return self.run_millrace("train", "language_model", "--sources", "plain.txt", *TINY, *words, status=status, **variables)

    def rates(self, run="R"):
        """The learning rate of each logged step, the latest where a step was made twice."""
        lines = [json.loads(line) for line in (self.folder / run / "log.jsonl").read_text().splitlines()]
        return {line["step"]: line["lr"] for line in lines if line["kind"] == "step"}

    def scalars(self, run="R"):
        """The points of loss/train as TensorBoard has them."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(str(self.folder / run), purge_orphaned_data=True)
        events.Reload()
        return [event.step for event in events.Scalars("loss/train")]

    def test_a_plateau_falls_on_the_collections_loss_below_zero(self):
        data = self.shared("training")
        self.assert_falls(data / "many_spikes")
        words = ["train", "language_model", "--sources", data / "plain.txt", *TINY, "--optim.schedule=cosine", "--log.every=1", "--run", "S"]
        self.run_millrace(*words, "--train.max_steps=5")
        self.assertEqual(" ".join(self.run_millrace(*words, "--train.max_steps=10").split()).count("its schedule spans the whole run"), 1)
        self.assertEqual(self.scalars("S"), list(range(1, 11)))

    def test_a_plateau_falls_on_a_loss_below_zero_that_stands_still(self):
        data = self.folder / "many"
        (data / "sessions").mkdir(parents=True)
        (data / "a").mkdir()
        (data / "dataset.yaml").write_text(DATASET.format(names="a"))
        (data / "sessions" / "a.yaml").write_text("session: a\ncids: [0, 1, 2, 3]\n")
        with h5py.File(data / "a" / "syn.h5", "w") as file:
            for key, values in (arrays(1) | {"robs": np.random.default_rng(1).poisson(30, (BINS, UNITS)).astype(np.float32)}).items():
                file[key] = values
        self.assert_falls(data)

    def assert_falls(self, data):
        self.run_millrace("train", "neural_response", "--data", data, "--preset", "smoke", "--precision.dtype=fp32", "--data.batch_size=32",
                          "--optim.schedule=plateau", "--optim.plateau_patience=2", "--optim.learning_rate=1e-12",
                          "--train.early_stop_patience=0", "--train.max_steps=20", "--train.validate_every=2", "--log.every=2",
                          "--train.validate_batches=1", *SHORT[5:], "--log.images=false", "--device.threads=1", "--run", "R")
        rates = self.rates()
        self.assertLess(self.validated("R")[-1], 0, "the loss is below zero")
        self.assertEqual(sorted(set(rates.values()), reverse=True), [1e-12, 5e-13, 2.5e-13], "a fall after every third validation")

    def validated(self, run):
        lines = [json.loads(line) for line in (self.folder / run / "log.jsonl").read_text().splitlines()]
        return [line["val_loss"] for line in lines if line["kind"] == "validation"]

    def test_a_longer_run_says_that_its_rate_jumps_and_what_to_do(self):
        self.train("--optim.schedule=cosine", "--snapshot.every_steps=5", "--train.max_steps=10", "--log.every=1", "--run", "R")
        before = self.rates()[10]
        said = self.train("--optim.schedule=cosine", "--snapshot.every_steps=5", "--train.max_steps=20", "--log.every=1", "--run", "R")
        note = " ".join(said.split())
        self.assertEqual(note.count("its schedule spans the whole run"), 1, said)
        self.assertIn("the run is 20 steps long now, and was 10", note)
        self.assertRegex(note, rf"rises from {before:.3g}".replace("+", r"\+"))
        self.assertGreater(self.rates()[11], before * 10)
        path = re.search(r"--train\.resume=(\S+)", note).group(1)
        rate = re.search(r"--optim\.learning_rate=([0-9.e+-]+)", note).group(1)
        self.train("--optim.schedule=constant", f"--optim.learning_rate={rate}", f"--train.resume={path}", "--train.max_steps=14", "--log.every=1",
                   "--run", "NEW")
        self.assertAlmostEqual(self.rates("NEW")[14] / before, 1, places=2)
        said = self.train("--optim.schedule=constant", f"--optim.learning_rate={rate}", f"--train.resume={path}", "--train.max_steps=16",
                          "--run", "NEW")
        self.assertNotIn("spans the whole run", said)

    def test_curves_have_each_step_once_after_a_kill(self):
        words = ["--log.every=1", "--snapshot.every_steps=10", "--train.max_steps=60", "--run", "R"]
        run = subprocess.Popen([program(), "train", "language_model", "--sources", "plain.txt", *TINY, *words], cwd=self.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = self.folder / "R" / "log.jsonl"
        for _ in range(2000):
            if log.exists() and '"step":25' in log.read_text().replace(" ", "") and run.poll() is None:
                break
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.wait()
        self.train(*words)
        self.assertGreaterEqual(len(list((self.folder / "R").glob("events.out.tfevents.*"))), 2)
        steps = self.scalars()
        self.assertEqual(steps, list(range(1, 61)))

    def test_a_run_that_diverges_names_what_is_not_in_force_and_no_snapshot_of_no_number(self):
        words = ["--snapshot.every_steps=1", "--train.validate_every=1", "--train.validate_batches=1", "--log.every=5", "--train.max_steps=40",
                 "--run", "R"]
        said = self.train("--optim.learning_rate=1e30", *words, status=None)
        self.assertIn("no snapshot is good, because the validation loss is not a number in any of them", " ".join(said.split()))
        remedy = self.next_of(said)
        self.assertNotIn("fp32", remedy)
        self.assertIn("--fresh: lower optim.learning_rate (1e+30)", remedy)
        self.train("--optim.learning_rate=1e-3", *words, "--fresh")

    def test_threads_that_the_environment_asks_for_are_spoken_of(self):
        said = self.train("--train.max_steps=1", "--run", "R", OMP_NUM_THREADS="3")
        self.assertIn("OMP_NUM_THREADS=3 is ignored: device.threads=auto uses ", said)
        said = self.train("--train.max_steps=1", "--run", "S", "--device.threads=3", OMP_NUM_THREADS="3")
        self.assertNotIn("is ignored: device.threads", said)
        self.assertRegex(said, r"threads +3")

    def test_unknown_characters_of_a_prompt_are_told(self):
        self.train("--train.max_steps=1", "--run", "R")
        said = self.run_millrace("generate", "The ß☃ mill ☃", "--from", "R", "--generate.max_length=4")
        self.assertIn('the model\'s vocabulary lacks "ß" "☃"', said)
        self.assertNotIn("vocabulary lacks", self.run_millrace("generate", "the mill", "--from", "R", "--generate.max_length=4"))

    def weights(self):
        """The names and values of a trained model, exported."""
        self.train("--train.max_steps=1", "--run", "R")
        self.run_millrace("export", "language_model", "--from", "R", "--to", "own.pt")
        return torch.load(self.folder / "own.pt", weights_only=True)

    def state_of(self, file, *words, status=0):
        said = self.train(f"--train.weights={file}", "--train.max_steps=1", "--optim.learning_rate=1e-30", "--optim.weight_decay=0", "--run", "W",
                          "--fresh", *words, status=status)
        if status != 0:
            return said, None
        return said, json.loads((self.folder / "W" / "summary.json").read_text())["loss"]["first"]

    def test_weights_of_the_collection_start_whatever_wrapped_them(self):
        folder = self.shared("weights-prefixes")
        own = self.run_with(folder / "weights.pt", folder)
        for name, word in (("compiled.pt", "_orig_mod."), ("ddp.pt", "module.")):
            said, loss = self.run_with(folder / name, folder)
            self.assertIn(f'"{word}"', said)
            self.assertEqual(loss, own[1])

    def run_with(self, file, folder):
        said = self.run_millrace("train", "language_model", "--sources", folder / "plain.txt", f"--train.weights={file}", *TINY,
                                 "--train.max_steps=1", "--train.validate_every=0", "--run", "W", "--fresh")
        return said, json.loads((self.folder / "W" / "summary.json").read_text())["loss"]["first"]

    def test_prefixes_of_random_wrappers_change_no_value(self):
        own = {name: value for name, value in self.weights().items() if torch.is_tensor(value)}
        _, loss = self.state_of("own.pt")
        rng = random.Random(5)
        words = ["module.", "_orig_mod.", "model."]
        for i in range(5):
            prefix = "".join(rng.choice(words) for _ in range(rng.randrange(1, 4)))
            state = {prefix + name: value for name, value in own.items()}
            torch.save({"state_dict": state, "epoch": 3} if i % 2 else state, self.folder / "wrapped.pt")
            said, wrapped = self.state_of("wrapped.pt")
            self.assertIn(" are ignored (wrappers", said, prefix)
            self.assertEqual(wrapped, loss, prefix)

    def test_a_part_of_another_name_is_named_in_the_remedy_which_works(self):
        own = {name: value for name, value in self.weights().items() if torch.is_tensor(value)}
        _, loss = self.state_of("own.pt")
        torch.save({"net_ema": {"inner." + name: value for name, value in own.items()}}, self.folder / "ema.pt")
        said, _ = self.state_of("ema.pt", status=None)
        remedy = self.next_of(said)
        self.assertIn("--part net_ema.inner", remedy)
        command = re.search(r"millrace (import .*? --part \S+?),", remedy).group(1)
        self.run_millrace(*command.split())
        self.assertEqual(self.state_of("weights.safetensors")[1], loss)
        twice = {"module." + name: value for name, value in own.items()} | {"model." + name: value * 2 for name, value in own.items()}
        torch.save(twice, self.folder / "twice.pt")
        said, _ = self.state_of("twice.pt", status=None)
        self.assertIn("do not fit the model", said)


if __name__ == "__main__":
    unittest.main()
