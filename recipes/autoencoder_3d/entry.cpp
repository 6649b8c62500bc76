#include "recipes/autoencoder_3d/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include "millrace/base/error.h"
#include "recipes/autoencoder_3d/codec_commands.h"
#include "recipes/autoencoder_3d/entry_parts.h"
#include "recipes/autoencoder_3d/make_data.h"
#include "recipes/autoencoder_3d/recipe.h"
#include "recipes/common/entry.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) { return own.recipe.train_dir.empty() && run.data.dir.empty(); }

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  write_sample_volumes(sample_size(sample_volumes_of(preset), preset, "volumes"), out, seed);
}

// A training step for `millrace bench step`: a published config with an active discriminator, on random crops as prepare()
// returns them. bench/step/shapes.py has the same shapes for Python.
BenchShape shape(std::string name, std::string help, const std::string& preset, std::int64_t side, std::int64_t batch) {
  Json config;
  for (const auto& [known, values] : presets()) {
    if (known == preset) config = values;
  }
  config.update({{"recipe.patch_size", {side, side, side}}, {"recipe.adv_start_epoch", -1}, {"data.batch_size", batch}});
  return {.name = std::move(name),
          .help = std::move(help),
          .config = config,
          .batch = of_config<Sections>([](const Sections& own, const RunConfig& run, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const std::int64_t rows = run.data.samples_per_batch();
            std::vector<std::int64_t> sizes{rows, own.recipe.image_channels}, latent{rows, own.recipe.latent_channels};
            for (const std::int64_t voxels : own.recipe.patch_size) {
              sizes.push_back(voxels);
              latent.push_back(voxels >> (own.recipe.channels.size() - 1));
            }
            const at::Tensor x = at::rand(sizes, generator);
            return Batch(Tensors{{"input", x}, {"target", x}, {"eps", at::randn(latent, generator)}});
          })};
}

// The names of the optimisations (rows of the switchboard) that matter to this recipe but not to every recipe.
std::vector<std::string> switches() {
  return {"channels_last",     "tried_convolutions", "fused_group_norm", "lean_norms",
          "phased_upsampling", "voxel_products",     "look_ahead",       "sample_cache"};
}

Guide guide() {
  return {{{"mixed precision", {"autocast", "bf16_weights"}, "1.5-2x, memory -50 %"},
           loading_in_parallel(""),
           {"optimiser in one kernel", {"fused_optimizer"}, "a fused AdamW"}},
          ""};
}

std::vector<BenchShape> bench_shapes() {
  return {
      shape("cpu-small", "channels 32,64,128, one crop of 32^3, L1 + KL + discriminator, both networks updated", "stable", 32, 1),
      shape("gpu-small", "preset stable: the network of cpu-small on 4 crops of 48^3", "stable", 48, 4),
      shape("gpu-guide", "preset multigpu: channels 64,128,256, attention on two levels, 2 crops of 64^3", "multigpu", 64, 2)};
}

}  // namespace

Entry entry() {
  Entry entry = entry_of<Autoencoder3d, Sections>("autoencoder_3d", "KL autoencoder of volumes with a patch discriminator");
  entry.defaults = defaults();
  entry.presets = presets();
  entry.aliases = aliases();
  entry.convert_file = keys_of_original_file;
  entry.needs_data = of_config<Sections>(needs_data);
  entry.make_data = make_data;
  entry.predicts = {.inputs = {{"x", DType::f32, "[rows,channels,depth,height,width]", "volumes scaled to 0 to 1"}},
                    .outputs = {{"recon", DType::f32, "[rows,channels,depth,height,width]", "their reconstruction"},
                                {"latent", DType::f32, "[rows,latent channels,d,h,w]", "mean of the latent volume"}}};
  const auto row = [] { return autoencoder_3d::entry(); };
  entry.commands = {encode_command(row), decode_command(row)};
  entry.bench_shapes = bench_shapes();
  entry.switches = switches();
  entry.guide = guide();
  return entry;
}

}  // namespace millrace::recipes::autoencoder_3d
