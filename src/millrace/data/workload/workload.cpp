#include "millrace/data/workload/workload.h"

#include <fnmatch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/config/schema_of.h"
#include "millrace/data/sources/hdf5_source.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/sources/nifti_source.h"
#include "millrace/data/sources/npy_source.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/data/sources/window_source.h"

namespace millrace::data {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_workload(std::string what, std::string where, std::string next) {
  throw ConfigError(Message{.what = std::move(what), .where = std::move(where), .next = std::move(next)});
}

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DataError({.what = path.string() + " can't be read", .where = "", .next = "check the path and its permissions"});
  return {std::istreambuf_iterator<char>(file), {}};
}

// The files of the description, sorted by name; patterns are expanded.
std::vector<fs::path> files_of(const Workload& workload, const fs::path& folder) {
  std::vector<fs::path> found;
  for (const std::string& name : workload.files) {
    const fs::path path = folder / name;
    if (name.find_first_of("*?[") == std::string::npos) {
      found.push_back(path);
      continue;
    }
    const std::size_t before = found.size();
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(path.parent_path(), none)) {
      if (::fnmatch(path.filename().c_str(), entry.path().filename().c_str(), 0) == 0) found.push_back(entry.path());
    }
    std::sort(found.begin() + static_cast<std::ptrdiff_t>(before), found.end());
  }
  if (found.empty())
    refuse_workload("kind \"" + workload.kind + "\" needs files, and there are none", "files", "name files or a pattern");
  return found;
}

MemoryArray generated(const std::string& name, const Shape& shape, std::int64_t rows, std::uint64_t key) {
  const std::int64_t each = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<std::size_t>(each * rows));
  Philox draw(key);
  for (float& value : values) value = static_cast<float>(draw() >> 8U) * 0x1p-24F;
  return memory_array(name, shape, std::move(values));
}

// An array of floats for each name, from a file or generated.
std::vector<MemoryArray> arrays_of(const Workload& workload, const fs::path& folder) {
  std::vector<MemoryArray> arrays;
  for (const auto& [name, file] : workload.arrays) {
    const auto shape = workload.shapes.find(name);
    if (shape == workload.shapes.end())
      refuse_workload("array \"" + name + "\" has no shape", "shapes." + name, "give that of one row");
    const std::string bytes = read_bytes(folder / file);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    arrays.push_back(memory_array(name, shape->second, std::move(values)));
  }
  return arrays;
}

std::shared_ptr<const Source> in_memory(std::vector<MemoryArray> arrays, std::int64_t window) {
  if (window > 1) return std::make_shared<WindowSource>(std::move(arrays), window);
  return std::make_shared<MemorySource>(std::move(arrays));
}

Pipeline memory(const Workload& workload, const fs::path& folder) {
  std::vector<MemoryArray> arrays = arrays_of(workload, folder);
  if (arrays.empty()) {
    arrays.push_back(generated("x", {20}, workload.samples, 1));
    arrays.push_back(generated("y", {5}, workload.samples, 2));
  }
  return single(in_memory(std::move(arrays), workload.window));
}

Pipeline grouped(const Workload& workload, const fs::path& folder) {
  std::vector<MemoryArray> arrays = arrays_of(workload, folder);
  for (std::int64_t i = 0; workload.arrays.empty() && i < workload.datasets; ++i) {
    arrays.push_back(
        generated("d" + std::to_string(i), {16 + 4 * i}, workload.samples + workload.window - 1, static_cast<std::uint64_t>(i)));
  }
  Pipeline pipeline;
  for (MemoryArray& array : arrays) {
    const std::string name = array.field.name;
    std::vector<MemoryArray> one;
    one.push_back(std::move(array));
    pipeline.datasets.push_back({name, in_memory(std::move(one), workload.window)});
  }
  return pipeline;
}

Pipeline tokens(const Workload& workload, const fs::path& folder) {
  const auto array = TokenArray::open_bare(files_of(workload, folder).front(), 2, 1 << 16);
  return single(std::make_shared<TokenSource>(array, TokenWindows{.seq_len = workload.window, .overlap = workload.overlap}));
}

// A source whose reads sleep, some of them much longer. Which ones depends only on the index, so that every epoch has the same.
class SleepingSource final : public Source {
 public:
  explicit SleepingSource(const Workload& workload) : workload_(workload) {
    const auto shape = workload.shapes.find("x");
    field_ = {"x", DType::f32, shape == workload.shapes.end() ? Shape{64} : shape->second};
  }
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return workload_.samples; }
  [[nodiscard]] std::string fingerprint() const override { return "sleeping " + std::to_string(workload_.samples); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const override {
    const std::size_t bytes = field_.bytes();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds(indices[i])));
      const auto value = static_cast<float>(indices[i]);
      std::byte* row = rows.row(0, i, bytes);
      for (std::size_t at = 0; at + sizeof value <= bytes; at += sizeof value) std::memcpy(row + at, &value, sizeof value);
    }
  }

 private:
  // The slow reads are evenly spread: among any k neighbours, k * fraction (rounded) are slow.
  [[nodiscard]] double milliseconds(std::int64_t index) const {
    const auto slow_before = [this](std::int64_t i) {
      return std::floor(static_cast<double>(i) * workload_.slow_fraction + 1e-9);
    };
    return slow_before(index + 1) > slow_before(index) ? workload_.slow_ms : workload_.sleep_ms;
  }
  Workload workload_;
  Field field_;
};

Pipeline sleeping(const Workload& workload, const fs::path&) { return single(std::make_shared<SleepingSource>(workload)); }

Pipeline hdf5(const Workload& workload, const fs::path& folder) {
  if (workload.names.empty()) refuse_workload("kind \"hdf5\" needs the names of data sets", "names", "give one or more");
  std::vector<Hdf5Field> fields;
  for (const std::string& name : workload.names) fields.push_back({name.substr(name.find_last_of('/') + 1), name});
  const std::vector<fs::path> files = files_of(workload, folder);
  return single(
      std::make_shared<Hdf5Source>(files, std::move(fields), workload.one_a_file ? Hdf5Samples::file : Hdf5Samples::row));
}

Pipeline nifti(const Workload& workload, const fs::path& folder) {
  NiftiSamples samples{.patch = workload.crop, .random = workload.random};
  return single(std::make_shared<NiftiSource>(files_of(workload, folder), std::move(samples)));
}

Pipeline image(const Workload& workload, const fs::path& folder) {
  ImageSamples samples{.random_crop = workload.random, .random_flip = workload.flip, .normalise = workload.normalise};
  if (workload.crop.size() == 2) {
    samples.height = workload.crop[0];
    samples.width = workload.crop[1];
  } else if (!workload.crop.empty()) {
    refuse_workload("a crop of an image has a height and a width", "crop", "give two numbers");
  }
  samples.mean = {0.485F, 0.456F, 0.406F};
  samples.deviation = {0.229F, 0.224F, 0.225F};
  return single(std::make_shared<ImageSource>(files_of(workload, folder), samples));
}

Pipeline npy(const Workload& workload, const fs::path& folder) {
  std::vector<NpyField> fields;
  for (const fs::path& path : files_of(workload, folder)) fields.push_back({path.stem().string(), path});
  return single(std::make_shared<NpySource>(std::move(fields)));
}

Pipeline npz(const Workload& workload, const fs::path& folder) {
  return single(std::make_shared<NpzSource>(files_of(workload, folder), workload.names));
}

constexpr WorkloadKind kKinds[] = {
    {"memory", "rows of arrays in memory, each a field", memory},
    {"grouped", "the same with a data set for each array: grouped batches", grouped},
    {"tokens", "windows of a file of 16-bit tokens", tokens},
    {"hdf5", "data sets of HDF5 files", hdf5},
    {"nifti", "volumes, or blocks of them", nifti},
    {"image", "crops of JPEG and PNG files", image},
    {"npy", "rows of .npy files, each a field", npy},
    {"npz", "one .npz file a sample", npz},
    {"sleeping", "reads that wait, some of them long", sleeping},
};

}  // namespace

std::span<const WorkloadKind> workload_kinds() { return kKinds; }

config::Schema workload_schema() { return config::schema_of<Workload>(); }

Workload parse_workload(std::string_view json, const std::string& name) {
  const config::Schema schema = workload_schema();
  config::Layers layers(schema);
  layers.add_text(json, ".json", name);
  return config::read<Workload>(layers.resolve().values);
}

Workload read_workload(const fs::path& file) { return parse_workload(read_bytes(file), file.string()); }

OpenWorkload open_workload(const Workload& workload, const fs::path& folder) {
  const auto kind =
      std::find_if(std::begin(kKinds), std::end(kKinds), [&](const WorkloadKind& k) { return k.name == workload.kind; });
  if (kind == std::end(kKinds)) {
    refuse_workload("there is no kind " + quoted(workload.kind), "kind",
                    "it is one of " + joined(kKinds, ", ", &WorkloadKind::name));
  }
  OpenWorkload open;
  open.pipeline = kind->open(workload, folder);
  const std::optional<CacheWish> wish = workload.cache.is_auto() ? std::nullopt : std::optional(workload.cache.value());
  Chosen<std::shared_ptr<SampleCache>> cache =
      choose_cache(open.pipeline.datasets, wish, 0, static_cast<std::uint64_t>(workload.cache_bytes));
  use_cache(open.pipeline, cache.value);
  open.cache = std::move(cache.value);
  open.cache_reason = std::move(cache.reason);
  open.options.batch_size = workload.batch_size;
  open.options.shuffle = workload.shuffle;
  open.options.drop_last = workload.drop_last;
  open.options.seed = static_cast<std::uint64_t>(workload.seed);
  open.options.readers = static_cast<int>(workload.readers.value_or(-1));
  open.options.prefetch = static_cast<int>(workload.prefetch);
  open.options.max_buffer_bytes = static_cast<std::uint64_t>(workload.max_buffer_bytes);
  return open;
}

}  // namespace millrace::data
