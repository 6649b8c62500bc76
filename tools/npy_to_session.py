#!/usr/bin/env python3
"""Turns responses to images (NumPy arrays) into a session that recipe neural_response reads.

    tools/npy_to_session.py INPUTS.npy RESPONSES.npy OUT [--session NAME] [--hold 50]

INPUTS (images, pixels) of square images; they are scaled to grey levels from 0 to 255. RESPONSES (repeats, images, units), 0 or more
and not necessarily whole numbers. Each repeat of each image is a trial: the image is shown for --hold bins at 240 Hz, and the response
is spread evenly over them. Writes OUT/dataset.yaml, OUT/sessions/NAME.yaml and OUT/NAME/images.h5. Needs h5py.
"""

import argparse
from pathlib import Path

from dset_to_h5 import fail, needed, write_session

np = needed("numpy")

SOURCE_RATE = 240.0
RATIO = 2  # bins at 240 Hz in a bin at 120 Hz


def convert(images, responses, hold):
    """Arrays of the session file."""
    side = int(round(images.shape[1] ** 0.5)) if images.ndim == 2 else 0
    if images.ndim != 2 or side * side != images.shape[1]:
        fail(f"the images are {list(images.shape)}, expected (images, pixels of a square)", "INPUTS", "give one row per image")
    if responses.ndim != 3 or responses.shape[1] != len(images):
        fail(f"the responses are {list(responses.shape)}, expected (repeats, {len(images)}, units)", "RESPONSES", "give the raw responses of each repeat")
    if not np.isfinite(responses).all() or responses.min(initial=0) < 0:
        fail("a response is negative or not finite", "RESPONSES", "repair the array: a Poisson loss needs 0 or more")
    if not np.isfinite(images).all():
        fail("a pixel is not finite", "INPUTS", "repair the array")
    repeats, count, units = responses.shape
    low, high = images.min(), images.max()
    grey = np.round((images - low) / (high - low if high > low else 1) * 255).astype(np.uint8).reshape(count, side, side)
    trials = repeats * count
    stim = np.broadcast_to(np.tile(grey, (repeats, 1, 1))[:, None], (trials, hold, side, side)).reshape(-1, side, side)
    robs = np.repeat(responses.reshape(trials, units) / hold, hold, axis=0).astype(np.float32)
    bins = trials * hold
    return {
        "stim": np.ascontiguousarray(stim),
        "robs": robs,
        "eyepos": np.zeros((bins, 2), np.float32),
        "dpi_valid": np.ones(bins, np.uint8),
        "trial_inds": np.repeat(np.arange(trials, dtype=np.int64), hold),
        "t_bins": np.arange(bins) / SOURCE_RATE,
    }


def dataset_text(session, lags):
    return f"""# Responses to images, from tools/npy_to_session.py.
types: [images]
session_dir: ./sessions
sessions: [{session}]
sampling: {{source_rate: {SOURCE_RATE:.0f}, target_rate: {SOURCE_RATE / RATIO:.0f}}}
keys_lags:
  robs: 0
  stim: [{', '.join(map(str, range(lags)))}]
  behavior: 0
  dfs: 0
datafilters:
  dfs:
    ops: [{{valid_nlags: {{n_lags: {lags}}}}}]
    expose_as: dfs
train_val_split: 0.8
seed: 1002
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs")
    parser.add_argument("responses")
    parser.add_argument("out")
    parser.add_argument("--session", default="region1")
    parser.add_argument("--hold", type=int, default=50, help="bins at 240 Hz that an image stands")
    options = parser.parse_args()
    if options.hold < 2 * RATIO:
        fail(f"--hold is {options.hold}", "--hold", f"give {2 * RATIO} or more: the first bin of a trial at 120 Hz counts for nothing")
    if options.hold % RATIO:
        fail(f"--hold is {options.hold}", "--hold", f"give a multiple of {RATIO}: else a bin at 120 Hz would belong to two images")
    arrays = convert(np.load(options.inputs, allow_pickle=False), np.load(options.responses, allow_pickle=False), options.hold)
    out = Path(options.out)
    write_session(out / options.session / "images.h5", arrays, options.session, "images", SOURCE_RATE)
    (out / "sessions").mkdir(exist_ok=True)
    lags = min(12, options.hold // RATIO - 1)
    (out / "dataset.yaml").write_text(dataset_text(options.session, lags))
    units = ", ".join(map(str, range(arrays["robs"].shape[1])))
    (out / "sessions" / f"{options.session}.yaml").write_text(f"session: {options.session}\ncids: [{units}]\n")
    print(f"{out / 'dataset.yaml'}: {arrays['trial_inds'][-1] + 1} trials of {options.hold} bins, {arrays['robs'].shape[1]} units, {lags} lags")


if __name__ == "__main__":
    main()
