// A cache of decoded parts on local disk, for data that memory does not hold: each part a file, written once, checked whenever it
// is read, shared by all runs that read the same files.
//
// A part's file is named by what the part is made of: the content of its source's files, the time they were written, and what of
// the reading makes other bytes of them. Data that changed has other names, so nothing stale is read; a file that is damaged,
// truncated or somebody else's is decoded anew and replaced. Randomness is drawn after the cache, as of one in memory.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/base/chosen.h"
#include "millrace/base/fs.h"
#include "millrace/data/cache/cached_source.h"
#include "millrace/data/loader/source.h"

namespace millrace::data {

namespace detail {
class PartsView;
}

struct DiskCacheOptions {
  std::filesystem::path folder;    // for this cache alone; made when there is something to write
  std::uint64_t budget_bytes = 0;  // for all files in it, of other data too; 0 = half of what the disk has for them
  bool writes = true;              // false: what is there is read
  // Told once of a damaged part, once when writing fails, from any reader thread. May be null.
  std::function<void(const std::string&)> note = {};
  Fs* fs = nullptr;  // null = the process's
};

// What the sources of a run share. Thread-safe. A disk that is full or refuses costs the cache, never the run.
class DiskCache final : public Cache {
 public:
  explicit DiskCache(DiskCacheOptions options);
  [[nodiscard]] CacheCounters counters() const noexcept override;  // bytes: of all files in the folder
  [[nodiscard]] std::uint64_t budget_bytes() const noexcept { return budget_; }

 private:
  friend class DiskCachedSource;
  friend Chosen<std::shared_ptr<DiskCache>> choose_disk_cache(std::span<const Dataset> datasets, DiskCacheOptions options);
  struct Part {
    std::array<std::uint8_t, 32> key{};
    bool is_kept = false;               // false: there is nothing that tells it from parts of changed data
    std::atomic<bool> is_busy = false;  // a reader writes it
  };
  struct Listed {
    std::string name;
    std::uint64_t bytes = 0;
    std::filesystem::file_time_type written;
  };

  std::shared_ptr<std::vector<Part>> parts_of(const std::shared_ptr<const Source>& source);
  void make_room(std::uint64_t bytes, const std::function<bool(const std::string&)>& is_needed);
  [[nodiscard]] std::filesystem::path path_of(const Part& part) const;
  [[nodiscard]] bool fetch(const Part& part, std::span<const PartRange> ranges, std::span<std::byte> out);
  [[nodiscard]] bool may_keep(const Part& part, std::size_t bytes) const noexcept;
  void keep(Part& part, std::span<const std::byte> bytes);
  void drop(const std::filesystem::path& path);
  bool take(std::uint64_t bytes) noexcept;
  void count(bool hit) noexcept { (hit ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed); }
  void note_once(std::atomic<bool>& told, const std::string& text) const;

  const std::filesystem::path folder_;
  Fs& fs_;
  const std::function<void(const std::string&)> note_;
  std::atomic<bool> writes_;
  std::vector<Listed> listed_;  // when it was made, oldest first
  std::uint64_t budget_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0};
  std::atomic<bool> told_damage_{false}, told_failure_{false};
  std::map<std::shared_ptr<const Source>, std::shared_ptr<std::vector<Part>>> known_;  // by the thread that makes the sources
};

class DiskCachedSource final : public Source {
 public:
  // `source` keeps rows or parts; `name` is its data set's, for messages. ConfigError as CachedSource.
  DiskCachedSource(std::shared_ptr<const Source> source, std::shared_ptr<DiskCache> cache, std::string name = "");
  ~DiskCachedSource() override;
  DiskCachedSource(const DiskCachedSource&) = delete;
  DiskCachedSource& operator=(const DiskCachedSource&) = delete;

  [[nodiscard]] std::span<const Field> fields() const override { return source_->fields(); }
  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return source_->fingerprint(); }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return source_->stamps(); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return source_->samples_per_ticket(); }
  [[nodiscard]] bool waits() const override { return source_->waits(); }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return source_->describe(index); }
  [[nodiscard]] std::string read_as() const override { return source_->read_as(); }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  // Of the part's file where there is one, else the source's.
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;

 private:
  void read_one(std::span<const std::int64_t> index, Rows row, const ReadRandom& random) const;

  const std::shared_ptr<const Source> source_;
  const std::shared_ptr<DiskCache> cache_;
  const std::string name_;
  const std::unique_ptr<const detail::PartsView> view_;
  std::vector<std::size_t> field_bytes_;
  std::shared_ptr<std::vector<DiskCache::Part>> parts_;
};

// A cache for these data sets, and room in it: files of other data leave, those first that were written first, where all that is
// to be kept would not fit into the budget. Null where it is off.
[[nodiscard]] Chosen<std::shared_ptr<DiskCache>> choose_disk_cache(std::span<const Dataset> datasets, DiskCacheOptions options);

// Puts the cache before every data set of the pipeline that keeps something. Null leaves it as it is.
void use_cache(Pipeline& pipeline, const std::shared_ptr<DiskCache>& cache);

}  // namespace millrace::data
