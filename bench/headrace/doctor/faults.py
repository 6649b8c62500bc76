"""Faults that are planted in the scripts of scripts/: a fault is a clean script with some of its text replaced.

A remedy that the doctor prints as arguments, as a line or as a command is applied by remedies.py. Where it prints prose, `by_hand` says
which text a reader of that prose would write; {every} there is the interval that the finding names.
"""
from dataclasses import dataclass, field


@dataclass
class Fault:
    name: str
    script: str
    cause: str  # the finding that must come first
    plant: dict
    by_hand: dict = field(default_factory=dict)
    also: tuple = ()  # findings that name the same cause in other words
    gains: bool = True  # False: the fault costs no time, but the result


SLOW_DISK = "time.sleep({ms} / 1000)  # a disk that is far away\n        "

FAULTS = [
    # -- readers
    Fault("no_workers", "autoencoder_3d", "no_readers",
          {"num_workers=1, persistent_workers=True": "num_workers=0",
           "return torch.from_numpy(np.load": SLOW_DISK.format(ms=6) + "return torch.from_numpy(np.load"}),
    Fault("few_workers", "image_pairs", "few_readers",
          {"num_workers=2, persistent_workers=True": "num_workers=1, persistent_workers=True",
           "        return self.read(f": "        " + SLOW_DISK.format(ms=8) + "return self.read(f"}),
    Fault("no_workers_lightning", "with_lightning", "no_readers",
          {"return self.pictures[index]": SLOW_DISK.format(ms=2) + "return self.pictures[index]", "EPOCHS, BATCH, SIDE = 640, 24": "EPOCHS, BATCH, SIDE = 640, 5"}),
    Fault("no_workers_trainer", "with_trainer", "no_readers",
          {"        ids = [int": "        " + SLOW_DISK.format(ms=3) + "ids = [int", "COUNT, LENGTH, WORDS = 800": "COUNT, LENGTH, WORDS = 960"}),
    Fault("few_workers_accelerate", "with_accelerate", "few_readers",
          {"        random = np.random": "        " + SLOW_DISK.format(ms=3) + "random = np.random"}),
    Fault("decode_in_loop", "image_pairs", "no_readers",
          {"SIDE, COUNT, EPOCHS, BATCH = 48, 192, 16, 16": "SIDE, COUNT, EPOCHS, BATCH = 48, 192, 8, 16", "num_workers=2, persistent_workers=True": "num_workers=0",
           "        return torch.from_numpy(picture.reshape(3, SIDE, SIDE).astype":
           "        waves = np.fft.rfft2(np.kron(picture.reshape(3, SIDE, SIDE), np.ones((1, 3, 3))))  # sharper, at three times the size\n"
           "        picture = np.fft.irfft2(waves * (1 + 0.1 * np.hypot(*np.meshgrid(np.arange(waves.shape[2]), np.arange(waves.shape[1]))) / SIDE))[:, ::3, ::3]\n"
           "        return torch.from_numpy(picture.reshape(3, SIDE, SIDE).astype"}),
    Fault("slow_sample", "image_pairs", "slow_sample",
          {"        return self.read(f": "        if index == 77:  # a file of another size\n            time.sleep(0.6)\n        return self.read(f"},
          {"        if index == 77:  # a file of another size\n            time.sleep(0.6)\n": ""}),
    # -- workers
    Fault("respawn", "image_pairs", "workers_respawn",
          {"num_workers=2, persistent_workers=True": "num_workers=2", "COUNT, EPOCHS, BATCH = 48, 192, 16": "COUNT, EPOCHS, BATCH = 48, 96, 24",
           "        return self.read(f": "        " + SLOW_DISK.format(ms=1) + "return self.read(f"}),
    Fault("too_many_workers", "image_pairs", "too_many_workers",
          {"num_workers=2, persistent_workers=True": "num_workers=24", "COUNT, EPOCHS, BATCH = 48, 192, 16": "COUNT, EPOCHS, BATCH = 48, 192, 6"}, also=("workers_respawn",)),
    Fault("threads_in_workers", "image_pairs", "threads_in_workers",
          {"num_workers=2, persistent_workers=True": "num_workers=2, persistent_workers=True, worker_init_fn=lambda worker: torch.set_num_threads(8)",
           "        return torch.from_numpy(picture.reshape(3, SIDE, SIDE).astype(np.float32) / 255)":
           "        picture = torch.from_numpy(picture.reshape(1, 3, SIDE, SIDE).astype(np.float32) / 255)\n"
           "        return F.interpolate(F.interpolate(picture, scale_factor=6, mode=\"bicubic\"), size=SIDE, mode=\"area\")[0]"}),
    # -- the step
    Fault("page_faults", "autoencoder_3d", "page_faults",
          {"SIDE, COUNT, EPOCHS, BATCH = 20, 160, 10, 8": "SIDE, COUNT, EPOCHS, BATCH = 64, 24, 5, 4", "def __init__(self, width=8)": "def __init__(self, width=16)"}),
    Fault("threads", "nano_gpt", "oversubscribed", {"    torch.manual_seed(1)\n": "    torch.manual_seed(1)\n    torch.set_num_threads(16)\n"}, {"torch.set_num_threads(16)": "torch.set_num_threads(2)"}),
    Fault("item_in_loop", "neural_response", "item_in_loop",
          {"scores.append(correlations(rates.detach(), spikes).mean())":
           "scores.append(torch.tensor([abs(spikes[row, frame, cell].item() - rates[row, frame, cell].item()) for row in range(BATCH) for frame in range(12) for cell in range(40)]).mean())",
           "correlation {": "distance {"},
          {"torch.tensor([abs(spikes[row, frame, cell].item() - rates[row, frame, cell].item()) for row in range(BATCH) for frame in range(12) for cell in range(40)]).mean()":
           "(spikes[:, :, :40] - rates.detach()[:, :, :40]).abs().mean()"}, also=("gil_bound",)),
    Fault("python_in_loop", "gan", "gil_bound",
          {"import sys\n": "import math\nimport sys\n", "EPOCHS, BATCH, NOISE = 16, 512, 20": "EPOCHS, BATCH, NOISE = 16, 512, 12", "            made = draw(torch.randn(len(real), NOISE))":
           "            noisy = real.tolist()\n            for row in list(range(len(noisy))) * 4:\n                for y in range(SIDE):\n                    for x in range(SIDE):\n"
           "                        noisy[row][0][y][x] = max(-1.0, min(1.0, noisy[row][0][y][x] * (1.1 + 0.05 * math.sin(0.3 * x) + 0.05 * math.cos(0.4 * y) + 0.02 * math.sin(x * y + row))))\n            real = torch.tensor(noisy)\n"
           "            made = draw(torch.randn(len(real), NOISE))"},
          {"            noisy = real.tolist()\n            for row in list(range(len(noisy))) * 4:\n                for y in range(SIDE):\n                    for x in range(SIDE):\n"
           "                        noisy[row][0][y][x] = max(-1.0, min(1.0, noisy[row][0][y][x] * (1.1 + 0.05 * math.sin(0.3 * x) + 0.05 * math.cos(0.4 * y) + 0.02 * math.sin(x * y + row))))\n            real = torch.tensor(noisy)\n":
           "            y, x = torch.arange(SIDE)[:, None], torch.arange(SIDE)\n"
           "            real = (real * (1.1 + 0.05 * torch.sin(0.3 * x) + 0.05 * torch.cos(0.4 * y) + 0.02 * torch.sin(x * y + torch.arange(len(real))[:, None, None, None]))).clamp(-1, 1)\n"}),
    Fault("rebuilt_pca", "cosmology", "rebuilt_tensors",
          {"            loss = F.mse_loss(model(without": "            components = components_of(sky)\n            loss = F.mse_loss(model(without"},
          {"            components = components_of(sky)\n            loss": "            loss"}),
    # -- beside the step
    Fault("saves", "language_model", "snapshot_often", {"SAVE_EVERY = 100": "SAVE_EVERY = 1", "EPOCHS, WIDTH = 64, 16, 4, 96": "EPOCHS, WIDTH = 64, 4, 1, 160"}, {"SAVE_EVERY = 1 ": "SAVE_EVERY = {every} "}),
    Fault("saves_trainer", "with_trainer", "snapshot_often", {'save_strategy="no"': 'save_strategy="steps", save_steps=1'}),
    Fault("validations", "cosmology", "validate_often", {"VALIDATE_EVERY = 80": "VALIDATE_EVERY = 2"}, {"VALIDATE_EVERY = 2 ": "VALIDATE_EVERY = {every} "}),
    Fault("log_lines", "language_model", "log_often",
          {"import torch\nimport torch.nn.functional as F": "import torch\nimport torch.nn.functional as F\nfrom torch.utils.tensorboard import SummaryWriter",
           "    began, cpu, step = ": "    log, log_every = SummaryWriter(\"log\"), 1\n    began, cpu, step = ",
           "            step += 1\n": "            step += 1\n            if step % log_every == 0:\n                for name, values in model.named_parameters():\n"
           "                    log.add_histogram(name, values, step)\n"},
          {"SummaryWriter(\"log\"), 1\n": "SummaryWriter(\"log\"), {every}\n"}),
    # -- the result
    Fault("losses_kept", "neural_response", "list_growing", {"losses.append(loss.detach())": "losses.append(loss)", "losses, scores = [], []": "scores = []",
                                                            "    began, cpu, steps = ": "    losses = []\n    began, cpu, steps = "}, gains=False),
    Fault("not_finite", "nano_gpt", "not_finite", {"BEST, WIDTH, HEADS, BLOCKS = 64, 8, 2, 150, 20, 1e-3": "BEST, WIDTH, HEADS, BLOCKS = 64, 8, 2, 150, 20, 1e-3",
                                                  "nn.utils.clip_grad_norm_(model.parameters(), 1.0)": "model.norm.bias.data.log_()"}, gains=False),
    Fault("dead_output", "image_pairs", "loss_flat", {"return self.layers(x).squeeze(1)": "return F.relu(self.layers(x).squeeze(1) - 9)"}, gains=False),
]


def planted(text, fault):
    for old, new in fault.plant.items():
        assert text.count(old) >= 1, f"{fault.name}: {fault.script} has no {old!r}"
        text = text.replace(old, new)
    return text


def mended_by_hand(text, fault, every):
    for old, new in fault.by_hand.items():
        assert text.count(old) == 1, f"{fault.name}: the planted script has no {old!r}"
        text = text.replace(old, new.replace("{every}", str(every)))
    return text
