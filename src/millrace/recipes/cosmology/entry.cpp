#include "millrace/recipes/cosmology/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include "millrace/base/error.h"
#include "millrace/recipes/cosmology/original_file.h"
#include "millrace/recipes/cosmology/presets.h"
#include "millrace/recipes/cosmology/recipe.h"

namespace millrace::recipes::cosmology {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) {
  return own.recipe.signal_dir.empty() && own.recipe.foreground_dir.empty() && run.data.dir.empty();
}

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  const auto size = sample_sky_of(preset);
  if (!size) throw ConfigError(Message{"preset " + preset + " makes no sky", "preset " + preset, "take smoke, small or full"});
  write_sample_sky(*size, out, seed);
}

// One chunk of random numbers in the network's layout.
BenchShape cpu_small() {
  return {.name = "cpu-small",
          .help = "filters 16, input (1,2,64,64,48), log-MSE, clip by value 1",
          .config = {{"recipe.filters", 16}, {"recipe.ra_keep", 64}, {"recipe.split", 1}, {"data.batch_size", 1}},
          .batch = [](const Json&, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const at::Tensor target = at::randn({1, 2, 64, 64, 48}, generator);
            return Batch(Tensors{{"input", target * 0.5 + at::randn(target.sizes(), generator)}, {"target", target}});
          }};
}

}  // namespace

Entry entry() {
  Entry entry =
      entry_of<Cosmology, Sections>("cosmology", "3-D U-Net that recovers the 21 cm signal after PCA foreground removal");
  entry.defaults = defaults();
  entry.presets = presets();
  entry.aliases = aliases();
  entry.convert_file = keys_of_original_file;
  entry.needs_data = of_config<Sections>(needs_data);
  entry.make_data = make_data;
  entry.predicts = {.inputs = {{"x", DType::c64, "[rows,baselines,frequencies,RA]", "visibilities with foreground, kelvin"}},
                    .outputs = {{"signal", DType::c64, "[rows,baselines,frequencies,RA]", "the 21 cm signal in them, kelvin"}}};
  entry.commands = {{"pca", "fit foreground components, or compare them with those of each batch", pca_command},
                    {"uvh5", "make a run's folder from an interferometer's uvh5 files", uvh5_command}};
  entry.bench_shapes = {cpu_small()};
  return entry;
}

}  // namespace millrace::recipes::cosmology
