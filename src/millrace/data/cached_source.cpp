#include "millrace/data/cached_source.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data {
namespace {

// What the allocator adds to a block, about.
constexpr std::uint64_t kBlockOverhead = 16;
constexpr std::size_t kFewFields = 16;

// Pointers to row `index` of every field; rows() is good while this lives.
class RowAt {
 public:
  RowAt(Rows rows, std::size_t index, const std::vector<std::size_t>& field_bytes) {
    std::span<std::byte*> pointers(few_.data(), std::min(few_.size(), field_bytes.size()));
    if (field_bytes.size() > few_.size()) {
      many_.resize(field_bytes.size());
      pointers = many_;
    }
    for (std::size_t f = 0; f < pointers.size(); ++f) pointers[f] = rows.row(f, index, field_bytes[f]);
    rows_ = {pointers};
  }
  [[nodiscard]] Rows rows() const noexcept { return rows_; }

 private:
  std::array<std::byte*, kFewFields> few_{};
  std::vector<std::byte*> many_;
  Rows rows_{};
};

std::size_t row_bytes_of(const Source& source) {
  std::size_t sum = 0;
  for (const Field& field : source.fields()) sum += field.bytes();
  return sum;
}

}  // namespace

CacheCounters SampleCache::counters() const noexcept {
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

// The right to fill an entry; gives it and its share of the budget back unless keep() was reached.
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

  [[nodiscard]] std::byte* bytes() const noexcept { return claimed_ ? entry_.bytes.get() : nullptr; }  // null = no room
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
  const auto parts = static_cast<std::uint64_t>(source.parts());
  const std::uint64_t each = kBlockOverhead + 2 * sizeof(void*);  // and its entry of the table
  switch (source.keeps()) {
    case Keeps::nothing:
      return 0;
    case Keeps::rows:
      return parts * (row_bytes_of(source) + each);
    case Keeps::parts:
      break;
  }
  std::uint64_t sum = parts * each;
  for (std::uint64_t part = 0; part < parts; ++part) sum += source.part_bytes(static_cast<std::int64_t>(part));
  return sum;
}

CachedSource::CachedSource(std::shared_ptr<const Source> source, std::shared_ptr<SampleCache> cache)
    : source_(std::move(source)), cache_(std::move(cache)), keeps_(source_->keeps()) {
  MR_CHECK(keeps_ != Keeps::nothing, "a source that keeps nothing needs no cache");
  for (const Field& field : source_->fields()) field_bytes_.push_back(field.bytes());
  row_bytes_ = row_bytes_of(*source_);
  const auto parts = static_cast<std::size_t>(source_->parts());
  if (!cache_->take(parts * sizeof(Entry))) return;
  table_bytes_ = parts * sizeof(Entry);
  table_ = std::vector<Entry>(parts);
}

CachedSource::~CachedSource() {
  std::uint64_t bytes = table_bytes_;
  for (std::size_t part = 0; part < table_.size(); ++part) {
    if (table_[part].stage.load() != Stage::kept) continue;
    bytes += kBlockOverhead + (keeps_ == Keeps::rows ? row_bytes_ : source_->part_bytes(static_cast<std::int64_t>(part)));
  }
  cache_->give_back(bytes);
}

std::size_t CachedSource::bytes_of(std::int64_t index) const {
  return keeps_ == Keeps::rows ? row_bytes_ : source_->part_bytes(source_->part_of(index));
}

void CachedSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  if (table_.empty()) {
    cache_->count(0, indices.size());
    return source_->read(indices, rows, random);
  }
  std::uint64_t hits = 0;
  std::size_t at = 0;
  while (at < indices.size()) {
    if (kept(indices[at])) {
      copy_kept(indices[at], RowAt(rows, at, field_bytes_).rows(), random.part(at, 1));
      ++hits;
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    while (end < indices.size() && !kept(indices[end])) ++end;
    cache_->count(0, end - at);
    read_run(indices.subspan(at, end - at), RowAt(rows, at, field_bytes_).rows(), random.part(at, end - at));
    at = end;
  }
  cache_->count(hits, 0);
}

void CachedSource::copy_kept(std::int64_t index, Rows row, const ReadRandom& random) const {
  const std::byte* bytes = entry_of(index).bytes.get();
  if (keeps_ == Keeps::parts) return source_->finish(index, {bytes, bytes_of(index)}, row, random);
  for (std::size_t f = 0; f < field_bytes_.size(); ++f) {
    std::memcpy(row.field_data[f], bytes, field_bytes_[f]);
    bytes += field_bytes_[f];
  }
}

// Neighbouring samples that are not there yet.
void CachedSource::read_run(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  if (keeps_ == Keeps::rows) {
    source_->read(indices, rows, random);
    for (std::size_t i = 0; i < indices.size(); ++i) keep_row(indices[i], RowAt(rows, i, field_bytes_).rows());
    return;
  }
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const RowAt row(rows, i, field_bytes_);
    if (kept(indices[i]) || load_part(indices[i])) {
      copy_kept(indices[i], row.rows(), random.part(i, 1));
    } else {
      source_->read(indices.subspan(i, 1), row.rows(), random.part(i, 1));
    }
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

// False when there is no room, or another reader is at it.
bool CachedSource::load_part(std::int64_t index) const {
  const std::size_t size = bytes_of(index);
  Claim claim(*cache_, entry_of(index), size);
  if (claim.bytes() == nullptr) return false;
  source_->load(source_->part_of(index), {claim.bytes(), size});
  claim.keep();
  return true;
}

void CachedSource::will_need(std::span<const std::int64_t> indices) const noexcept {
  if (table_.empty()) return source_->will_need(indices);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!kept(indices[i])) source_->will_need(indices.subspan(i, 1));
  }
}

CacheChoice choose_cache(std::span<const Dataset> datasets, CacheWish wish, std::uint64_t available_bytes,
                         std::uint64_t budget_bytes) {
  if (wish == CacheWish::off) return {nullptr, "off: as configured"};
  std::uint64_t payload = 0;
  for (const Dataset& dataset : datasets) payload += cache_payload(*dataset.source);
  if (payload == 0) return {nullptr, "off: the data is in memory already"};
  const auto text = [](std::uint64_t bytes) { return human_bytes(static_cast<double>(bytes)); };
  const std::uint64_t budget = budget_bytes > 0 ? budget_bytes : available_bytes / 2;
  const std::string of =
      budget_bytes > 0 ? "data.cache_bytes is " + text(budget_bytes) : "half of the free memory is " + text(budget);
  const bool fits = payload <= budget;
  if (wish == CacheWish::automatic && !fits) return {nullptr, "off: " + text(payload) + " to keep, " + of};
  std::string reason = (fits ? "ram: " : "ram, in part: ") + text(payload) + " to keep, " + of;
  return {std::make_shared<SampleCache>(std::min(payload, budget)), std::move(reason)};
}

void use_cache(Pipeline& pipeline, const std::shared_ptr<SampleCache>& cache) {
  if (!cache) return;
  for (Dataset& dataset : pipeline.datasets) {
    if (dataset.source->keeps() == Keeps::nothing) continue;
    dataset.source = std::make_shared<CachedSource>(dataset.source, cache);
  }
}

}  // namespace millrace::data
