#include "millrace/data/cache/cached_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/keeping.h"
#include "millrace/data/loader/rows.h"
#include "millrace/data/loader/slow_reads.h"

namespace millrace::data {
namespace {

using detail::RowAt;

// approximate bytes that the allocator adds to each block for its own use
constexpr std::uint64_t kBlockOverhead = 16;

std::size_t row_bytes_of(const Source& source) {
  std::size_t sum = 0;
  for (const Field& field : source.fields()) sum += field.bytes();
  return sum;
}

}  // namespace

Cache::Counters SampleCache::counters() const noexcept {
  return {.hits = hits_.load(std::memory_order_relaxed),
          .misses = misses_.load(std::memory_order_relaxed),
          .bytes = bytes_.load(std::memory_order_relaxed),
          .budget_bytes = budget_};
}

bool SampleCache::take(std::uint64_t bytes) noexcept {
  std::uint64_t taken = bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > budget_ || taken > budget_ - bytes) return false;
  } while (!bytes_.compare_exchange_weak(taken, taken + bytes, std::memory_order_relaxed));
  return true;
}

void SampleCache::count(std::uint64_t hits, std::uint64_t misses) noexcept {
  if (hits > 0) hits_.fetch_add(hits, std::memory_order_relaxed);
  if (misses > 0) misses_.fetch_add(misses, std::memory_order_relaxed);
}

// The right to fill an entry of the table. If keep() was not called, the destructor frees the entry again and gives the entry's
// bytes back to the budget.
class CachedSource::Claim {
 public:
  Claim(SampleCache& cache, Entry& entry, std::size_t size) : cache_(cache), entry_(entry), taken_(size + kBlockOverhead) {
    Stage expected = Stage::absent;
    if (!entry_.stage.compare_exchange_strong(expected, Stage::loading, std::memory_order_acquire)) return;
    claimed_ = true;
    if (!cache_.take(taken_)) return;
    took_ = true;
    entry_.bytes.reset(new (std::nothrow) std::byte[size]);
  }
  ~Claim() {
    if (!claimed_ || kept_) return;
    entry_.bytes.reset();
    if (took_) cache_.give_back(taken_);
    entry_.stage.store(Stage::absent, std::memory_order_release);
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  // Returns the memory to fill; null if there is no room or another reader has the entry.
  [[nodiscard]] std::byte* bytes() const noexcept { return claimed_ ? entry_.bytes.get() : nullptr; }
  void keep() noexcept {
    kept_ = true;
    entry_.stage.store(Stage::kept, std::memory_order_release);
  }

 private:
  SampleCache& cache_;
  Entry& entry_;
  const std::uint64_t taken_;
  bool claimed_ = false;
  bool took_ = false;
  bool kept_ = false;
};

std::uint64_t cache_payload(const Source& source) {
  const auto parts = static_cast<std::uint64_t>(source.keeps() == Keeps::rows ? source.size() : source.parts());
  // What each part takes besides its content: the allocator's bytes for the block, and the entry in the table.
  const std::uint64_t each = kBlockOverhead + 2 * sizeof(void*);
  switch (source.keeps()) {
    case Keeps::nothing:
    case Keeps::memory:
      return 0;
    case Keeps::rows:
      return parts * (row_bytes_of(source) + each);
    case Keeps::parts:
      break;
  }
  std::uint64_t sum = parts * each;
  for (std::uint64_t part = 0; part < parts; ++part) {
    sum += source.part_bytes(static_cast<std::int64_t>(part));
    doing_moved();  // tells the watchdog that the loop makes progress; part_bytes() may have opened a file
  }
  return sum;
}

CachedSource::CachedSource(std::shared_ptr<const Source> source, std::shared_ptr<SampleCache> cache, std::string name)
    : source_(std::move(source)),
      cache_(std::move(cache)),
      name_(std::move(name)),
      keeps_(source_->keeps()),
      parts_per_sample_(source_->parts_per_sample()) {
  MR_CHECK(is_cacheable(keeps_), "a cache needs a source with rows or parts to keep");
  MR_CHECK(parts_per_sample_ >= 1 && parts_per_sample_ <= kMostParts, "a sample must have 1 to kMostParts parts");
  detail::check_keeping(*source_, name_);
  for (const Field& field : source_->fields()) field_bytes_.push_back(field.bytes());
  row_bytes_ = row_bytes_of(*source_);
  const auto parts = static_cast<std::size_t>(keeps_ == Keeps::rows ? source_->size() : source_->parts());
  if (!cache_->take(parts * sizeof(Entry))) return;
  table_bytes_ = parts * sizeof(Entry);
  table_ = std::vector<Entry>(parts);
}

CachedSource::~CachedSource() {
  std::uint64_t bytes = table_bytes_;
  for (std::size_t part = 0; part < table_.size(); ++part) {
    if (table_[part].stage.load() != Stage::kept) continue;
    bytes += kBlockOverhead + bytes_of(static_cast<std::int64_t>(part));
  }
  cache_->give_back(bytes);
}

std::size_t CachedSource::bytes_of(std::int64_t part) const {
  if (keeps_ == Keeps::rows) return row_bytes_;
  const std::size_t bytes = source_->part_bytes(part);
  if (bytes == 0) detail::refuse_empty_part(part, name_);
  return bytes;
}

void CachedSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  if (table_.empty()) {
    cache_->count(0, indices.size());
    return source_->read(indices, rows, random);
  }
  if (keeps_ == Keeps::rows) return read_rows(indices, rows, random);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const RowAt row(rows, i, field_bytes_);
    if (!make_of_parts(indices[i], row.rows(), random.part(i, 1)))
      source_->read(indices.subspan(i, 1), row.rows(), random.part(i, 1));
  }
}

// Copies the rows that the cache holds, and reads the others from the source. Neighbouring rows are read with one call.
void CachedSource::read_rows(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  std::uint64_t hits = 0;
  std::size_t at = 0;
  while (at < indices.size()) {
    if (kept(indices[at])) {
      copy_row(indices[at], RowAt(rows, at, field_bytes_).rows());
      ++hits;
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < indices.size() && !kept(indices[at])) ++at;
    cache_->count(0, at - begin);
    bool drawn = false;
    source_->read(indices.subspan(begin, at - begin), RowAt(rows, begin, field_bytes_).rows(),
                  random.part(begin, at - begin).watched(drawn));
    if (drawn) detail::refuse_drawn_rows(name_);
    for (std::size_t i = begin; i < at; ++i) keep_row(indices[i], RowAt(rows, i, field_bytes_).rows());
  }
  cache_->count(hits, 0);
  if (hits > 0) detail::note_kept_sample();
}

void CachedSource::copy_row(std::int64_t index, Rows row) const {
  const std::byte* bytes = entry_of(index).bytes.get();
  for (std::size_t f = 0; f < field_bytes_.size(); ++f) {
    std::memcpy(row.field_data[f], bytes, field_bytes_[f]);
    bytes += field_bytes_[f];
  }
}

void CachedSource::keep_row(std::int64_t index, Rows row) const {
  Claim claim(*cache_, entry_of(index), row_bytes_);
  std::byte* to = claim.bytes();
  if (to == nullptr) return;
  for (std::size_t f = 0; f < field_bytes_.size(); ++f) {
    std::memcpy(to, row.field_data[f], field_bytes_[f]);
    to += field_bytes_[f];
  }
  claim.keep();
}

// Makes a row from its parts. Parts for which the cache has no room are loaded for this call only. Returns false if the cache
// holds no part of the sample and has no room for any, because then it is cheaper to read the whole sample.
bool CachedSource::make_of_parts(std::int64_t index, Rows row, const ReadRandom& random) const {
  std::array<std::int64_t, kMostParts> numbers{};
  const std::span<std::int64_t> parts(numbers.data(), parts_per_sample_);
  source_->parts_of(index, random, parts);
  const auto is_kept = [this](std::int64_t part) { return kept(part); };
  const bool hit = std::all_of(parts.begin(), parts.end(), is_kept);
  cache_->count(hit ? 1 : 0, hit ? 0 : 1);
  if (std::any_of(parts.begin(), parts.end(), is_kept)) detail::note_kept_sample();
  if (!hit) {
    for (const std::int64_t part : parts) {
      if (!kept(part)) load_part(part);
    }
    if (std::none_of(parts.begin(), parts.end(), is_kept)) return false;
  }
  static thread_local std::array<std::vector<std::byte>, kMostParts> passing;
  std::array<std::span<const std::byte>, kMostParts> bytes;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const std::size_t size = bytes_of(parts[p]);
    if (kept(parts[p])) {
      bytes[p] = {entry_of(parts[p]).bytes.get(), size};
      continue;
    }
    passing[p].resize(size);
    source_->load(parts[p], passing[p]);
    bytes[p] = passing[p];
  }
  source_->finish(index, {bytes.data(), parts.size()}, row, random);
  return true;
}

// Loads a part into the cache. Returns false if there is no room, or if another reader is loading the part.
bool CachedSource::load_part(std::int64_t part) const {
  const std::size_t size = bytes_of(part);
  Claim claim(*cache_, entry_of(part), size);
  if (claim.bytes() == nullptr) return false;
  source_->load(part, {claim.bytes(), size});
  claim.keep();
  return true;
}

void CachedSource::will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept {
  if (table_.empty()) return source_->will_need(indices, random);
  std::array<std::int64_t, kMostParts> numbers{};
  const std::span<std::int64_t> parts(numbers.data(), keeps_ == Keeps::rows ? 1 : parts_per_sample_);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const ReadRandom own = random.part(i, 1);
    parts[0] = indices[i];
    if (keeps_ == Keeps::parts) source_->parts_of(indices[i], own, parts);
    if (!std::all_of(parts.begin(), parts.end(), [this](std::int64_t part) { return kept(part); }))
      source_->will_need(indices.subspan(i, 1), own);
  }
}

Chosen<std::shared_ptr<SampleCache>> choose_cache(std::span<const Dataset> datasets, std::optional<CacheWish> wish,
                                                  std::uint64_t available_bytes, std::uint64_t budget_bytes) {
  if (wish == CacheWish::off) return {nullptr, "off: as configured"};
  std::uint64_t payload = 0;
  for (const Dataset& dataset : datasets) payload += cache_payload(*dataset.source);
  if (payload == 0) return {nullptr, detail::reason_to_keep_nothing(datasets)};
  const auto text = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const std::uint64_t budget = budget_bytes > 0 ? budget_bytes : available_bytes / 2;
  const std::string of =
      budget_bytes > 0 ? "data.cache_bytes is " + text(budget_bytes) : "half of the free memory is " + text(budget);
  const bool fits = payload <= budget;
  if (!wish && !fits) return {nullptr, "off: " + text(payload) + " to keep, " + of};
  std::string reason = (fits ? "ram: " : "ram, in part: ") + text(payload) + " to keep, " + of;
  return {std::make_shared<SampleCache>(std::min(payload, budget)), std::move(reason)};
}

void use_cache(Pipeline& pipeline, const std::shared_ptr<SampleCache>& cache) {
  if (!cache) return;
  for (Dataset& dataset : pipeline.datasets) {
    if (!is_cacheable(dataset.source->keeps())) continue;
    dataset.source = std::make_shared<CachedSource>(dataset.source, cache, dataset.name);
  }
}

}  // namespace millrace::data
