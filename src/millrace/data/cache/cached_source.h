// A cache of samples in memory that all readers of all data sets of a run share. It fills as samples are first read and is never
// emptied.
//
// An epoch's order is a permutation, so a cache that evicts old samples would rarely hold the next one. A cache that keeps the
// first samples it gets has a hit rate of kept bytes / all bytes from the second epoch on. Random numbers are drawn after the
// cache (Keeps::parts), so a run with the cache gets the same bits as one without.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/chosen.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

// The cache of a run, in memory or on disk. The run reads the cache's counters through this class. Thread-safe.
class Cache {
 public:
  struct Counters {
    std::uint64_t hits = 0;  // number of samples that were in the cache
    std::uint64_t misses = 0;
    std::uint64_t bytes = 0;  // number of the budget's bytes that are in use
    std::uint64_t budget_bytes = 0;
    [[nodiscard]] double hit_rate() const noexcept {
      return hits + misses == 0 ? 0.0 : static_cast<double>(hits) / static_cast<double>(hits + misses);
    }
  };

  Cache() = default;
  virtual ~Cache() = default;
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  [[nodiscard]] virtual Counters counters() const noexcept = 0;
};

// A budget of memory that several sources share. Thread-safe.
class SampleCache final : public Cache {
 public:
  explicit SampleCache(std::uint64_t budget_bytes) noexcept : budget_(budget_bytes) {}
  [[nodiscard]] Cache::Counters counters() const noexcept override;

 private:
  friend class CachedSource;
  bool take(std::uint64_t bytes) noexcept;
  void give_back(std::uint64_t bytes) noexcept { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  void count(std::uint64_t hits, std::uint64_t misses) noexcept;

  const std::uint64_t budget_;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> hits_{0};
  std::atomic<std::uint64_t> misses_{0};
};

// Returns the bytes that a cache of the whole source would take, with the cache's table; 0 if the source has nothing to cache.
[[nodiscard]] std::uint64_t cache_payload(const Source& source);

class CachedSource final : public Source {
 public:
  // `source` must have rows or parts to cache (Source::keeps()). `name`: the data set's name, for messages. Throws ConfigError
  // if a source with Keeps::rows draws random numbers, or if a part of a source with Keeps::parts has no bytes. If such a fault
  // shows only in read(), read() throws the error.
  CachedSource(std::shared_ptr<const Source> source, std::shared_ptr<SampleCache> cache, std::string name = "");
  ~CachedSource() override;
  CachedSource(const CachedSource&) = delete;
  CachedSource& operator=(const CachedSource&) = delete;

  [[nodiscard]] std::span<const Field> fields() const override { return source_->fields(); }
  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return source_->fingerprint(); }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return source_->stamps(); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return source_->samples_per_ticket(); }
  [[nodiscard]] bool waits() const override { return source_->waits(); }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return source_->describe(index); }
  [[nodiscard]] std::string read_as() const override { return source_->read_as(); }
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return source_->value_names(field);
  }
  [[nodiscard]] bool looks_ahead() const override { return source_->looks_ahead(); }
  // Announces to the source only the samples that the cache does not hold.
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;

 private:
  enum class Stage : std::uint8_t { absent, loading, kept };
  struct Entry {
    std::atomic<Stage> stage{Stage::absent};
    std::unique_ptr<std::byte[]> bytes;  // written by the thread that set `loading`; not changed once `kept` is set
  };
  class Claim;

  [[nodiscard]] Entry& entry_of(std::int64_t part) const { return table_[static_cast<std::size_t>(part)]; }
  [[nodiscard]] bool kept(std::int64_t part) const { return entry_of(part).stage.load(std::memory_order_acquire) == Stage::kept; }
  [[nodiscard]] std::size_t bytes_of(std::int64_t part) const;
  void read_rows(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const;
  void copy_row(std::int64_t index, Rows row) const;
  void keep_row(std::int64_t index, Rows row) const;
  bool make_of_parts(std::int64_t index, Rows row, const ReadRandom& random) const;
  bool load_part(std::int64_t part) const;

  const std::shared_ptr<const Source> source_;
  const std::shared_ptr<SampleCache> cache_;
  const std::string name_;
  const Keeps keeps_;
  const std::size_t parts_per_sample_;
  std::vector<std::size_t> field_bytes_;  // for each field, its bytes in a row
  std::size_t row_bytes_ = 0;             // bytes of a row
  std::uint64_t table_bytes_ = 0;
  mutable std::vector<Entry> table_;  // an entry for each part; empty if even the table exceeds the budget
};

// The values of data.cache that ask for a cache in memory or for no cache.
enum class CacheWish : std::uint8_t { off, ram };

// Decides whether to cache in memory. `available_bytes`: the memory that this process may still take. If `wish` is nullopt, the
// cache is on if everything that can be kept fits into half of that memory. If `wish` is ram, the cache is on and keeps what
// fits into that half. `budget_bytes` > 0 replaces the half. Returns null if there is no cache.
[[nodiscard]] Chosen<std::shared_ptr<SampleCache>> choose_cache(std::span<const Dataset> datasets, std::optional<CacheWish> wish,
                                                                std::uint64_t available_bytes, std::uint64_t budget_bytes = 0);

// For each data set of the pipeline whose source is cacheable (is_cacheable()), puts the cache in front of the source. A null
// cache changes nothing.
void use_cache(Pipeline& pipeline, const std::shared_ptr<SampleCache>& cache);

}  // namespace millrace::data
