"""Trains a small BERT that says whether a sentence is a question, with the Trainer of transformers."""
import random
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, PrinterCallback, Trainer, TrainerCallback, TrainingArguments, set_seed

COUNT, LENGTH, WORDS = 800, 32, 200


class Sentences(Dataset):
    def __init__(self):
        words = random.Random(0)
        self.texts = [" ".join(f"w{words.randrange(2, WORDS)}" for _ in range(LENGTH - 1)) for _ in range(COUNT)]
        self.questions = [words.random() < 0.5 for _ in range(COUNT)]

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        ids = [int(word[1:]) for word in self.texts[index].split()] + [int(self.questions[index])]
        return {"input_ids": torch.tensor(ids), "labels": torch.tensor(int(self.questions[index]))}


class Times(TrainerCallback):
    def on_train_begin(self, args, state, control, **_):
        self.began, self.cpu = time.perf_counter(), time.process_time()

    def on_log(self, args, state, control, logs=None, **_):
        if "loss" in logs:
            print(f"step {state.global_step}: loss {float(logs['loss']):.9g}")

    def on_train_end(self, args, state, control, **_):
        print(f"{state.global_step} steps in {time.perf_counter() - self.began:.3f} s, CPU {time.process_time() - self.cpu:.3f} s", file=sys.stderr)


def main():
    set_seed(1)
    model = BertForSequenceClassification(BertConfig(vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
                                                     max_position_embeddings=LENGTH))
    arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=16, num_train_epochs=4, learning_rate=1e-3, logging_steps=20,
                                  save_strategy="no", report_to="none", disable_tqdm=True, use_cpu=True, seed=1)
    trainer = Trainer(model=model, args=arguments, train_dataset=Sentences(), callbacks=[Times()])
    trainer.remove_callback(PrinterCallback)
    trainer.train()


if __name__ == "__main__":
    main()
