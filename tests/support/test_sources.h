// Sources for tests: contents that can be computed, delays and failures on request.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/data/loader/loader.h"
#include "millrace/data/loader/source.h"

namespace millrace::data::test {

// Two fields: "id" (i64: the sample's index) and "noise" (u32 [3]: drawn from ReadRandom, so that a change of keys shows).
class CountingSource final : public Source {
 public:
  explicit CountingSource(std::int64_t size, std::int64_t samples_per_ticket = 1)
      : size_(size), samples_per_ticket_(samples_per_ticket) {}

  std::function<void(std::int64_t index)> before;  // called before a sample is read; may throw or wait
  std::string print = "counting";
  // With Keeps::rows "noise" depends on the index alone; with Keeps::parts "id" is the number of the part.
  Keeps kept = Keeps::nothing;
  bool is_advised = false;
  mutable std::mutex advice_mutex;
  mutable std::vector<std::int64_t> advised;
  mutable std::atomic<std::int64_t> reads{0};

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::string fingerprint() const override { return print + " " + std::to_string(size_); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      if (before) before(indices[i]);
      ++reads;
      std::memcpy(rows.row(0, i, 8), &indices[i], 8);
      write_noise(indices[i], rows.row(1, i, 12), random, i);
    }
  }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return print + ".h5 row " + std::to_string(index); }
  [[nodiscard]] std::string read_as() const override { return print + " in Hz"; }
  [[nodiscard]] bool looks_ahead() const override { return is_advised; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept override {
    const std::lock_guard lock(advice_mutex);
    advised.insert(advised.end(), indices.begin(), indices.end());
  }
  [[nodiscard]] Keeps keeps() const override { return kept; }
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return 8; }
  void load(std::int64_t part, std::span<std::byte> bytes) const override {
    if (before) before(part);
    ++reads;
    std::memcpy(bytes.data(), &part, 8);
  }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override {
    std::memcpy(rows.row(0, 0, 8), parts[0].data(), 8);
    write_noise(index, rows.row(1, 0, 12), random, 0);
  }

 private:
  void write_noise(std::int64_t index, std::byte* to, const ReadRandom& random, std::size_t i) const {
    Philox draw = kept == Keeps::rows ? Philox(static_cast<std::uint64_t>(index)) : random(i);
    const std::uint32_t noise[3] = {draw(), draw(), kept == Keeps::rows ? draw() : random(i, 1)()};
    std::memcpy(to, noise, sizeof noise);
  }

  std::vector<Field> fields_ = {{"id", DType::i64, {}}, {"noise", DType::u32, {3}}};
  std::int64_t size_;
  std::int64_t samples_per_ticket_;
};

// A copy of a delivered batch.
struct Delivered {
  std::uint64_t epoch = 0;
  std::uint64_t index = 0;
  std::vector<std::vector<std::int64_t>> ids;  // indices of the delivered samples, one list for each group
  std::vector<std::vector<std::int64_t>> positions;
  std::string bytes;  // bytes of all fields of all groups
  friend bool operator==(const Delivered&, const Delivered&) = default;
};

inline Delivered copy_of(const HostBatch& batch) {
  Delivered out{.epoch = batch.epoch, .index = batch.index, .ids = {}, .positions = {}, .bytes = {}};
  for (const HostBatch::Group& group : batch.groups) {
    out.ids.emplace_back(group.indices.begin(), group.indices.end());
    out.positions.push_back(group.positions);
    for (std::size_t f = 0; f < group.fields.size(); ++f) {
      out.bytes.append(reinterpret_cast<const char*>(group.data[f]), group.fields[f].bytes() * group.positions.size());
    }
  }
  return out;
}

// Returns field `field` of the samples `indices`, which are read in one call as positions 0, 1, ... of the epoch.
template <class T>
std::vector<T> rows_of(const Source& source, const std::vector<std::int64_t>& indices, std::uint64_t epoch = 0,
                       std::size_t field = 0) {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> data;
  for (const Field& each : source.fields()) memory.emplace_back(each.bytes() * indices.size());
  data.reserve(memory.size());
  for (auto& bytes : memory) data.push_back(bytes.data());
  std::vector<std::int64_t> positions(indices.size());
  for (std::size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<std::int64_t>(i);
  source.read(indices, {data}, ReadRandom(7, epoch, positions));
  std::vector<T> values(memory[field].size() / sizeof(T));
  std::memcpy(values.data(), memory[field].data(), memory[field].size());
  return values;
}

inline std::vector<Delivered> epoch_of(Loader& loader) {
  std::vector<Delivered> batches;
  while (auto batch = loader.next()) batches.push_back(copy_of(*batch));
  return batches;
}

inline std::vector<std::int64_t> ids_of(const std::vector<Delivered>& batches, std::size_t group = 0) {
  std::vector<std::int64_t> ids;
  for (const Delivered& batch : batches) ids.insert(ids.end(), batch.ids[group].begin(), batch.ids[group].end());
  return ids;
}

inline std::vector<std::int64_t> sorted(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

inline std::vector<std::int64_t> up_to(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  return all;
}

// The weights 0, 1, 2, 5, 0, 1, 2, 5, ... before epoch `until`, then no weights.
inline SampleWeights by_fours(std::int64_t size, std::uint64_t until = 1000) {
  return [size, until](std::uint64_t epoch) {
    std::vector<float> weights;
    for (std::int64_t i = 0; epoch < until && i < size; ++i) weights.push_back(std::array{0.0F, 1.0F, 2.0F, 5.0F}[i % 4]);
    return weights;
  };
}

}  // namespace millrace::data::test
