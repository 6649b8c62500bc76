#include "millrace/train/recipe/detail/refusals.h"

#include <array>
#include <string_view>

namespace millrace {
namespace {

constexpr const char* kOtherDevice =
    "make each tensor where the batch is: at::zeros({4}, batch[\"x\"].options()), or at::TensorOptions(context.device) with the "
    "Context of the recipe's constructor";
constexpr const char* kChannels =
    "channels are dimension 1 of [rows,channels,...]: look for a batch axis that is lost (batch[\"x\"][0] and squeeze() remove "
    "it, narrow(0, 0, 1) keeps it), for dimensions in another order, or for a layer of another width";
constexpr const char* kTypes =
    "give both the same type: weights are f32, so call batch.set(\"x\", batch[\"x\"].to(at::kFloat)) in prepare(), or let the "
    "source give f32";

struct Kind {
  std::string_view words;
  const char* next;
};
constexpr std::array<Kind, 13> kKinds = {{
    {"modified by an inplace operation",
     "write b = a + 1, not a.add_(1), where the backward pass needs the old a; give add_rms_norm, swiglu and rotary_attention a "
     "clone(), because they may overwrite it"},
    {"from the 'CUDA' backend", kOtherDevice},
    {"to be on the same device", kOtherDevice},
    {"Torch not compiled with CUDA", kOtherDevice},
    {"empty ModuleHolder",
     "the layer was never constructed: layer = register_module(\"layer\", torch::nn::Linear(8, 3)) in the constructor of the "
     "model"},
    {"view size is not compatible",
     "write reshape() instead of view(): after transpose(), permute() or a slice the values are not contiguous"},
    {"running_mean should contain", kChannels},
    {"weight should contain", kChannels},
    {"channels, but got", kChannels},
    {"more than 1 value per channel",
     "a batch norm needs several rows: raise data.batch_size, set data.drop_last=true if the last batch has one row, or use a "
     "norm without statistics of the batch (GroupNorm, LayerNorm)"},
    {"type (", kTypes},
    {"expected scalar type", kTypes},
    {"same dtype", kTypes},
}};

std::string until(const std::string& text, std::string_view words) { return text.substr(0, text.find(words)); }

}  // namespace

Message refusal_of(std::string text) {
  text = until(text, " Hint: ");  // removes LibTorch's hint about Python
  text = until(text, " This could be because the operator doesn't exist");
  text = until(text, ", please report a bug to PyTorch");
  if (text.find("does not have a deterministic implementation") != std::string::npos) {
    return {until(text, ","), "train.deterministic",
            "compute it with other operations, or set train.deterministic=false: runs then agree up to rounding"};
  }
  for (const Kind& kind : kKinds) {
    if (text.find(kind.words) != std::string::npos) return {"LibTorch refused an operation: " + text, "", kind.next};
  }
  return {"LibTorch refused an operation: " + text, "",
          "compare the shapes and types of the fields with what the operation takes"};
}

}  // namespace millrace
