#include "millrace/data/loader/parts_view.h"

#include <algorithm>
#include <cstring>

#include "millrace/data/loader/keeping.h"
#include "millrace/data/loader/rows.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kFieldAlignment = 16;  // the alignment of memory from `new`, which is enough for every dtype

}  // namespace

PartsView::PartsView(std::shared_ptr<const Source> source) : source_(std::move(source)), keeps_(source_->keeps()) {
  if (keeps_ != Keeps::rows) return;
  check_keeping(*source_, "");
  field_bytes_ = bytes_of(source_->fields());
  for (const std::size_t bytes : field_bytes_) {
    offsets_.push_back(row_bytes_);
    row_bytes_ += aligned_to(kFieldAlignment, bytes);
  }
  row_bytes_ = std::max<std::size_t>(row_bytes_, 1);
}

std::int64_t PartsView::parts() const { return keeps_ == Keeps::rows ? source_->size() : source_->parts(); }

std::size_t PartsView::parts_per_sample() const { return keeps_ == Keeps::rows ? 1 : source_->parts_per_sample(); }

void PartsView::parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const {
  if (keeps_ == Keeps::rows) {
    parts[0] = index;
  } else {
    source_->parts_of(index, random, parts);
  }
}

std::size_t PartsView::part_bytes(std::int64_t part) const {
  return keeps_ == Keeps::rows ? row_bytes_ : source_->part_bytes(part);
}

void PartsView::load(std::int64_t part, std::span<std::byte> bytes) const {
  if (keeps_ != Keeps::rows) return source_->load(part, bytes);
  FieldPointers<> fields(offsets_.size());
  for (std::size_t f = 0; f < offsets_.size(); ++f) fields[f] = bytes.data() + offsets_[f];
  constexpr std::int64_t kPosition = 0;
  bool drawn = false;
  source_->read({&part, 1}, {fields.span()}, ReadRandom(0, 0, {&kPosition, 1}).watched(drawn));
  if (drawn) refuse_drawn_rows("");
}

void PartsView::finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
                       const ReadRandom& random) const {
  if (keeps_ != Keeps::rows) return source_->finish(index, parts, rows, random);
  for (std::size_t f = 0; f < offsets_.size(); ++f)
    std::memcpy(rows.row(f, 0, 0), parts[0].data() + offsets_[f], field_bytes_[f]);
}

}  // namespace millrace::data::detail
