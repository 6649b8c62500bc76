"""The step of gpt_step_peer.py in JAX, as a careful user would write it: one jitted function, donated buffers, random bits by
`unsafe_rbg`, in bf16 the products in bf16 and everything else in fp32.

    PYTHON_WITH_JAX bench/step/gpt_step_jax.py --dtype fp32|bf16 [--dropout 0.1] [--steps 3]

Answers as step_peer.py says.
"""

import argparse
import functools
import json
import math
import os
import sys
import time

VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 70, 384, 6, 6, 256, 8
RATE, BETA1, BETA2, EPSILON, DECAY, CLIP = 1e-4, 0.9, 0.999, 1e-8, 0.01, 1.0


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    return parser.parse_args()


OPTIONS = parse()
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:OPTIONS.threads])  # XLA takes a thread for each core it may use

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

jax.config.update("jax_default_prng_impl", "unsafe_rbg")
HALF = jnp.bfloat16 if OPTIONS.dtype == "bf16" else jnp.float32


def parameters(key):
    keys = iter(jax.random.split(key, 1 + 6 * LAYERS))
    linear = lambda n, m: {"w": 0.02 * jax.random.normal(next(keys), (n, m)), "b": jnp.zeros(m)}
    norm = lambda: {"w": jnp.ones(WIDTH), "b": jnp.zeros(WIDTH)}
    blocks = [{"ln1": norm(), "ln2": norm(), **{name: linear(WIDTH, WIDTH) for name in ("q", "k", "v", "o")},
               "fc1": linear(WIDTH, 4 * WIDTH), "fc2": linear(4 * WIDTH, WIDTH)} for _ in range(LAYERS)]
    return {"embedding": 0.02 * jax.random.normal(next(keys), (VOCABULARY, WIDTH)), "blocks": blocks, "ln_f": norm()}


def linear(p, x):
    return (x.astype(HALF) @ p["w"].astype(HALF)).astype(HALF) + p["b"].astype(HALF)


def layer_norm(p, x):
    x = x.astype(jnp.float32)
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-5) * p["w"] + p["b"]


def dropout(key, x):
    if OPTIONS.dropout == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - OPTIONS.dropout, x.shape), x / (1 - OPTIONS.dropout), 0)


def block(p, x, key):
    keys = jax.random.split(key, 4)
    heads = lambda y: y.reshape(BATCH, CONTEXT, HEADS, WIDTH // HEADS)
    n = layer_norm(p["ln1"], x)
    q, k, v = (heads(linear(p[name], n)) for name in ("q", "k", "v"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(jnp.float32) / math.sqrt(WIDTH // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((CONTEXT, CONTEXT), bool)), scores, -jnp.inf)
    weights = dropout(keys[0], jax.nn.softmax(scores)).astype(HALF)
    a = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(BATCH, CONTEXT, WIDTH)
    x = x + dropout(keys[1], linear(p["o"], a))
    h = dropout(keys[2], jax.nn.gelu(linear(p["fc1"], layer_norm(p["ln2"], x)), approximate=False))
    return x + dropout(keys[3], linear(p["fc2"], h))


def positions():
    rates = jnp.exp(jnp.arange(0, WIDTH, 2) * (-math.log(10000.0) / WIDTH))
    angles = jnp.arange(CONTEXT)[:, None] * rates
    return jnp.stack([jnp.sin(angles), jnp.cos(angles)], 2).reshape(CONTEXT, WIDTH)


def loss_of(p, tokens, targets, key):
    keys = jax.random.split(key, 2 + LAYERS)
    x = dropout(keys[0], p["embedding"][tokens] * math.sqrt(WIDTH))
    x = dropout(keys[1], x + positions())
    for i, layer in enumerate(p["blocks"]):
        x = block(layer, x, keys[2 + i])
    logits = (layer_norm(p["ln_f"], x).astype(HALF) @ p["embedding"].T.astype(HALF)).astype(jnp.float32)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    return -chosen.mean()


@functools.partial(jax.jit, donate_argnums=(0, 1, 2))
def train_step(p, m, v, t, tokens, targets, key):
    loss, gradients = jax.value_and_grad(loss_of)(p, tokens, targets, key)
    norm = jnp.sqrt(sum((g * g).sum() for g in jax.tree.leaves(gradients)))
    scale = jnp.minimum(1.0, CLIP / (norm + 1e-6))
    m = jax.tree.map(lambda a, g: BETA1 * a + (1 - BETA1) * scale * g, m, gradients)
    v = jax.tree.map(lambda a, g: BETA2 * a + (1 - BETA2) * (scale * g) ** 2, v, gradients)
    moved = lambda w, a, b: w * (1 - RATE * DECAY) - RATE * (a / (1 - BETA1**t)) / (jnp.sqrt(b / (1 - BETA2**t)) + EPSILON)
    return jax.tree.map(moved, p, m, v), m, v, loss


def seconds_since_process_start():
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def main():
    p = parameters(jax.random.key(0))
    m, v = jax.tree.map(jnp.zeros_like, p), jax.tree.map(jnp.zeros_like, p)
    window = jax.random.randint(jax.random.key(1), (BATCH, CONTEXT + 1), 0, VOCABULARY)
    tokens, targets = window[:, :-1], window[:, 1:]
    count = 0

    def step():
        nonlocal p, m, v, count
        count += 1
        p, m, v, loss = train_step(p, m, v, float(count), tokens, targets, jax.random.key(count))
        return loss.block_until_ready()

    first = float(step())
    print(json.dumps({"first_step_s_since_process_start": seconds_since_process_start(), "loss_first": first}), flush=True)
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        times = []
        for _ in range(OPTIONS.steps):
            begin = time.perf_counter()
            loss = step()
            times.append(1e3 * (time.perf_counter() - begin))
        print(json.dumps({"ms": times, "loss_last": float(loss)}), flush=True)


if __name__ == "__main__":
    main()
