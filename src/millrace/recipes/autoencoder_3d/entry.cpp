#include "millrace/recipes/autoencoder_3d/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>

#include "millrace/base/error.h"
#include "millrace/recipes/autoencoder_3d/aliases.h"
#include "millrace/recipes/autoencoder_3d/codec_commands.h"
#include "millrace/recipes/autoencoder_3d/make_data.h"
#include "millrace/recipes/autoencoder_3d/original_files.h"
#include "millrace/recipes/autoencoder_3d/presets.h"
#include "millrace/recipes/autoencoder_3d/recipe.h"

namespace millrace::recipes::autoencoder_3d {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) { return own.recipe.train_dir.empty() && run.data.dir.empty(); }

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  const auto size = sample_volumes_of(preset);
  if (!size)
    throw ConfigError(Message{"preset " + preset + " makes no volumes", "preset " + preset, "take smoke, small or full"});
  write_sample_volumes(*size, out, seed);
}

// The published config "stable" with the discriminator at work, on one crop in the network's own form.
BenchShape cpu_small() {
  Json config;
  for (const auto& [name, values] : presets()) {
    if (name == "stable") config = values;
  }
  config.update({{"recipe.patch_size", {32, 32, 32}}, {"recipe.adv_start_epoch", -1}, {"data.batch_size", 1}});
  return {.name = "cpu-small",
          .help = "channels 32,64,128, one crop of 32^3, L1 + KL + discriminator, both networks updated",
          .config = config,
          .batch = [](const Json& resolved, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const auto rows = resolved.at("data").at("batch_size").get<std::int64_t>();
            const at::Tensor x = at::rand({rows, 1, 32, 32, 32}, generator);
            const auto latent = resolved.at("recipe").at("latent_channels").get<std::int64_t>();
            return Batch(Tensors{{"input", x}, {"target", x}, {"eps", at::randn({rows, latent, 8, 8, 8}, generator)}});
          }};
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
                    .outputs = {{"recon", DType::f32, "[rows,channels,depth,height,width]", "what the network makes of them"},
                                {"latent", DType::f32, "[rows,latent channels,d,h,w]", "mean of the latent volume"}}};
  const auto row = [] { return autoencoder_3d::entry(); };
  entry.commands = {encode_command(row), decode_command(row)};
  entry.bench_shapes = {cpu_small()};
  return entry;
}

}  // namespace millrace::recipes::autoencoder_3d
