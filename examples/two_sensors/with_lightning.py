"""The recipe of recipe.cpp for Lightning, to compare with: two sensors of unlike shape that measure one temperature.

    pip install lightning torchmetrics
    python with_lightning.py
"""
import argparse

import lightning
import numpy
import torch
import torchmetrics
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import CombinedLoader
from torch import nn
from torch.utils.data import DataLoader, Dataset

SENSORS = {"camera": dict(width=64, samples=2000, batch_size=40, weight=1.0),
           "probe": dict(width=5, samples=500, batch_size=20, weight=0.5)}


class Readings(Dataset):
    """Each value of a reading sees the temperature through its own curve, with noise."""

    def __init__(self, width, first, size, noise):
        self.width, self.first, self.size, self.noise = width, first, size, noise

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        random = numpy.random.default_rng([3, self.width, self.first + index])
        temperature = 2 * random.random() - 1
        curves = 0.3 * numpy.arange(1, self.width + 1)
        x = numpy.tanh(2 * temperature + curves) + self.noise * random.standard_normal(self.width)
        return torch.tensor(x, dtype=torch.float32), torch.tensor([temperature], dtype=torch.float32)


class Data(lightning.LightningDataModule):
    def __init__(self, noise):
        super().__init__()
        self.noise = noise

    def loaders(self, mode, training):
        loaders = {}
        for name, sensor in SENSORS.items():
            first, size = (0, sensor["samples"]) if training else (sensor["samples"], sensor["samples"] // 5)
            loaders[name] = DataLoader(Readings(sensor["width"], first, size, self.noise), sensor["batch_size"], shuffle=training)
        return CombinedLoader(loaders, mode)

    def train_dataloader(self):
        return self.loaders("max_size_cycle", True)

    def val_dataloader(self):
        return self.loaders("max_size_cycle", False)


class TwoSensors(lightning.LightningModule):
    def __init__(self, width, learning_rate):
        super().__init__()
        self.save_hyperparameters()
        self.inputs = nn.ModuleDict({name: nn.Linear(sensor["width"], width) for name, sensor in SENSORS.items()})
        self.trunk = nn.Linear(width, width)
        self.output = nn.Linear(width, 1)
        self.metrics = nn.ModuleDict({
            name: torchmetrics.MetricCollection(
                {"mae": torchmetrics.MeanAbsoluteError(), "rmse": torchmetrics.MeanSquaredError(squared=False),
                 "r2": torchmetrics.R2Score(), "pearson": torchmetrics.PearsonCorrCoef()}, prefix=f"{name}/")
            for name in SENSORS})

    def forward(self, name, x):
        return self.output(self.trunk(self.inputs[name](x).tanh()).tanh())

    def losses(self, batch, split):
        total, predictions = 0.0, {}
        for name, (x, temperature) in batch.items():
            predictions[name] = self(name, x)
            error = nn.functional.mse_loss(predictions[name], temperature)
            self.log(f"{split}_loss/{name}", error, batch_size=len(x))
            total = total + SENSORS[name]["weight"] * error
        self.log(f"{split}_loss", total, prog_bar=True, batch_size=1)
        return total, predictions

    def training_step(self, batch, index):
        return self.losses(batch, "train")[0]

    def validation_step(self, batch, index):
        _, predictions = self.losses(batch, "val")
        for name, (x, temperature) in batch.items():
            self.metrics[name].update(predictions[name][:, 0], temperature[:, 0])
            self.log_dict(self.metrics[name], prog_bar=True, batch_size=len(x))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=32, help="units of the trunk")
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation of a reading's noise")
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--run", default="runs/two_sensors")
    args = parser.parse_args()
    lightning.seed_everything(0, workers=True)
    best = ModelCheckpoint(monitor="val_loss", save_last=True)
    trainer = lightning.Trainer(max_epochs=args.epochs, default_root_dir=args.run, callbacks=[best])
    trainer.fit(TwoSensors(args.width, args.learning_rate), Data(args.noise), ckpt_path="last")


if __name__ == "__main__":
    main()
