#include "millrace/data/detail/batch_work.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kOrderUse = 0x6F72646572ULL;  // keeps the order's key apart from those of ReadRandom
constexpr std::uint64_t kReplaceUse = 0x73756273ULL;
constexpr std::uint64_t kMaxReplacements = 16;
constexpr std::uint64_t kTicketsAhead = 16;  // of look-ahead, at least: what a disk takes at once

[[noreturn]] void too_large(const Field& field) {
  throw ConfigError(
      Message{.what = "a batch of field \"" + field.name + "\" " + to_text(field.shape) + " is too large to address",
              .where = "data.batch_size",
              .next = "lower data.batch_size"});
}

// False for errors that are about the process or the program rather than about the sample.
bool is_about_sample(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DataError&) {
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const std::exception&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

BatchWork::BatchWork(std::vector<Dataset> datasets, WorkOptions options, std::shared_ptr<Arena> arena)
    : datasets_(std::move(datasets)), options_(options), arena_(std::move(arena)) {
  for (std::size_t group = 0; group < datasets_.size(); ++group) {
    Part part;
    part.source = datasets_[group].source;
    part.slices = {part.source->size(), options_.batch_size, options_.world_size, options_.drop_last};
    part.seed = group == 0 ? options_.seed : make_key(options_.seed, group);
    part.rows_per_ticket = std::clamp<std::int64_t>(part.source->samples_per_ticket(), 1, options_.batch_size);
    part.first_ticket = tickets_;
    tickets_ += static_cast<std::uint64_t>((options_.batch_size + part.rows_per_ticket - 1) / part.rows_per_ticket);
    part.end_ticket = tickets_;
    batches_per_epoch_ = std::max(batches_per_epoch_, static_cast<std::uint64_t>(part.slices.batches()));
    parts_.push_back(std::move(part));
  }
  look_ahead_batches_ = (kTicketsAhead + tickets_ - 1) / std::max<std::uint64_t>(tickets_, 1);
  lay_out();
}

void BatchWork::lay_out() {
  const auto rows = static_cast<std::size_t>(options_.batch_size);
  for (Part& part : parts_) {
    for (const Field& field : part.source->fields()) {
      const std::size_t row_bytes = field.bytes();
      std::size_t bytes = 0;
      if (__builtin_mul_overflow(row_bytes, rows, &bytes) || __builtin_add_overflow(bytes, kAlignment - 1, &bytes))
        too_large(field);
      part.field_bytes.push_back(row_bytes);
      part.field_offsets.push_back(slot_bytes_);
      if (__builtin_add_overflow(slot_bytes_, bytes / kAlignment * kAlignment, &slot_bytes_)) too_large(field);
    }
  }
}

std::int64_t BatchWork::samples() const noexcept {
  std::int64_t sum = 0;
  for (const Part& part : parts_) sum += part.slices.size;
  return sum;
}

std::int64_t BatchWork::samples_per_epoch() const noexcept {
  std::int64_t sum = 0;
  for (const Part& part : parts_) {
    const std::int64_t full = part.slices.batches() * options_.batch_size * options_.world_size;
    sum += options_.drop_last ? full : part.slices.size;
  }
  return sum;
}

std::int64_t BatchWork::rows_before(std::int64_t count) const noexcept {
  std::int64_t rows = 0;
  for (const Part& part : parts_) {
    const std::int64_t batches = std::min(count, part.slices.batches());
    if (batches == 0) continue;
    rows += (batches - 1) * options_.batch_size + part.slices.slice(batches - 1, options_.rank).count;
  }
  return rows;
}

std::unique_ptr<BatchSlot> BatchWork::make_slot() {
  auto slot = std::make_unique<BatchSlot>(arena_, std::max<std::size_t>(slot_bytes_, kAlignment));
  slot->groups.resize(parts_.size());
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    GroupSlot& here = slot->groups[group];
    for (const std::size_t offset : parts_[group].field_offsets) here.data.push_back(slot->memory + offset);
    here.indices.resize(static_cast<std::size_t>(options_.batch_size));
    here.positions.resize(static_cast<std::size_t>(options_.batch_size));
  }
  return slot;
}

void BatchWork::begin(BatchSlot& slot, std::uint64_t batch) noexcept {
  const auto in_epoch = static_cast<std::int64_t>(batch % batches_per_epoch_);
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    const RowRange range = parts_[group].slices.slice(in_epoch, options_.rank);
    GroupSlot& here = slot.groups[group];
    here.rows = range.count;
    std::iota(here.positions.begin(), here.positions.begin() + range.count, range.first);
  }
  slot.bad.clear();
}

void BatchWork::run(BatchSlot& slot, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept {
  std::size_t group = 0;
  while (ticket >= parts_[group].end_ticket) ++group;
  const Part& part = parts_[group];
  if (part.source->looks_ahead()) look_ahead(part, batch + look_ahead_batches_, ticket);
  const std::int64_t first_row = static_cast<std::int64_t>(ticket - part.first_ticket) * part.rows_per_ticket;
  const std::int64_t rows = std::min(part.rows_per_ticket, slot.groups[group].rows - first_row);
  if (rows <= 0) return;
  const Block block{part, group, first_row, rows, batch / batches_per_epoch_, reader};
  Activity& activity = activity_of(reader);
  const std::int64_t began = steady_nanoseconds();
  activity.group.store(group, std::memory_order_relaxed);
  activity.batch.store(batch, std::memory_order_relaxed);
  activity.since.store(began, std::memory_order_relaxed);
  try {
    read_block(slot, block);
  } catch (...) {  // out of memory while keeping an error
    const std::lock_guard lock(slot.mutex);
    slot.bad.push_back({.group = group, .row = first_row, .reader = reader, .error = std::current_exception(), .failed = {}});
  }
  activity.since.store(0, std::memory_order_relaxed);
  const std::int64_t passed = steady_nanoseconds() - began;
  activity.read_nanoseconds.fetch_add(passed, std::memory_order_relaxed);
  // Readers that share an entry may lose one to the other: it is a measurement.
  if (passed > activity.slowest_nanoseconds.load(std::memory_order_relaxed)) {
    activity.slowest_nanoseconds.store(passed, std::memory_order_relaxed);
  }
}

Order BatchWork::order_of(const Part& part, std::uint64_t epoch) const noexcept {
  return options_.shuffle ? Order(part.slices.size, make_key(part.seed, epoch, kOrderUse)) : Order(part.slices.size);
}

// The order is a function of the position, so what will be read is known without a list; and as each ticket announces one some
// batches on, none is announced twice.
void BatchWork::look_ahead(const Part& part, std::uint64_t batch, std::uint64_t ticket) const noexcept {
  const RowRange range = part.slices.slice(static_cast<std::int64_t>(batch % batches_per_epoch_), options_.rank);
  const std::int64_t first_row = static_cast<std::int64_t>(ticket - part.first_ticket) * part.rows_per_ticket;
  const std::uint64_t epoch = batch / batches_per_epoch_;
  const Order order = order_of(part, epoch);
  std::array<std::int64_t, 64> indices{};
  std::array<std::int64_t, 64> positions{};
  const std::int64_t end = std::min(first_row + part.rows_per_ticket, range.count);
  for (std::int64_t row = first_row; row < end; row += static_cast<std::int64_t>(indices.size())) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(end - row, indices.size()));
    order.fill(range.first + row, {indices.data(), count});
    std::iota(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(count), range.first + row);
    part.source->will_need({indices.data(), count}, ReadRandom(part.seed, epoch, {positions.data(), count}));
  }
}

void BatchWork::read_block(BatchSlot& slot, const Block& block) {
  GroupSlot& here = slot.groups[block.group];
  const std::span indices(here.indices.data() + block.first_row, static_cast<std::size_t>(block.rows));
  const Part& part = block.part;
  order_of(part, block.epoch).fill(here.positions[static_cast<std::size_t>(block.first_row)], indices);

  const bool any_quarantined =
      has_quarantine_.load(std::memory_order_acquire) &&
      std::any_of(indices.begin(), indices.end(), [&](std::int64_t i) { return quarantined(block.group, i); });
  std::exception_ptr error;
  if (!any_quarantined) {
    try {
      read_rows(slot, block, indices, block.first_row);
      return;
    } catch (...) {
      error = std::current_exception();
    }
  }
  // One by one, so that what happens to a row never depends on which rows were read together with it.
  for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
    read_one(slot, block, row, block.rows == 1 ? error : nullptr);
  }
}

void BatchWork::read_rows(BatchSlot& slot, const Block& block, std::span<const std::int64_t> indices,
                          std::int64_t first_row) const {
  const GroupSlot& here = slot.groups[block.group];
  const Part& part = block.part;
  std::array<std::byte*, 16> few{};
  std::vector<std::byte*> many;
  std::span<std::byte*> rows(few.data(), std::min(few.size(), part.field_bytes.size()));
  if (part.field_bytes.size() > few.size()) {
    many.resize(part.field_bytes.size());
    rows = many;
  }
  for (std::size_t field = 0; field < rows.size(); ++field) {
    rows[field] = here.data[field] + static_cast<std::size_t>(first_row) * part.field_bytes[field];
  }
  activity_of(block.reader).index.store(indices.front(), std::memory_order_relaxed);
  const std::span positions(here.positions.data() + first_row, indices.size());
  part.source->read(indices, Rows{rows}, ReadRandom(part.seed, block.epoch, positions));
}

void BatchWork::read_one(BatchSlot& slot, const Block& block, std::int64_t row, std::exception_ptr error) {
  const std::int64_t index = slot.groups[block.group].indices[static_cast<std::size_t>(row)];
  BadRow bad{.group = block.group, .row = row, .index = index, .reader = block.reader, .error = std::move(error), .failed = {}};
  if (!bad.error && !quarantined(block.group, index)) {
    try {
      read_rows(slot, block, {&index, 1}, row);
      return;
    } catch (...) {
      bad.error = std::current_exception();
    }
  }
  if (bad.error) bad.failed.push_back(index);
  const bool replaces = options_.bad_samples == BadSamples::substitute || options_.bad_samples == BadSamples::quarantine;
  if (replaces && (!bad.error || is_about_sample(bad.error))) replace(slot, block, bad);
  const std::lock_guard lock(slot.mutex);
  slot.bad.push_back(std::move(bad));
}

// The replacement is a function of seed, epoch, position and attempt alone, so it is the same for any readers and on resume.
void BatchWork::replace(BatchSlot& slot, const Block& block, BadRow& bad) const {
  GroupSlot& here = slot.groups[block.group];
  const auto row = static_cast<std::size_t>(bad.row);
  const auto position = static_cast<std::uint64_t>(here.positions[row]);
  for (std::uint64_t attempt = 1; attempt <= kMaxReplacements; ++attempt) {
    Philox draw(make_key(block.part.seed, block.epoch, position, kReplaceUse, attempt));
    const auto index = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(block.part.slices.size)));
    if (index == bad.index || quarantined(block.group, index)) continue;
    try {
      read_rows(slot, block, {&index, 1}, bad.row);
    } catch (...) {
      if (!is_about_sample(std::current_exception())) {
        bad.error = std::current_exception();
        return;
      }
      bad.failed.push_back(index);
      continue;
    }
    here.indices[row] = index;
    bad.replaced = true;
    return;
  }
}

bool BatchWork::quarantined(std::size_t group, std::int64_t index) const {
  if (!has_quarantine_.load(std::memory_order_acquire)) return false;
  std::shared_ptr<const Quarantine> quarantine;
  {
    const std::lock_guard lock(quarantine_mutex_);
    quarantine = quarantine_;
  }
  return quarantine && quarantine->contains({group, index});
}

void BatchWork::set_quarantine(Quarantine quarantine) {
  const std::lock_guard lock(quarantine_mutex_);
  has_quarantine_.store(!quarantine.empty(), std::memory_order_release);
  quarantine_ = std::make_shared<const Quarantine>(std::move(quarantine));
}

double BatchWork::read_seconds() const noexcept {
  std::int64_t sum = 0;
  for (const Activity& activity : activities_) sum += activity.read_nanoseconds.load(std::memory_order_relaxed);
  return static_cast<double>(sum) * 1e-9;
}

double BatchWork::take_slowest_seconds() noexcept {
  std::int64_t slowest = 0;
  for (Activity& activity : activities_) {
    slowest = std::max(slowest, activity.slowest_nanoseconds.exchange(0, std::memory_order_relaxed));
  }
  return static_cast<double>(slowest) * 1e-9;
}

std::vector<std::string> BatchWork::activity(std::optional<std::uint64_t> batch) const {
  std::vector<std::string> lines;
  const std::int64_t now = steady_nanoseconds();
  for (std::size_t i = 0; i < activities_.size(); ++i) {
    const Activity& activity = activities_[i];
    const std::int64_t since = activity.since.load(std::memory_order_relaxed);
    if (since == 0 || (batch && *batch != activity.batch.load(std::memory_order_relaxed))) continue;
    const std::string who = i == 0 ? "the calling thread" : "reader " + std::to_string(i - 1);
    lines.push_back(who + " has been reading " +
                    sample_label(activity.group.load(std::memory_order_relaxed), activity.index.load(std::memory_order_relaxed)) +
                    " for " + human_duration(static_cast<double>(now - since) * 1e-9));
  }
  return lines;
}

std::string BatchWork::sample_name(std::size_t group, std::int64_t index) const {
  std::string text = "sample " + std::to_string(index);
  if (const std::string& name = datasets_[group].name; !name.empty()) text += " of data set \"" + name + "\"";
  return text;
}

std::string BatchWork::sample_label(std::size_t group, std::int64_t index) const {
  // A reader's group and index are read one after the other: they may belong to two tickets.
  const bool is_one = index >= 0 && index < datasets_[group].source->size();
  const std::string more = is_one ? datasets_[group].source->describe(index) : "";
  return sample_name(group, index) + (more.empty() ? "" : " (" + more + ")");
}

}  // namespace millrace::data::detail
