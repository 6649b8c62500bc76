// A cache of decoded parts (Source::keeps()) on the local disk, for data that does not fit into memory. Each part has a file,
// which is written once and checked at each read. All runs that read the same data share the files.
//
// The name of a part's file is derived from the content of the source's files, the time when they were written, and every
// reading option that changes the bytes. So changed data gets other file names and outdated parts are never read. A file that is
// damaged, truncated or foreign is replaced by a newly decoded part. Random numbers are drawn after this cache, as after the
// cache in memory.
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

// The cache on disk that the sources of a run share. Thread-safe. If the disk is full or can't be written, the run continues
// without the cache.
class DiskCache final : public Cache {
 public:
  struct Options {
    std::filesystem::path folder;  // a folder for this cache only; created at the first write
    // A limit for the bytes of all files in the folder, including those of other data; 0 = half of the disk space that these
    // files can have.
    std::uint64_t budget_bytes = 0;
    bool writes = true;  // false: the cache reads files that exist, but writes none
    // Called for the first damaged part and for the first failure of the file system, often in a reader thread. May be null.
    std::function<void(const std::string&)> note = {};
    Fs* fs = nullptr;  // null = the real file system
  };

  explicit DiskCache(Options options);
  [[nodiscard]] Cache::Counters counters() const noexcept override;  // In the result, `bytes` counts all files in the folder.
  [[nodiscard]] std::uint64_t budget_bytes() const noexcept { return budget_; }

 private:
  friend class DiskCachedSource;
  friend Chosen<std::shared_ptr<DiskCache>> choose_disk_cache(std::span<const Dataset> datasets, Options options);
  struct Part {
    std::array<std::uint8_t, 32> key{};
    bool is_kept = false;               // false: the part has no key that changes with the data, so it is not kept
    std::atomic<bool> is_busy = false;  // true: a reader is writing the part's file
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
  void note_once(std::atomic<bool>& noted, const std::string& text) const;

  const std::filesystem::path folder_;
  Fs& fs_;
  const std::function<void(const std::string&)> note_;
  std::atomic<bool> writes_;
  std::vector<Listed> listed_;  // the files that were in the folder when the cache was made, the oldest first
  std::uint64_t budget_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
  std::atomic<std::uint64_t> hits_{0}, misses_{0};
  std::atomic<bool> told_damage_{false}, told_failure_{false};
  // The parts of each source; used only by the thread that makes sources.
  std::map<std::shared_ptr<const Source>, std::shared_ptr<std::vector<Part>>> known_;
};

class DiskCachedSource final : public Source {
 public:
  // `source` must have rows or parts to cache (Source::keeps()). `name`: the data set's name, for messages. Throws ConfigError
  // as CachedSource does.
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
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return source_->value_names(field);
  }
  [[nodiscard]] bool looks_ahead() const override { return true; }
  // Announces reads of the parts' files and, if one of the files does not exist, a read of the source.
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

// Makes a cache for these data sets; null if the cache is off. If the parts of the data sets and the files of other data exceed
// the budget together, files of other data are removed, the oldest first.
[[nodiscard]] Chosen<std::shared_ptr<DiskCache>> choose_disk_cache(std::span<const Dataset> datasets, DiskCache::Options options);

// For each data set of the pipeline whose source is cacheable (is_cacheable()), puts the cache in front of the source. A null
// cache changes nothing.
void use_cache(Pipeline& pipeline, const std::shared_ptr<DiskCache>& cache);

}  // namespace millrace::data
