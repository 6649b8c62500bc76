// Our half of the bench of data.cache=disk; compare.py is the Python half.
//   bench_disk_cache VOLUMES CACHE READERS BATCH D H W EPOCHS [off]
// Delivers epochs of crops of the volumes in folder VOLUMES; keeps decoded parts in folder CACHE ("off": decodes them each time).
// Prints a line of JSON: seconds of each epoch and a digest of the values of a fixed crop of each volume.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/json.h"
#include "millrace/data/cache/disk_cache.h"
#include "millrace/data/loader/loader.h"
#include "recipes/autoencoder_3d/volume_source.h"

namespace {

using namespace millrace;

int run(const std::vector<std::string>& words) {
  if (words.size() < 9) throw UsageError({"a word is missing", "bench_disk_cache", "see the head of disk_cache.cpp"});
  recipes::autoencoder_3d::RecipeConfig recipe;
  recipe.val_fraction = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) recipe.patch_size[axis] = std::stoll(words[5 + axis]);
  const recipes::autoencoder_3d::VolumeFiles files = recipes::autoencoder_3d::open_volumes(recipe, words[1], 1);
  data::Pipeline pipeline = data::single(recipes::autoencoder_3d::volume_source(files.train, Split::train, recipe));
  Json result;
  if (words.size() < 10) {
    Chosen<std::shared_ptr<data::DiskCache>> choice = data::choose_disk_cache(pipeline.datasets, {.folder = words[2]});
    result["reason"] = choice.reason;
    data::use_cache(pipeline, choice.value);
  }
  data::LoaderOptions options;
  options.batch_size = std::stoll(words[4]);
  options.shuffle = true;
  options.seed = 1;
  options.readers = std::stoi(words[3]);
  data::Loader loader(std::move(pipeline), options);
  double sum = 0;
  for (int epoch = 0; epoch < std::stoi(words[8]); ++epoch) {
    const double began = steady_seconds();
    while (auto batch = loader.next()) {
      float value = 0;
      std::memcpy(&value, batch->groups[0].data[0], sizeof value);
      sum += static_cast<double>(value);
    }
    result["seconds"].push_back(steady_seconds() - began);
  }
  result["sum"] = sum;
  std::puts(result.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
