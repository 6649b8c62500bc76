"""The sizes of the bench shapes, as the recipes' entries have them (recipes/*/entry.cpp, bench_shapes).

Both sides count their parameters and say the sizes of their batch; sides.py compares them in every run, tests/bench_shapes in the tests.
"""

SHAPES = {
    "language_model": {
        "cpu-small": {"width": 384, "layers": 6, "heads": 6, "context": 256, "batch": 8, "vocabulary": 70},
        "gpu-small": {"width": 384, "layers": 6, "heads": 6, "context": 256, "batch": 64, "vocabulary": 70},
        "gpu-guide": {"width": 768, "layers": 12, "heads": 12, "context": 1024, "batch": 16, "vocabulary": 50304},
    },
    "cosmology": {
        "cpu-small": {"filters": 16, "ra": 64, "frequencies": 64, "baselines": 48, "chunks": 1},
        "gpu-small": {"filters": 16, "ra": 64, "frequencies": 64, "baselines": 48, "chunks": 4},
        "gpu-guide": {"filters": 16, "ra": 256, "frequencies": 128, "baselines": 48, "chunks": 4},
    },
    "autoencoder_3d": {
        "cpu-small": {"config": "stable", "side": 32, "rows": 1},
        "gpu-small": {"config": "stable", "side": 48, "rows": 4},
        "gpu-guide": {"config": "multigpu", "side": 64, "rows": 2},
    },
    "neural_response": {
        "cpu-small": {"units": [60, 40], "rows": 8},
        "gpu-small": {"units": [50] * 4, "rows": 32},
        "gpu-guide": {"units": [110] * 20, "rows": 256},
    },
    "image_pairs": {
        "cpu-small": {"pairs": 4, "side": 64, "patch": 8, "vision": 192, "vision_blocks": 6, "vision_heads": 3, "vision_hidden": 768,
                      "width": 256, "blocks": 4, "heads": 4, "hidden": 688, "words": 262, "question": "Cleaner?"},
        "gpu-small": {"pairs": 8, "side": 112, "patch": 14, "vision": 384, "vision_blocks": 8, "vision_heads": 6, "vision_hidden": 1536,
                      "width": 1024, "blocks": 8, "heads": 16, "hidden": 2752, "words": 262, "question": "Cleaner?"},
        # The tower's last block is not built: its output is not used.
        "gpu-guide": {"pairs": 2, "side": 336, "patch": 14, "vision": 1024, "vision_blocks": 23, "vision_heads": 16, "vision_hidden": 4096,
                      "width": 4096, "blocks": 32, "heads": 32, "hidden": 11008, "words": 32064,
                      "question": "Which image has less noise? First, Second or Similar?"},
    },
}


def sized(recipe, shape, changes):
    """The sizes of a shape; `changes`: words such as layers=1 over them. A key that the shape does not have is a ValueError."""
    sizes = dict(SHAPES[recipe][shape])
    for word in changes:
        key, _, value = word.partition("=")
        if key not in sizes or not value:
            raise ValueError(f"{word}: the sizes of {recipe} are {', '.join(f'{key}=...' for key in sizes)}")
        kind = type(sizes[key])
        sizes[key] = [int(number) for number in value.split(",")] if kind is list else kind(value)
    return sizes
