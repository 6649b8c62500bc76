#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <thread>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/sources/token_source.h"
#include "millrace/data/sources/window_source.h"
#include "millrace/data/workload/detail/parts.h"
#include "millrace/format/npy.h"

namespace millrace::data::detail {
namespace {

namespace fs = std::filesystem;
using config::field;

std::string read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw DataError({.what = path.string() + " can't be read", .where = "", .next = "check the path and its permissions"});
  return {std::istreambuf_iterator<char>(file), {}};
}

MemoryArray generated(const std::string& name, const Shape& shape, std::int64_t values_in_all, std::uint64_t key) {
  std::vector<float> values(static_cast<std::size_t>(values_in_all));
  Philox draw(key);
  for (float& value : values) value = static_cast<float>(draw() >> 8U) * 0x1p-24F;
  return memory_array(name, shape, std::move(values));
}

struct MemoryKeys {
  std::map<std::string, std::string> arrays;
  std::map<std::string, std::vector<std::int64_t>> shapes;
  std::int64_t samples = 20'000;
  std::int64_t window = 1;
  static consteval auto fields() {
    using C = MemoryKeys;
    return std::tuple{field<&C::arrays>("Names of fields, each with its file of 32-bit floats; empty: generated values."),
                      field<&C::shapes>("The shape of one row of each field."),
                      field<&C::samples>("Number of generated rows, if there are no files.").min(1),
                      field<&C::window>("Rows of a sample.").min(1)};
  }
};

// Returns the number of generated values of a field.
std::int64_t generated_values(const Part& part, const MemoryKeys& keys, const std::string& name, const Shape& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40U;  // more values than any machine's memory can hold
  const std::optional<std::int64_t> each = element_count(shape);
  std::int64_t rows = 0, all = 0;
  const bool overflows = !each || __builtin_add_overflow(keys.samples, keys.window - 1, &rows) ||
                         __builtin_mul_overflow(*each, rows, &all) || all > kMost;
  if (overflows)
    refuse_part(
        part,
        "field " + quoted(name) + " can't have the shape " + to_text(shape) + " in " + std::to_string(keys.samples) + " samples",
        "give sizes of 0 or more, and fewer samples or smaller windows");
  return all;
}

SourcePtr open_memory(const Part& part) {
  const auto keys = keys_of<MemoryKeys>(part);
  std::vector<MemoryArray> arrays;
  for (const auto& [name, shape] : keys.shapes) {
    if (!element_count(shape))
      refuse_part(part, "field " + quoted(name) + " can't have the shape " + to_text(shape), "give sizes of 0 or more");
    if (!keys.arrays.empty() && !keys.arrays.contains(name))
      refuse_part(part, "\"shapes\" has " + quoted(name) + ", which has no file",
                  "name its file in \"arrays\", or leave the shape out");
  }
  for (const auto& [name, file] : keys.arrays) {
    const auto shape = keys.shapes.find(name);
    if (shape == keys.shapes.end())
      refuse_part(part, "array " + quoted(name) + " has no shape", "give the shape of one row in shapes");
    const std::string bytes = read_bytes(part.input.folder / file);
    if (format::is_npy(bytes)) {
      throw DataError({.what = (part.input.folder / file).string() + " is a .npy file: its header would be read as numbers",
                       .where = part.place + ".arrays." + name,
                       .next = "use a part of kind \"npy\", or write bare floats: numpy.load(FILE).astype('<f4').tofile(NEW)"});
    }
    if (bytes.size() % sizeof(float) != 0) {
      throw DataError({.what = (part.input.folder / file).string() + " has " + std::to_string(bytes.size()) +
                               " bytes, which is not a whole number of 32-bit floats",
                       .where = part.place + ".arrays." + name,
                       .next = "the file is cut off, or holds numbers of another type"});
    }
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    arrays.push_back(memory_array(name, shape->second, std::move(values)));
  }
  std::uint64_t seed = 0;
  for (const auto& [name, shape] : keys.shapes) {
    if (keys.arrays.empty()) arrays.push_back(generated(name, shape, generated_values(part, keys, name, shape), ++seed));
  }
  if (arrays.empty())
    refuse_part(part, "a part of kind \"memory\" has no array", "give shapes, and also arrays if there are files");
  if (keys.window > 1) return std::make_shared<WindowSource>(std::move(arrays), keys.window);
  return std::make_shared<MemorySource>(std::move(arrays));
}

struct TokensKeys {
  std::string file;
  std::int64_t window = 1;
  std::int64_t overlap = 0;
  std::int64_t bytes = 0;
  std::int64_t vocabulary = 1 << 16;
  static consteval auto fields() {
    using C = TokensKeys;
    return std::tuple{
        field<&C::file>("A token file of Millrace, or bare little-endian ids.").required(),
        field<&C::window>("Tokens of a sample.").min(1),
        field<&C::overlap>("Tokens that a window shares with the one before it.").min(0),
        field<&C::bytes>("Bytes of a bare id: 2 or 4. 0: the file is a token file, which states the size.").min(0).max(4),
        field<&C::vocabulary>("Size of the vocabulary; all bare ids are below it.").min(1)};
  }
};

SourcePtr open_tokens(const Part& part) {
  const auto keys = keys_of<TokensKeys>(part);
  if (keys.bytes == 1 || keys.bytes == 3)
    refuse_part(part, "an id can't have " + std::to_string(keys.bytes) + " bytes", "give bytes 2 or 4");
  const fs::path path = part.input.folder / keys.file;
  const auto tokens = keys.bytes == 0 ? TokenArray::open(path)
                                      : TokenArray::open_bare(path, static_cast<std::size_t>(keys.bytes),
                                                              static_cast<std::uint64_t>(keys.vocabulary));
  return std::make_shared<TokenSource>(tokens, TokenWindows{.seq_len = keys.window, .overlap = keys.overlap});
}

struct SleepingKeys {
  std::vector<std::int64_t> shape = {64};
  std::int64_t samples = 20'000;
  double sleep_ms = 2;
  double slow_ms = 120;
  double slow_fraction = 0.03;
  static consteval auto fields() {
    using C = SleepingKeys;
    return std::tuple{field<&C::shape>("Shape of the field \"x\", which holds the sample's number.").min(0),
                      field<&C::samples>("Number of samples.").min(1), field<&C::sleep_ms>("How long a read takes.").min(0),
                      field<&C::slow_ms>("How long a slow read takes.").min(0),
                      field<&C::slow_fraction>("Fraction of slow reads.").min(0).max(1)};
  }
};

// A source whose reads wait, some of them much longer. The index decides which reads are slow, so that every epoch has the same
// slow reads.
class SleepingSource final : public Source {
 public:
  explicit SleepingSource(SleepingKeys keys) : keys_(std::move(keys)), field_{"x", DType::f32, keys_.shape} {}
  [[nodiscard]] std::span<const Field> fields() const override { return {&field_, 1}; }
  [[nodiscard]] std::int64_t size() const override { return keys_.samples; }
  [[nodiscard]] std::string fingerprint() const override { return "sleeping " + std::to_string(keys_.samples); }
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
  // Returns how long a read takes. Slow reads are evenly spread: of any k neighbours k * fraction are slow, rounded.
  [[nodiscard]] double milliseconds(std::int64_t index) const {
    const auto slow_before = [this](std::int64_t i) { return std::floor(static_cast<double>(i) * keys_.slow_fraction + 1e-9); };
    return slow_before(index + 1) > slow_before(index) ? keys_.slow_ms : keys_.sleep_ms;
  }
  SleepingKeys keys_;
  Field field_;
};

SourcePtr open_sleeping(const Part& part) { return std::make_shared<SleepingSource>(keys_of<SleepingKeys>(part)); }

constexpr std::array kMadeKinds = {
    PartKind{"memory", "rows of arrays in memory", [] { return config::schema_of<MemoryKeys>(); }, open_memory},
    PartKind{"tokens", "windows of a sequence of tokens", [] { return config::schema_of<TokensKeys>(); }, open_tokens},
    PartKind{"sleeping", "reads that wait, some of them long", [] { return config::schema_of<SleepingKeys>(); }, open_sleeping},
};

}  // namespace

std::span<const PartKind> made_kinds() { return kMadeKinds; }

}  // namespace millrace::data::detail
