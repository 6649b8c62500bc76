"""The recipe of recipe.cpp for Lightning, to compare with: ten noisy textures, a small convolutional network.

    pip install lightning torchmetrics matplotlib
    python with_lightning.py train      python with_lightning.py predict IN.npy OUT.npy CHECKPOINT
"""
import argparse
import math

import lightning
import numpy
import torch
import torchmetrics
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = 10


class Gratings(Dataset):
    """Picture i is a pure function of i: a grating of its class's direction, with its own wavelength and phase, under noise."""

    def __init__(self, first, size, noise, augments):
        self.first, self.size, self.noise, self.augments = first, size, noise, augments

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        random = numpy.random.default_rng([7, self.first + index])
        label = index % CLASSES
        angle = math.pi * label / CLASSES
        wave = 2 * math.pi / (4 + 4 * random.random())
        phase = 2 * math.pi * random.random()
        row, column = numpy.mgrid[0:32, 0:32]
        image = numpy.sin(wave * (math.cos(angle) * column + math.sin(angle) * row) + phase)
        image = (image + self.noise * random.standard_normal(image.shape)) / math.hypot(0.7, self.noise)
        if self.augments:
            image = numpy.pad(image, 2, mode="reflect")
            top, left = torch.randint(0, 5, (2,)).tolist()
            image = image[top:top + 32, left:left + 32]
        return {"image": torch.tensor(image[None], dtype=torch.float32), "label": label,
                "direction": torch.tensor([math.cos(2 * angle), math.sin(2 * angle)])}


class Data(lightning.LightningDataModule):
    def __init__(self, pictures, noise, batch_size, workers):
        super().__init__()
        self.save_hyperparameters()

    def loader(self, dataset, shuffle):
        return DataLoader(dataset, self.hparams.batch_size, shuffle=shuffle, num_workers=self.hparams.workers,
                          persistent_workers=self.hparams.workers > 0)

    def train_dataloader(self):
        return self.loader(Gratings(0, self.hparams.pictures, self.hparams.noise, True), True)

    def val_dataloader(self):
        return self.loader(Gratings(self.hparams.pictures, self.hparams.pictures // 4, self.hparams.noise, False), False)


class Textures(lightning.LightningModule):
    def __init__(self, widths, label_smoothing, learning_rate):
        super().__init__()
        self.save_hyperparameters()
        layers, channels = [], 1
        for width in widths:
            layers += [nn.Conv2d(channels, width, 3, padding=1, stride=2), nn.ReLU()]
            channels = width
        self.model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES + 2))
        self.cross_entropy = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
        self.metrics = torchmetrics.MetricCollection({
            "accuracy": torchmetrics.Accuracy("multiclass", num_classes=CLASSES, average="micro"),
            "top2_accuracy": torchmetrics.Accuracy("multiclass", num_classes=CLASSES, average="micro", top_k=2),
            "balanced_accuracy": torchmetrics.Accuracy("multiclass", num_classes=CLASSES, average="macro")})
        self.recall = torchmetrics.Recall("multiclass", num_classes=CLASSES, average="none")
        self.precision = torchmetrics.Precision("multiclass", num_classes=CLASSES, average="none")
        self.confusion = torchmetrics.ConfusionMatrix("multiclass", num_classes=CLASSES)

    def forward(self, image):
        return self.model(image)

    def losses(self, batch, split):
        out = self(batch["image"]).float()
        logits, direction = out[:, :CLASSES], out[:, CLASSES:]
        classes = self.cross_entropy(logits, batch["label"])
        error = nn.functional.mse_loss(direction, batch["direction"])
        loss = classes + 0.1 * error
        self.log_dict({f"{split}_loss": loss, f"{split}_loss/classes": classes, f"{split}_loss/direction": error},
                      prog_bar=True, batch_size=len(logits))
        return loss, logits

    def training_step(self, batch, index):
        return self.losses(batch, "train")[0]

    def validation_step(self, batch, index):
        _, logits = self.losses(batch, "val")
        self.metrics.update(logits, batch["label"])
        for metric in (self.recall, self.precision, self.confusion):
            metric.update(logits, batch["label"])
        self.log_dict(self.metrics, prog_bar=True)

    def on_validation_epoch_end(self):
        for name, metric in (("recall", self.recall), ("precision", self.precision)):
            self.log_dict({f"{name}/{i}": value for i, value in enumerate(metric.compute())})
        figure, _ = self.confusion.plot()
        figure.savefig(f"{self.trainer.default_root_dir}/confusion.png")
        for metric in (self.recall, self.precision, self.confusion):
            metric.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)


def predict(source, target, checkpoint, batch_size):
    model = Textures.load_from_checkpoint(checkpoint).eval()
    images = torch.from_numpy(numpy.load(source)).float()
    with torch.no_grad():
        labels = [model(part)[:, :CLASSES].argmax(1) for part in images.split(batch_size)]
    numpy.save(target, torch.cat(labels).numpy())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["train", "predict"])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--pictures", type=int, default=2000, help="training pictures; a quarter as many more are kept for validation")
    parser.add_argument("--noise", type=float, default=3.0, help="standard deviation of the noise; a grating's is about 0.7")
    parser.add_argument("--widths", type=int, nargs=3, default=[16, 32, 32], help="channels of the three convolutions")
    parser.add_argument("--label_smoothing", type=float, default=0.05, help="share of each label that is spread over all classes")
    parser.add_argument("--learning_rate", type=float, default=5e-3)
    parser.add_argument("--batch_size", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--run", default="runs/textures")
    args = parser.parse_args()
    if args.command == "predict":
        return predict(*args.files, args.batch_size)
    lightning.seed_everything(0, workers=True)
    best = ModelCheckpoint(monitor="val_loss", save_last=True)
    trainer = lightning.Trainer(max_epochs=args.epochs, default_root_dir=args.run, callbacks=[best])
    model = Textures(args.widths, args.label_smoothing, args.learning_rate)
    trainer.fit(model, Data(args.pictures, args.noise, args.batch_size, args.workers), ckpt_path="last")


if __name__ == "__main__":
    main()
