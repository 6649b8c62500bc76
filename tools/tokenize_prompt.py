#!/usr/bin/env python3
"""Writes a config file with the prompt and answers of recipe image_pairs in the tokens of your own base model.

    python3 tools/tokenize_prompt.py TOKENIZER --out prompt.json [--question TEXT] [--image-token TEXT] [--answers FIRST SECOND SIMILAR]
    millrace train image_pairs prompt.json --recipe.base_weights=DIR ...

TOKENIZER is a folder or a name that transformers.AutoTokenizer takes (pip install transformers). Each image is one image token, which the
recipe takes for all patches. An answer must be one token of the tokenizer, or its first token must tell it from the other two.
"""
import argparse
import json
import sys
from pathlib import Path

QUESTION = ("Which of the two images has less noise? Answer with exactly one word: First (first image), Second (second image), or "
            "Similar (equally clean)")


def answer_ids(tokenizer, answers):
    """The first token of each answer; None if two answers begin alike."""
    ids = [tokenizer.encode(answer, add_special_tokens=False)[0] for answer in answers]
    return ids if len(set(ids)) == len(ids) else None


def prompt_ids(tokenizer, image_token, question):
    ids = tokenizer.encode(f"{image_token}{image_token}, {question}", add_special_tokens=False)
    begin = tokenizer.bos_token_id
    return ([] if begin is None else [begin]) + ids


def config_of(tokenizer, question, image_token, answers):
    """The config's keys; a SystemExit says what does not fit."""
    image = tokenizer.convert_tokens_to_ids(image_token)
    if image is None or image == tokenizer.unk_token_id:
        raise SystemExit(f"the tokenizer has no token {image_token!r}: name its image token with --image-token")
    ids = prompt_ids(tokenizer, image_token, question)
    if ids.count(image) != 2:
        raise SystemExit(f"the prompt has {ids.count(image)} image tokens, not two: is {image_token!r} a special token of the tokenizer?")
    found = answer_ids(tokenizer, answers)
    if found is None:
        raise SystemExit(f"two of the answers {answers} begin with one token: choose other words with --answers")
    return {"recipe": {"prompt_token_ids": ids, "answer_token_ids": found, "image_token_id": image}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tokenizer")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--question", default=QUESTION)
    parser.add_argument("--image-token", default="<image>")
    parser.add_argument("--answers", nargs=3, default=["First", "Second", "Similar"])
    options = parser.parse_args()
    try:
        from transformers import AutoTokenizer
    except ImportError:
        sys.exit("transformers is not there: pip install transformers")
    config = config_of(AutoTokenizer.from_pretrained(options.tokenizer), options.question, options.image_token, options.answers)
    options.out.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {options.out}: {len(config['recipe']['prompt_token_ids'])} tokens, two of them for the images")


if __name__ == "__main__":
    main()
