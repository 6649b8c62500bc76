#include "millrace/train/recipe/switchboard.h"

#include <algorithm>
#include <array>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace {
namespace {

constexpr std::string_view kAll = "all";  // --off=all turns every row off

constexpr SwitchRow::Occasion with(std::string_view key, std::string_view value) { return {.config = {{{key, value}}}}; }
constexpr SwitchRow::Occasion named(std::string_view key = {}, std::string_view value = {}) {
  return {.named = true, .config = {{{key, value}}}};
}

constexpr std::array kRows = {
    SwitchRow{"autocast", "half precision if the config asks for it, or if the hardware has it and a trial confirms it",
              "fp32 throughout", Equality::tolerance, 0.05, false, with("precision.dtype", "bf16")},
    SwitchRow{"channels_last",
              "images and volumes in channels-last layout where a trial finds it faster",
              "contiguous tensors",
              Equality::tolerance,
              1e-3,
              false,
              {.named = true, .config = {{{"device.layout", "channels_last"}}}}},
    SwitchRow{"fused_optimizer", "one kernel updates all parameters", "a loop of ATen operations per parameter",
              Equality::tolerance, 1e-5, false},
    SwitchRow{"device_skip", "steps with non-finite gradients are skipped on the device",
              "the host reads the gradient norm each step and decides", Equality::bits, 0.0, false},
    SwitchRow{"keep_memory", "the allocator keeps freed memory for the next step",
              "freed memory goes back to the system page by page", Equality::bits, 0.0, true},
    SwitchRow{"fused_dropout",
              "one parallel pass per dropout, counter-based random bits",
              "a mask of the same bits in memory, then ATen's product",
              Equality::tolerance,
              1e-4,
              false,
              {.named = true, .config = {}}},
    SwitchRow{"fused_attention",
              "attention in blocks, no mask, dropout inside",
              "mask, softmax, dropout and products as ATen operations",
              Equality::tolerance,
              1e-4,
              false,
              {.named = true, .config = {}}},
    SwitchRow{"fused_norm", "residual, dropout and layer norm in one pass", "three ATen operations", Equality::tolerance, 1e-4,
              false, named()},
    SwitchRow{"fused_gelu",
              "GELU in one pass with dropout; before a linear layer it is computed again instead of kept",
              "ATen's GELU, then dropout; the result is kept for the backward pass",
              Equality::tolerance,
              1e-4,
              false,
              {.named = true, .config = {}}},
    SwitchRow{"fused_loss", "cross-entropy and its gradient in one pass", "ATen's log-softmax and loss", Equality::tolerance,
              1e-4, false, named()},
    SwitchRow{"bf16_weights",
              "a weight is copied to bf16 once a step, and its gradient is summed in fp32",
              "autocast's own casts",
              Equality::tolerance,
              0.05,
              false,
              {.named = true, .config = {{{"precision.dtype", "bf16"}}}}},
    SwitchRow{"fp32_products",
              "our own fp32 matrix products where a trial finds them faster (device.kernels)",
              "the products of the linear algebra library",
              Equality::tolerance,
              1e-4,
              false,
              {.named = true, .config = {{{"precision.dtype", "fp32"}, {"device.kernels", "ours"}}}}},
    SwitchRow{"recompute", "blocks of a model keep no activations and run again in the backward pass (memory.recompute)",
              "all activations are kept", Equality::bits, 0.0, false, with("memory.recompute", "all")},
    SwitchRow{"offload", "large activations on a GPU wait for the backward pass in host memory (memory.offload)",
              "all activations stay on the device", Equality::bits, 0.0, false, with("memory.offload", "1 MB")},
    SwitchRow{"memory_recovery",
              "a step that runs out of memory is tried again, first with recomputed activations, then in micro-batches",
              "the run ends", Equality::bits, 0.0, false},
    SwitchRow{"rehearsal", "one batch of each split goes through the recipe before the first step, without a trace",
              "a mistake is found only when the run reaches it", Equality::bits, 0.0, false},
    SwitchRow{"kept_trials", "results of trials on this machine for the same shapes are reused from earlier runs",
              "every run makes its own trials", Equality::tolerance, 0.05, false},
    SwitchRow{"tried_convolutions",
              "each convolution of a step is tried in bf16 in a separate process, and computed in fp32 if that hangs, crashes "
              "or is wrong",
              "only the known faults of the library are worked around",
              Equality::tolerance,
              0.05,
              false,
              {.named = true, .config = {{{"precision.dtype", "bf16"}}}}},
    SwitchRow{"token_cache", "text is encoded once into a token file", "text is encoded at every start, in memory",
              Equality::bits, 0.0, false, named()},
    SwitchRow{"file_index",
              "the contents of HDF5 files are listed once and kept in the cache folder",
              "every file is opened at every start",
              Equality::bits,
              0.0,
              false,
              {.named = true, .config = {}}},
    SwitchRow{"hdf5_direct",
              "chunks of HDF5 files are read and decoded in the reader threads",
              "the HDF5 library reads every block, in a child process for each file",
              Equality::bits,
              0.0,
              false,
              {.named = true, .config = {{{"data.cache", "off"}}}}},
    SwitchRow{"fused_activation", "smooth_leaky in one pass forward and one backward", "its formula as ATen operations",
              Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_padding", "circular padding and concatenation before a convolution as one copy", "ATen's cat, then its pad",
              Equality::tolerance, 1e-4, false, named()},
    SwitchRow{"direct_convolution",
              "channels-last convolutions of few channels pad and concatenate by themselves, where a trial finds that faster "
              "(device.kernels)",
              "a padded copy, then ATen's convolution",
              Equality::tolerance,
              0.01,
              false,
              {.named = true, .config = {{{"device.layout", "channels_last"}, {"device.kernels", "ours"}}}}},
    SwitchRow{"fused_projection", "components are subtracted from the pixels in one pass", "two matrix products over all pixels",
              Equality::tolerance, 1e-2, false, named()},
    SwitchRow{"stored_pca", "foreground components fitted once over training data", "components fitted on each batch",
              Equality::statistical, 0.0, false, named()},
    SwitchRow{"joined_core", "sessions of a batch go through the shared core in one forward pass",
              "a whole forward pass for each session", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"needed_only", "values that no output of the network depends on are not computed",
              "all frames, gates and maps, layer by layer", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"stencils", "convolutions of one channel or within channels, and resampling, as stencils",
              "LibTorch's convolutions and grid_sampler", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_pooling", "blur and soft pooling in one pass forward and one backward", "its formula as ATen operations",
              Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_rms_norm", "RMS norm over channels and SiLU in one pass forward and one backward",
              "its formula as ATen operations", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_group_norm", "group or instance norm and the activation behind it in one pass forward and one backward",
              "ATen's norm, then its activation", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"lean_norms", "values between a norm and its convolution are recomputed in the backward pass",
              "the values are kept for the convolution's gradient", Equality::bits, 0.0, false, named()},
    SwitchRow{"phased_upsampling",
              "on a CPU a transposed convolution replaces the eightfold repetition of voxels and the convolution behind it",
              "the repeated voxels in memory, then the convolution", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"voxel_products", "a convolution whose result has no more voxels than channels is computed as matrix products",
              "LibTorch's convolution", Equality::tolerance, 1e-3, false, named("data.batch_size", "1")},
    SwitchRow{"fused_rms_rows", "residual and RMS norm in one pass forward and one backward", "their formulas as ATen operations",
              Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_swiglu", "the gate of a feed-forward layer in one pass forward and one backward",
              "SiLU of one half, then its product with the other half", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"fused_rotary", "queries and keys are rotated in place in the packed product", "rotated copies of queries and keys",
              Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"merged_lora", "adapters of one input as one narrow product, added into the frozen product's result",
              "two products, a scale and a sum for each projection", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"last_position", "a decoder's last block computes only the position at which the answer is read",
              "every block computes all positions", Equality::tolerance, 1e-3, false, named("recipe.lora_dropout", "0")},
    SwitchRow{"shared_features", "both orders of a pair share the tower's features of its images",
              "every row computes the features of its images again", Equality::tolerance, 1e-3, false, named()},
    SwitchRow{"feature_cache", "a frozen tower's features are kept over epochs, if they fit into memory",
              "the tower computes the features of every image of every batch", Equality::bits, 0.0, false,
              named("recipe.freeze_base", "true")},
    SwitchRow{"loader_threads", "reader threads where reading is slow enough to need them",
              "samples are read in the loop's thread", Equality::bits, 0.0, false, with("data.workers", "2")},
    SwitchRow{"loader_adaptation", "more reader threads and batches ahead while the loop waits for data",
              "as many reader threads and batches as at the start", Equality::bits, 0.0, false},
    SwitchRow{"batch_ahead", "the next batch is copied to a GPU while a step runs, with one copy for all its fields",
              "the batch is copied when its step begins, and the step waits for the copy", Equality::bits, 0.0, false},
    SwitchRow{"step_graph", "on a GPU a step is recorded once and launched as a few graphs, where a trial finds that faster",
              "each operation of each step is launched from the host", Equality::bits, 0.0, false},
    SwitchRow{"look_ahead",
              "the system is told which parts of files will be read soon (posix_fadvise)",
              "the system learns which parts of files are needed when they are read",
              Equality::bits,
              0.0,
              false,
              {.named = true, .config = {{{"data.cache", "off"}}}}},
    SwitchRow{"sample_cache",
              "samples stay in memory after they are read, if they fit (data.cache)",
              "every sample is read each time",
              Equality::bits,
              0.0,
              false,
              {.named = true, .config = {{{"data.cache", "ram"}}}}},
    SwitchRow{"async_snapshot", "training continues while a separate thread writes a copy of the state",
              "the loop waits until a snapshot is on disk", Equality::bits, 0.0, false, with("snapshot.every_steps", "5")},
};

std::string known_names(std::string_view wrong) {
  std::vector<std::string> names;
  names.reserve(kRows.size());
  for (const SwitchRow& row : kRows) names.emplace_back(row.name);
  const std::string near = nearest(wrong, names.data(), names.data() + names.size());
  if (!near.empty()) return "did you mean " + near + "?";
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return "the switches are " + all;
}

}  // namespace

std::span<const SwitchRow> switch_rows() { return kRows; }

Switches::Switches(std::span<const std::string> off) {
  for (const SwitchRow& row : kRows) settings_.push_back({&row, true, "default"});
  std::vector<Problem> problems;
  for (const std::string& raw : off) {
    std::string name = raw;
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == kAll) {
      for (Setting& setting : settings_) setting = {setting.row, false, "--off"};
      continue;
    }
    const auto it = std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.row->name == name; });
    if (it == settings_.end()) {
      problems.push_back({"there is no switch " + quoted(raw), "train.off", known_names(name)});
    } else {
      it->on = false;
      it->reason = "--off";
    }
  }
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

bool Switches::on(std::string_view name) const {
  const auto it = std::find_if(settings_.begin(), settings_.end(), [&](const Setting& s) { return s.row->name == name; });
  MR_CHECK(it != settings_.end(), "no switch named " + std::string(name));
  return it->on;
}

void Switches::refuse(std::string_view name, std::string reason) {
  for (Setting& setting : settings_) {
    if (setting.row->name != name || setting.reason == "--off") continue;
    setting.on = false;
    setting.reason = std::move(reason);
    return;
  }
}

void Switches::explain(std::string_view name, std::string reason) {
  for (Setting& setting : settings_) {
    if (setting.row->name != name || setting.reason == "--off") continue;
    setting.reason = std::move(reason);
    return;
  }
}

}  // namespace millrace
