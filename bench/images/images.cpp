// Our half of the bench of image_pairs' data; compare.py is the Python half. Answers each line of standard input, a command, with
// a line of JSON.
//   bench_images FOLDER SIDE BATCH READERS    FOLDER holds train.csv, val.csv and the images that they name; READERS -1: chosen
//     CACHE time SECONDS     images a second, as the network takes them: f32, normalised
//     CACHE pixels SECONDS   the same as bytes, which a run on a GPU copies there and normalises there
//     CACHE digest           sum over an epoch's pairs of the hash of their values, so that order does not matter
// CACHE is off, or ram: images are kept once decoded and resized.
#include <cstring>
#include <iostream>
#include <map>
#include <sstream>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/data/workload/workload.h"
#include "millrace/device/device.h"
#include "millrace/train/recipe/config.h"
#include "millrace/train/step/feed.h"
#include "recipes/image_pairs/recipe.h"

namespace {

using namespace millrace;
namespace image_pairs = recipes::image_pairs;

constexpr std::uint64_t kCacheBytes = std::uint64_t{4} << 30U;

class Side {
 public:
  Side(const std::string& folder, std::int64_t side, std::int64_t batch, int readers) {
    run_.data.dir = folder;
    sections_.recipe.image_size = side;
    sections_.recipe.resize = image_pairs::Resize::clip;
    sections_.recipe.train_pairs = folder + "/train.csv";
    sections_.recipe.val_pairs = folder + "/val.csv";
    recipe_ = std::make_unique<image_pairs::ImagePairs>(sections_, Context{.config = &run_, .seed = 1});
    recipe_->before_training();
    options_.batch_size = batch;
    options_.shuffle = true;
    options_.drop_last = true;
    options_.seed = 1;
    options_.readers = readers;
  }

  [[nodiscard]] Json answer(const std::string& cache, std::istream& words) {
    std::string verb;
    double seconds = 0;
    words >> verb >> seconds;
    data::Loader& loader = loader_of(cache);
    if (verb == "digest") return digest(loader);
    const bool prepares = verb == "time";
    const data::LoaderRates rates = data::measure_loader(loader, seconds, [&](data::HostBatch host) {
      Batch batch = to_batch(std::move(host), Split::train, at::kCPU);
      if (prepares) (void)recipe_->prepare(std::move(batch));
    });
    Json reply = rates.to_json();
    reply["images_per_s"] = 2 * reply["samples_per_s"].get<double>();
    reply["readers"] = loader.readers_reason();
    return reply;
  }

 private:
  data::Loader& loader_of(const std::string& cache) {
    if (cache != "off" && cache != "ram")
      throw UsageError({"no cache is called " + cache, "standard input of bench_images", "say off or ram"});
    const auto it = loaders_.find(cache);
    if (it != loaders_.end()) return *it->second;
    data::Pipeline pipeline = recipe_->data(Split::train);
    if (cache == "ram") data::use_cache(pipeline, std::make_shared<data::SampleCache>(kCacheBytes));
    return *loaders_.emplace(cache, std::make_unique<data::Loader>(std::move(pipeline), options_)).first->second;
  }

  [[nodiscard]] Json digest(data::Loader& loader) {
    loader.restart();
    std::uint64_t sum = 0;
    std::int64_t rows = 0;
    while (auto host = loader.next()) {
      const Batch batch = recipe_->prepare(to_batch(std::move(*host), Split::train, at::kCPU));
      for (std::int64_t row = 0; row < batch.rows(); ++row, ++rows) {
        Sha256 hash;
        for (const char* name : {"pixels", "label"}) {
          const at::Tensor values = batch[name].select(0, row).contiguous();
          hash.update({static_cast<const char*>(values.const_data_ptr()), values.nbytes()});
        }
        const std::array<std::uint8_t, 32> bytes = hash.digest();
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof word);
        sum += word;
      }
    }
    return {{"digest", std::to_string(sum)}, {"rows", rows}};
  }

  RunConfig run_;
  image_pairs::Sections sections_;
  std::unique_ptr<image_pairs::ImagePairs> recipe_;
  data::LoaderOptions options_;
  std::map<std::string, std::unique_ptr<data::Loader>> loaders_;
};

int run(const std::vector<std::string>& words) {
  if (words.size() != 5) throw UsageError({"a word is missing or too many", "bench_images", "see the head of images.cpp"});
  device::keep_freed_memory();  // as a training run does
  Side side(words[1], std::stoll(words[2]), std::stoll(words[3]), std::stoi(words[4]));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream command(line);
    std::string cache;
    command >> cache;
    std::cout << side.answer(cache, command).dump() << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv, argv + argc});
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return error.exit_code();
  }
}
