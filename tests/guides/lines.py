#!/usr/bin/env python3
"""Types the command lines of the five guides word for word, with the wrappers of the originals' names, and checks what comes.

    tests/guides/lines.py MILLRACE [--show]

Each case is a guide's line, files as that guide's user has them, the exit status and texts that must be printed. --show prints a table of
the lines and the last line that each printed. Long trainings are cut short by a key in the user's own file, never in the line.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
PEER = ROOT / "tools" / "python-peer"
PEERS = (ROOT / ".deps" / "venv" / ".millrace-peers").exists()  # `./dev test` sets them up

# Taken by every recipe; a value where another program's flag has one.
EVERYWHERE = ["--gpus", "1", "-g", "1", "--amp", "--amp_dtype", "none", "--compile", "--profile", "--cudnn_benchmark", "true",
              "--gpu_log_interval", "100", "--grad_log_interval", "10", "--clip_grad_norm", "1.0", "--gradient_clip_val", "1.0",
              "--accumulate_grad_batches", "1", "--prefetch_factor", "4", "--persistent_workers", "--num_workers", "4", "--pin_memory",
              "--use_amp=true", "--log_gpu_memory", "--max_steps", "2", "--epochs", "3", "--max_epochs", "3", "--batch_size", "2",
              "--learning_rate", "1e-4", "--seed", "42", "--deterministic", "--detect_anomaly", "--debug", "--local_rank", "0",
              "--dry_run"]


# In a run whose line is about names: what a start would try is said, since trials take longer than these trainings.
CHOSEN = {"MILLRACE_DEVICE__KERNELS": "ours", "MILLRACE_DEVICE__LAYOUT": "contiguous"}


class Failure(Exception):
    pass


class Place:
    """A folder in which a guide's user works: the originals' programs lie where the guide has them."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.env = {**os.environ, "MILLRACE": str(program), "PATH": f"{folder}/bin:{os.environ['PATH']}",
                    "MILLRACE_DEVICE__THREADS": "1"}
        (folder / "bin").mkdir(parents=True)
        if PEERS:  # the launchers that the guides call: torch.distributed.launch, accelerate, pytest
            self.env.update(HF_HOME=str(folder / "huggingface"))
            for name, module in (("python", ""), ("accelerate", "-m accelerate.commands.accelerate_cli ")):
                (folder / "bin" / name).write_text(f'#!/bin/sh\nexec "{PEER}" {module}"$@"\n', encoding="utf-8")
                (folder / "bin" / name).chmod(0o755)
        else:
            (folder / "bin" / "python").symlink_to(sys.executable)  # guides say python, Debian python3
        for script in RECIPES.glob("*/originals/scripts/**/*"):
            if script.is_file():
                target = folder / script.relative_to([p for p in script.parents if p.name == "scripts"][-1])
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(script, target)

    def run(self, line):
        done = subprocess.run(["bash", "-c", line], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def make(self, recipe, folder):
        code, text = self.run(f'"$MILLRACE" make-data {recipe} --preset smoke --out {folder}')
        if code != 0:
            raise Failure(f"make-data {recipe}: {text}")

    def write(self, name, value):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def launched(*cases):
    """Lines that begin with a Python package's program, where there is that package."""
    return list(cases) if PEERS else []


def cosmology(place):
    place.env.update(CHOSEN)
    place.make("cosmology", "sky")
    place.write("your_config.json", {
        "model_params": {"model_dir": "trained", "model_name": "unet", "n_fg": 4, "filters": 4, "gal_mask": 64, "split": 2},
        "training_params": {"cosmopath": "sky/signal", "galpath": "sky/foreground", "batch_size": 4, "epochs": 1, "learning_rate": 1e-3,
                            "train_num_workers": 4, "val_num_workers": 2, "prefetch_factor": 2, "use_cache": True,
                            "mixed_precision": "no", "use_compile": True}})
    return [
        ("python precompute_pca.py \\\n    --config your_config.json \\\n    --num-samples 100 \\\n    --device cpu", 0,
         ["runs: ", "pca fit --config your_config.json"]),
        ("python train2.py --config your_config.json", 0,
         ["runs: ", "train cosmology --config your_config.json", "pca components of trained/unet", "training_params.val_num_workers: validation has its own readers",
          "training_params.use_compile: there is nothing to compile", "done at step"]),
        ("python validate_pca.py --pca-components trained/unet/pca_components_nfg4.safetensors --config your_config.json", 0,
         ["runs: ", "pca validate --pca-components", "stored components    ", "of each batch        ", "speed-up             ",
          "relative error       ", "   expected, because components fitted to one batch", "variance explained   "]),
        *launched(("accelerate config default", 0, ["configuration saved"]),  # `accelerate config` asks
                  # The run of the line above is complete: one epoch more, so that accelerate's process trains.
                  ("export MILLRACE_TRAIN__EPOCHS=2\naccelerate launch train2.py --config your_config.json", 0,
                   ["runs: ", "train cosmology --config your_config.json", "resumed from step", "done at step"])),
    ]


def autoencoder_3d(place):
    place.env.update(CHOSEN)
    place.make("autoencoder_3d", "volumes")
    place.write("config/environment.json", {"npz_dir": "volumes", "model_dir": "trained", "tfevent_path": "runs/autoencoder"})
    place.write("config/config_train_multigpu.json", {
        "autoencoder_def": {"channels": [8, 16], "latent_channels": 2, "num_res_blocks": 1, "norm_num_groups": 4,
                            "attention_levels": [False, False], "use_flash_attention": True},
        "autoencoder_train": {"batch_size": 2, "patch_size": [24, 24, 24], "lr": 1e-4, "max_epochs": 1, "val_interval": 1,
                              "perceptual_weight": 0, "kl_weight": 1e-7, "recon_loss": "l1", "lr_scheduler": None}})
    manual = ("train_autoencoder.py \\\n    --environment-file ./config/environment.json \\\n"
              "    --config-file ./config/config_train_multigpu.json \\\n    --gpus 2 \\\n    --amp \\\n    --compile")
    exports = 'export MASTER_ADDR="localhost"\nexport MASTER_PORT="12355"\nexport WORLD_SIZE=2\n'
    return [
        ("chmod +x train_autoencoder_multigpu.sh\n./train_autoencoder_multigpu.sh 2 config/config_train_multigpu.json true false", 0,
         ["runs: ", "launch --nproc 2 train autoencoder_3d",
          "tfevent_path: event files are in the run folder", "done at step"]),
        ("./train_autoencoder_multigpu.sh 4 config/config_train_multigpu.json true true", 0,
         ["launch --nproc 4 train autoencoder_3d", "compile: there is nothing to compile", "done at step"]),
        # What torch.distributed.launch --nproc_per_node=2 starts.
        (exports + "RANK=1 python " + manual + " &\nRANK=0 python " + manual + "\nwait", 0, ["runs: ", "done at step"]),
        *launched((exports + "python -m torch.distributed.launch \\\n    --nproc_per_node=2 \\\n    --master_port=12355 \\\n    " + manual, 0,
                   ["--local-rank=1", "global batch 4", "done at step"])),
    ]


def image_pairs(place):
    # The original's own defaults say where its photographs are; here that is said by data.dir.
    quick = "python training/main.py --max_steps 2 --amp_dtype bf16 --cudnn_benchmark true --gpu_log_interval 1"
    place.make("image_pairs", "photographs")
    return [
        (quick, 2, ["runs: ", "recipe image_pairs has no input", "give --data DIR, or a --preset"]),
        (quick + " --preset smoke --data photographs", 0,
         ["only GPUs use cuDNN", "step 1  memory ", "step 2  memory ", "done at step 2"]),
        ("python training/main.py --amp_dtype bf16 --cudnn_benchmark true --gpu_log_interval 100", 2, ["has no input"]),
        ("python tools/gpu_check.py", 0, ["runs: ", " doctor", "CPU", "GPU"]),
        ("python scripts/verify_gpu_setup.py || test $? = 3", 0,  # 3: without a GPU, or beside other programs
         ["runs: ", "doctor image_pairs --verify", "environment", "hardware", "training step 2", "ready to train: "]),
    ]


def language_model(place):
    place.make("language_model", "text")
    (place.folder / "corpus.toml").write_text(
        'sources = "text/letters.txt"\nmodel_embd = 32\nmodel_head = 2\nmodel_layer = 1\nmodel_positions = 32\nseq_len = 32\nepochs = 1\n'
        'batch_size = 8\nuse_amp = true\nlog_gpu_memory = false\nnum_workers = 4\npin_memory = true\nmodel_name = "corpus"\n'
        'model_path = "trained/corpus.pt"\nstart_epoch = 3\n', encoding="utf-8")
    return [("./agi2_train corpus.toml --max_steps=3", 0,
             ["model_name: model_path names the run", "pin_memory: without effect on a CPU; it speeds up copies to a GPU",
              "start_epoch: a resumed run knows its epoch", "done at step 3"]),
            ("cd tests\npython benchmark_training_optimizations.py --rounds 1 --steps 2", 0,  # its own sizes take minutes
             ["runs: ", "bench language_model", "before: everything off", "+ mixed precision", "1.5-2x, memory -25-30 %"]),
            *launched(("cd tests\npython -m pytest test_training_optimizations.py -v", 0,
                       ["test_cached_masks PASSED", "test_mixed_precision PASSED", "5 passed"]))]


def neural_response(place):
    place.env.update(CHOSEN)
    place.make("neural_response", "sessions")
    flags = "--precision bf16-mixed --accumulate_grad_batches 2 --gradient_clip_val 1.0 --num_workers 4 --compile --project_name v1"
    return [(f'"$MILLRACE" train neural_response --preset smoke --data sessions --max_steps 2 --num_gpus 2 --lr_scheduler step {flags}', 0,
             ["compile: there is nothing to compile", "project_name: checkpoint_dir and experiment_name", "done at step 2"])]


def everywhere(place):
    place.env.update(CHOSEN)
    words = " ".join(EVERYWHERE)
    return [(f'"$MILLRACE" train {recipe} --preset smoke {words}', 0,
             ["compile: there is nothing to compile", "only GPUs use cuDNN", "grad_log_interval: ", "a CPU computes the same bits",
              "debug: ", "detect_anomaly: "])
            for recipe in ("cosmology", "neural_response", "autoencoder_3d", "language_model", "image_pairs")]


def wrong(code, text, status, said):
    if code != status:
        return f"exit status {code}, not {status}"
    missing = [each for each in said if each not in text]
    return f"not printed: {missing}" if missing else ""


def main():
    program = Path(sys.argv[1]).resolve()
    failures = count = 0
    for group in (cosmology, autoencoder_3d, image_pairs, language_model, neural_response, everywhere):
        with tempfile.TemporaryDirectory() as folder:
            place = Place(program, Path(folder))
            for line, status, said in group(place):
                count += 1
                code, text = place.run(line)
                if "--show" in sys.argv:
                    print(f"$ {line}\n  {code}: {(text.strip().splitlines() or [''])[-1]}")
                if reason := wrong(code, text, status, said):
                    failures += 1
                    print(f"FAILED {group.__name__}: {line}\n{reason}\n{text}")
    print(f"{count} lines, {failures} not as expected" + ("" if PEERS else "; without those of torch, accelerate and pytest"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
