#include "millrace/data/cache/disk_cache.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/cache/detail/part_file.h"
#include "millrace/data/loader/keeping.h"
#include "millrace/data/loader/parts_view.h"
#include "millrace/data/loader/rows.h"
#include "millrace/data/loader/slow_reads.h"
#include "millrace/system/process.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;

constexpr std::uint64_t kLeftFree = std::uint64_t{1} << 30;  // bytes of disk space that stay free, whatever the budget is
constexpr std::chrono::hours kAbandoned{24};                 // an unfinished file older than this was left by a killed writer
constexpr std::uint64_t kLeastPart = 4096;  // bytes; if parts are smaller on average, the cache is no faster than the source

std::string text(std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

// Returns the size of the file; nullopt if the path is not a regular file. A link does not count as a regular file.
std::optional<std::uint64_t> file_bytes(const stdfs::path& path) {
  std::error_code failure;
  if (stdfs::symlink_status(path, failure).type() != stdfs::file_type::regular) return std::nullopt;
  const std::uintmax_t bytes = stdfs::file_size(path, failure);
  return failure ? std::nullopt : std::optional<std::uint64_t>(bytes);
}

// Returns the folder or, if it does not exist, the nearest folder above it that exists.
stdfs::path nearest_folder(stdfs::path path) {
  std::error_code ignored;
  path = stdfs::absolute(path, ignored);
  while (!stdfs::is_directory(path, ignored) && path.has_relative_path()) path = path.parent_path();
  return path;
}

// Returns for each part of the source the text from which the part's key is made; "" = the part is not kept.
std::vector<std::string> texts_of(const Source& source, std::size_t parts) {
  if (source.keeps() == Keeps::parts) {
    std::vector<std::string> texts = source.part_texts();
    MR_CHECK(texts.empty() || texts.size() == parts, "either each part or no part must have a text");
    if (!texts.empty()) return texts;
  }
  // Increase this number when a reader of files makes other values from the same file. Number 2 began to rotate pictures by
  // EXIF, number 3 by XMP.
  std::string common = source.fingerprint() + "\nreaders 3";
  for (const Field& field : source.fields())
    common += '\n' + field.name + ' ' + std::string(name_of(field.dtype)) + ' ' + to_text(field.shape);
  const std::vector<FileStamp> stamps = source.stamps();
  if (stamps.empty()) common += "\nbuild " + build_id();  // without files, the values depend on the program's build
  for (const FileStamp& stamp : stamps) {
    const std::string content = content_text(stamp);
    if (content.empty()) return std::vector<std::string>(parts);
    common += '\n' + content;
  }
  std::vector<std::string> texts;
  for (std::size_t part = 0; part < parts; ++part) texts.push_back(common + "\npart " + std::to_string(part));
  return texts;
}

}  // namespace

DiskCache::DiskCache(DiskCache::Options options)
    : folder_(std::move(options.folder)),
      fs_(options.fs != nullptr ? *options.fs : Fs::real()),
      note_(std::move(options.note)),
      writes_(options.writes) {
  std::uint64_t bytes = 0;
  try {
    if (!folder_.empty() && fs_.exists(folder_)) {
      for (const std::string& name : fs_.list(folder_)) {
        const std::optional<std::uint64_t> size = file_bytes(folder_ / name);
        if (!size) continue;
        bytes += *size;
        std::error_code ignored;
        if (detail::is_part_file_name(name)) listed_.push_back({name, *size, stdfs::last_write_time(folder_ / name, ignored)});
      }
    }
    const std::uint64_t free = fs_.free_bytes(nearest_folder(folder_));
    budget_ = options.budget_bytes > 0 ? options.budget_bytes : (free + bytes) / 2;
    if (free < kLeftFree) writes_ = false;
  } catch (const FsError& error) {
    writes_ = false;
    note_once(told_failure_, "decoded parts are not kept on disk: " + std::string(error.what()));
  }
  std::stable_sort(listed_.begin(), listed_.end(), [](const Listed& a, const Listed& b) { return a.written < b.written; });
  bytes_ = bytes;
}

Cache::Counters DiskCache::counters() const noexcept {
  return {.hits = hits_.load(std::memory_order_relaxed),
          .misses = misses_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .budget_bytes = budget_};
}

stdfs::path DiskCache::path_of(const Part& part) const { return folder_ / detail::part_file_name(part.key); }

std::shared_ptr<std::vector<DiskCache::Part>> DiskCache::parts_of(const std::shared_ptr<const Source>& source) {
  std::shared_ptr<std::vector<Part>>& known = known_[source];
  if (known) return known;
  const auto count = static_cast<std::size_t>(source->keeps() == Keeps::rows ? source->size() : source->parts());
  const std::vector<std::string> texts = texts_of(*source, count);
  known = std::make_shared<std::vector<Part>>(count);
  for (std::size_t part = 0; part < count; ++part) {
    (*known)[part].is_kept = !texts[part].empty();
    (*known)[part].key = detail::part_key(texts[part]);
  }
  return known;
}

void DiskCache::make_room(std::uint64_t bytes, const std::function<bool(const std::string&)>& is_needed) {
  const stdfs::file_time_type long_ago = stdfs::file_time_type::clock::now() - kAbandoned;
  for (const Listed& file : listed_) {
    if (writes_ && file.written < long_ago && file.name.find(".part.tmp.") != std::string::npos) drop(folder_ / file.name);
  }
  for (const Listed& file : listed_) {
    if (!writes_ || bytes_.load() + bytes <= budget_) return;
    if (!is_needed(file.name)) drop(folder_ / file.name);
  }
}

bool DiskCache::take(std::uint64_t bytes) noexcept {
  std::uint64_t taken = bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > budget_ || taken > budget_ - bytes) return false;
  } while (!bytes_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

void DiskCache::note_once(std::atomic<bool>& noted, const std::string& text) const {
  if (!noted.exchange(true) && note_) note_(text);
}

// Removes a file. A missing file is not an error, because another run may have removed it.
void DiskCache::drop(const stdfs::path& path) {
  const std::optional<std::uint64_t> bytes = file_bytes(path);
  if (!bytes) return;
  try {
    fs_.remove_all(path);
    std::uint64_t taken = bytes_.load();
    while (!bytes_.compare_exchange_weak(taken, taken - std::min(taken, *bytes))) {
    }
  } catch (const FsError&) {  // NOLINT(bugprone-empty-catch): the file stays, and its bytes still count
  }
}

bool DiskCache::fetch(const Part& part, std::span<const PartRange> ranges, std::span<std::byte> out) {
  if (!part.is_kept || folder_.empty()) return false;
  const stdfs::path path = path_of(part);
  const detail::PartRead read = detail::read_part(path, part.key, ranges, out);
  if (read != detail::PartRead::damaged) return read == detail::PartRead::done;
  note_once(told_damage_, "a file of the cache was changed after it was written: " + path.string() +
                              "; its cached samples are decoded again (further cases are not reported)");
  if (writes_) drop(path);
  return false;
}

bool DiskCache::may_keep(const Part& part, std::size_t bytes) const noexcept {
  if (!part.is_kept || !writes_.load(std::memory_order_relaxed)) return false;
  const std::uint64_t size = detail::part_file_bytes(bytes);
  return size <= budget_ && bytes_.load(std::memory_order_relaxed) <= budget_ - size;
}

void DiskCache::keep(Part& part, std::span<const std::byte> bytes) {
  if (!may_keep(part, bytes.size()) || part.is_busy.exchange(true)) return;
  const std::uint64_t size = detail::part_file_bytes(bytes.size());
  bool taken = false;
  try {
    fs_.create_directories(folder_);
    if (fs_.free_bytes(folder_) < size + kLeftFree) {
      writes_ = false;
      note_once(told_failure_,
                "less than " + text(kLeftFree) + " of the disk is free: no more decoded parts are kept in " + folder_.string());
    } else if ((taken = take(size))) {
      detail::write_part(fs_, path_of(part), part.key, bytes);
      taken = false;
    }
  } catch (const FsError& error) {
    writes_ = false;
    note_once(told_failure_,
              "no more decoded parts are kept on disk: " + std::string(error.what()) + "; " + remedy_for(error.error_number()));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): a later read tries again
  }
  if (taken) bytes_.fetch_sub(size);
  part.is_busy = false;
}

DiskCachedSource::DiskCachedSource(std::shared_ptr<const Source> source, std::shared_ptr<DiskCache> cache, std::string name)
    : source_(std::move(source)),
      cache_(std::move(cache)),
      name_(std::move(name)),
      view_(std::make_unique<detail::PartsView>(source_)),
      field_bytes_(detail::bytes_of(source_->fields())),
      parts_(cache_->parts_of(source_)) {
  MR_CHECK(view_->keeps(), "a cache needs a source with rows or parts to keep");
  detail::check_keeping(*source_, name_);
}

DiskCachedSource::~DiskCachedSource() = default;

void DiskCachedSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const detail::RowAt row(rows, i, field_bytes_);
    read_one(indices.subspan(i, 1), row.rows(), random.part(i, 1));
  }
}

// Makes a sample from its parts. If no part is on disk and no part can be kept, reads the whole sample from the source, because
// that is cheaper.
void DiskCachedSource::read_one(std::span<const std::int64_t> index, Rows row, const ReadRandom& random) const {
  static thread_local std::array<std::vector<std::byte>, kMostParts> passing;
  std::array<std::int64_t, kMostParts> numbers{};
  std::array<std::span<std::byte>, kMostParts> bytes;
  std::array<bool, kMostParts> found{};
  const std::span<std::int64_t> parts(numbers.data(), view_->parts_per_sample());
  view_->parts_of(index[0], random, parts);
  bool hit = true;
  bool pays = false;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::size_t size = view_->part_bytes(parts[p]);
    if (size == 0) detail::refuse_empty_part(parts[p], name_);
    if (passing[p].size() < size) passing[p].resize(size);
    bytes[p] = std::span(passing[p]).first(size);
    const DiskCache::Part& part = (*parts_)[static_cast<std::size_t>(parts[p])];
    std::vector<PartRange> ranges;
    if (source_->keeps() == Keeps::parts) ranges = source_->looks_at(index[0], p, random);
    found[p] = cache_->fetch(part, ranges, bytes[p]);
    if (found[p]) detail::note_kept_sample();
    hit = hit && found[p];
    pays = pays || found[p] || cache_->may_keep(part, size);
  }
  cache_->count(hit);
  if (!pays) return source_->read(index, row, random);
  std::array<std::span<const std::byte>, kMostParts> whole;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    if (!found[p]) {
      if (!view_->field_offsets().empty()) std::fill(bytes[p].begin(), bytes[p].end(), std::byte{0});
      view_->load(parts[p], bytes[p]);
      cache_->keep((*parts_)[static_cast<std::size_t>(parts[p])], bytes[p]);
    }
    whole[p] = bytes[p];
  }
  view_->finish(index[0], {whole.data(), parts.size()}, row, random);
}

void DiskCachedSource::will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept {
  std::array<std::int64_t, kMostParts> numbers{};
  const std::span<std::int64_t> parts(numbers.data(), view_->parts_per_sample());
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const ReadRandom own = random.part(i, 1);
    try {
      view_->parts_of(indices[i], own, parts);
      bool all = true;
      for (std::size_t p = 0; p < parts.size() && all; ++p) {
        const DiskCache::Part& part = (*parts_)[static_cast<std::size_t>(parts[p])];
        std::vector<PartRange> ranges;
        if (source_->keeps() == Keeps::parts) ranges = source_->looks_at(indices[i], p, own);
        all = detail::will_need_part(cache_->path_of(part), ranges, view_->part_bytes(parts[p]));
      }
      if (!all && source_->looks_ahead()) source_->will_need(indices.subspan(i, 1), own);
    } catch (...) {  // NOLINT(bugprone-empty-catch): advice; the read says what is wrong
    }
  }
}

Chosen<std::shared_ptr<DiskCache>> choose_disk_cache(std::span<const Dataset> datasets, DiskCache::Options options) {
  if (options.folder.empty()) return {nullptr, "off: there is no folder for the cache"};
  const std::uint64_t asked = options.budget_bytes;
  const auto cache = std::make_shared<DiskCache>(std::move(options));
  std::uint64_t payload = 0;  // bytes of the parts' files
  std::uint64_t content = 0;  // bytes of the parts themselves
  std::uint64_t count = 0;
  std::set<std::string> needed;
  for (const Dataset& dataset : datasets) {
    const detail::PartsView view(dataset.source);
    if (!view.keeps()) continue;
    const auto parts = static_cast<std::uint64_t>(view.parts());
    count += parts;
    for (std::uint64_t part = 0; part < parts; ++part) {
      const std::size_t bytes = view.part_bytes(static_cast<std::int64_t>(part));
      content += bytes;
      payload += detail::part_file_bytes(bytes);
    }
  }
  if (payload == 0) return {nullptr, detail::reason_to_keep_nothing(datasets)};
  if (content / count < kLeastPart)
    return {nullptr, "off: parts of " + text(content / count) + " are so small that reading the source is as fast"};
  for (const Dataset& dataset : datasets) {
    if (!is_cacheable(dataset.source->keeps())) continue;
    for (const DiskCache::Part& part : *cache->parts_of(dataset.source)) needed.insert(detail::part_file_name(part.key));
  }
  const auto is_needed = [&](const std::string& name) { return needed.contains(name); };
  std::uint64_t present = 0;
  for (const DiskCache::Listed& file : cache->listed_) present += is_needed(file.name) ? file.bytes : 0;
  const std::uint64_t missing = payload - std::min(payload, present);
  cache->make_room(missing, is_needed);
  const std::uint64_t used = cache->bytes_.load();
  const bool fits = used <= cache->budget_ && missing <= cache->budget_ - used;
  const std::string of = (asked > 0 ? "data.cache_bytes is " : "half of the free disk is ") + text(cache->budget_);
  std::string reason =
      (fits ? "disk: " : "disk, in part: ") + text(payload) + " to keep, " + text(present) + " of it already there, " + of;
  return {cache, std::move(reason)};
}

void use_cache(Pipeline& pipeline, const std::shared_ptr<DiskCache>& cache) {
  if (!cache) return;
  for (Dataset& dataset : pipeline.datasets) {
    if (!is_cacheable(dataset.source->keeps())) continue;
    dataset.source = std::make_shared<DiskCachedSource>(dataset.source, cache, dataset.name);
  }
}

}  // namespace millrace::data
