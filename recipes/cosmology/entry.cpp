#include "recipes/cosmology/entry.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>

#include "millrace/base/error.h"
#include "recipes/common/entry.h"
#include "recipes/cosmology/entry_parts.h"
#include "recipes/cosmology/make_data.h"
#include "recipes/cosmology/originals/uvh5_file.h"
#include "recipes/cosmology/recipe.h"

namespace millrace::recipes::cosmology {
namespace {

bool needs_data(const Sections& own, const RunConfig& run) {
  return own.recipe.signal_dir.empty() && own.recipe.foreground_dir.empty() && run.data.dir.empty();
}

void make_data(const std::string& preset, const std::filesystem::path& out, std::uint64_t seed) {
  write_sample_sky(sample_size(sample_sky_of(preset), preset, "sky"), out, seed);
}

struct Sky {
  std::int64_t filters, ra, frequencies, baselines, split, batch;  // filters: number of filters of the U-Net; ra: number of RA
                                                                   // samples of a chunk
};
// A training step for `millrace bench step`, on random chunks as prepare() returns them. bench/step/shapes.py has the same sizes
// for Python.
BenchShape shape(std::string name, std::string help, const Sky& sky) {
  return {.name = std::move(name),
          .help = std::move(help),
          .config = {{"recipe.filters", sky.filters},
                     {"recipe.ra_keep", sky.ra * sky.split},
                     {"recipe.split", sky.split},
                     {"data.batch_size", sky.batch}},
          .batch = of_config<Sections>([sky](const Sections& own, const RunConfig& run, std::uint64_t seed) {
            auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
            const std::int64_t chunks = run.data.samples_per_batch() * own.recipe.split;
            const at::Tensor target =
                at::randn({chunks, 2, own.recipe.ra_keep / own.recipe.split, sky.frequencies, sky.baselines}, generator);
            return Batch(Tensors{{"input", target * 0.5 + at::randn(target.sizes(), generator)}, {"target", target}});
          })};
}

// The names of the optimisations (rows of the switchboard) that matter to this recipe but not to every recipe.
std::vector<std::string> switches() {
  return {"channels_last",      "tried_convolutions", "file_index", "hdf5_direct", "fused_activation", "fused_padding",
          "direct_convolution", "fused_projection",   "stored_pca", "look_ahead",  "sample_cache"};
}

Guide guide() {
  return {{{"components fitted once", {"stored_pca"}, "100x a batch, \"alone 5-10x\""},
           {"preprocessing in one pass", {"fused_projection"}, "2-3x of preprocessing"},
           loading_in_parallel("2x of loading"),
           {"mixed precision", {"autocast", "bf16_weights"}, ""}},
          "5-10x"};
}

std::vector<BenchShape> bench_shapes() {
  return {shape("cpu-small", "filters 16, input (1,2,64,64,48), log-MSE, clip by value 1", {16, 64, 64, 48, 1, 1}),
          shape("gpu-small", "cpu-small with a batch of 4", {16, 64, 64, 48, 1, 4}),
          shape("gpu-guide", "preset full: one sky of 48 baselines, 128 frequencies and 1024 RA as 4 chunks, (4,2,256,128,48)",
                {16, 256, 128, 48, 4, 1})};
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
  entry.read_as = [](const hdf5::File& file) {
    std::string text = uvh5::read_as(file);
    return text.empty() ? sky_read_as(file) : text;
  };
  entry.predicts = {
      .inputs = {{"x", DType::c64, "[rows,baselines,frequencies,RA]", "visibilities with foreground, kelvin"}},
      .outputs = {{"signal", DType::c64, "[rows,baselines,frequencies,RA]", "the 21 cm signal in the input, kelvin"}}};
  entry.commands = {{"pca", "fit foreground components, or compare them with those of each batch", pca_command},
                    {"uvh5", "make a run's folder from an interferometer's uvh5 files", uvh5_command}};
  entry.bench_shapes = bench_shapes();
  entry.switches = switches();
  entry.guide = guide();
  return entry;
}

}  // namespace millrace::recipes::cosmology
