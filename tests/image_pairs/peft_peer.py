"""transformers and PEFT on what we write, and their files for us to read, for peft_test.cpp.

usage: peft_peer.py FOLDER, which holds config.json (the recipe's section), batch.safetensors (pixels, tokens), base/, adapter/ and merged/ as
millrace writes them. Makes logits.safetensors with base, adapter, merged and, of changed adapters and a changed projector, theirs; and
their_base/ (in shards) and their_adapter/. Exits with 77 where one of the packages is missing.
"""

import json
import os
import sys
from pathlib import Path

os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"

import torch
from safetensors.torch import load_file, save_file

try:
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
except ImportError as error:
    print(error)
    sys.exit(77)


def llava_config(recipe):
    vision = CLIPVisionConfig(hidden_size=recipe["vision_width"], intermediate_size=recipe["vision_hidden"],
                              num_hidden_layers=recipe["vision_layers"], num_attention_heads=recipe["vision_heads"],
                              image_size=recipe["image_size"], patch_size=recipe["patch_size"], hidden_act="quick_gelu", layer_norm_eps=1e-5)
    text = LlamaConfig(vocab_size=recipe["vocab_size"], hidden_size=recipe["decoder_width"], intermediate_size=recipe["decoder_hidden"],
                       num_hidden_layers=recipe["decoder_layers"], num_attention_heads=recipe["decoder_heads"],
                       num_key_value_heads=recipe["decoder_heads"], rms_norm_eps=1e-5, tie_word_embeddings=False)
    return LlavaConfig(vision_config=vision, text_config=text, image_token_index=258, projector_hidden_act="gelu_pytorch_tanh",
                       vision_feature_layer=recipe["vision_feature_layer"], vision_feature_select_strategy="default",
                       tie_word_embeddings=False)


def load(folder, may_lack=()):
    model, info = LlavaForConditionalGeneration.from_pretrained(str(folder), output_loading_info=True)
    missing = [name for name in info["missing_keys"] if not any(part in name for part in may_lack)]
    assert not missing and not info["unexpected_keys"] and not info["mismatched_keys"], info
    return model.float().eval()


def main():
    folder = Path(sys.argv[1])
    recipe = json.loads((folder / "config.json").read_text())
    batch, out = load_file(folder / "batch.safetensors"), {}

    def answers(model):
        with torch.no_grad():
            return model(input_ids=batch["tokens"], pixel_values=batch["pixels"]).logits[:, -1, 259:262].contiguous()

    llava_config(recipe).save_pretrained(folder / "base")
    model = load(folder / "base")
    out["base"] = answers(model)
    model.save_pretrained(folder / "their_base", max_shard_size="20KB")

    adapted = PeftModel.from_pretrained(model, str(folder / "adapter")).eval()
    out["adapter"] = answers(adapted)
    ours = load_file(folder / "adapter" / "adapter_model.safetensors")
    adapted.save_pretrained(folder / "saved_again")
    again = load_file(folder / "saved_again" / "adapter_model.safetensors")
    assert all(torch.equal(again[name], value) for name, value in ours.items()), "PEFT took other values than the file has"

    model = load(folder / "base")
    settings = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    theirs = get_peft_model(model, LoraConfig(r=recipe["lora_r"], lora_alpha=recipe["lora_alpha"], lora_dropout=0.05,
                                              target_modules=settings["target_modules"], modules_to_save=["multi_modal_projector"])).eval()
    torch.manual_seed(1)
    for name, parameter in theirs.named_parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    out["theirs"] = answers(theirs)
    theirs.save_pretrained(folder / "their_adapter")

    out["merged"] = answers(load(folder / "merged", may_lack=["post_layernorm"]))
    save_file(out, folder / "logits.safetensors")


if __name__ == "__main__":
    main()
