"""Classifies digits that are drawn by the script, with Lightning."""
import logging
import sys
import time
import warnings

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

COUNT, EPOCHS, BATCH, SIDE = 640, 24, 32, 28


class Digits(Dataset):
    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(seed)
        shapes = torch.rand(10, 7, 7, generator=torch.Generator().manual_seed(0))
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        pictures = F.interpolate(shapes[self.labels][:, None], size=(SIDE, SIDE))
        self.pictures = pictures + 3 * torch.randn(pictures.shape, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 16, 5, 2, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 7 * 7, 64),
                                    nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10))

    def training_step(self, batch, index):
        loss = F.cross_entropy(self.layers(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.log("val_loss", F.cross_entropy(self.layers(batch[0]), batch[1]))

    def on_train_start(self):
        self.began, self.cpu_began = time.perf_counter(), time.process_time()

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch}:", " ".join(f"{name} {float(value):.9g}" for name, value in sorted(self.trainer.callback_metrics.items())))

    def on_train_end(self):
        print(f"{self.global_step} steps in {time.perf_counter() - self.began:.3f} s, CPU {time.process_time() - self.cpu_began:.3f} s", file=sys.stderr)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(1, verbose=False)
    train = DataLoader(Digits(COUNT, 1), batch_size=BATCH, shuffle=True)
    held_out = DataLoader(Digits(128, 2), batch_size=BATCH)
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False, num_sanity_val_steps=0)
    trainer.fit(Classifier(), train, held_out)


if __name__ == "__main__":
    main()
