#include "millrace/data/loader/detail/batch_work.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <stdexcept>

#include "millrace/base/clock.h"
#include "millrace/base/format.h"
#include "millrace/data/loader/detail/reading.h"
#include "millrace/data/loader/detail/thread_usage.h"
#include "millrace/system/machine.h"
#include "millrace/telemetry/spans.h"

namespace millrace::data::detail {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::uint64_t kMaxReplacements = 16;
constexpr std::uint64_t kTicketsAhead = 16;  // the fewest tickets announced ahead: enough requests to keep a disk busy

[[noreturn]] void too_large(const Field& field) {
  throw ConfigError(
      Message{.what = "a batch of field \"" + field.name + "\" " + to_text(field.shape) + " is too large to address",
              .where = "data.batch_size",
              .next = "lower data.batch_size"});
}

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Returns true if the error is about the sample, false if it is about the process or the program.
bool is_about_sample(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const DataError&) {
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::bad_alloc&) {
    return false;
  } catch (...) {
    return true;
  }
}

}  // namespace

BatchWork::BatchWork(std::vector<Dataset> datasets, WorkOptions options, std::shared_ptr<Arena> arena)
    : datasets_(std::move(datasets)), options_(options), arena_(std::move(arena)), order_(datasets_, options_.order) {
  const auto tickets_of = [](std::int64_t rows, std::int64_t each) {
    return static_cast<std::uint64_t>((rows + each - 1) / each);
  };
  rows_per_ticket_ = options_.order.batch_size;
  for (std::size_t group = 0; group < datasets_.size(); ++group) {
    OpenDataset part;
    part.source = datasets_[group].source;
    part.reads = reads_of(*part.source);
    part.seed = order_.seed(group);
    part.rows_per_ticket = std::clamp<std::int64_t>(part.source->samples_per_ticket(), 1, order_.most_rows(group));
    rows_per_ticket_ = std::min(rows_per_ticket_, part.rows_per_ticket);
    part.first_ticket = tickets_;
    if (!order_.mixes()) tickets_ += tickets_of(order_.most_rows(group), part.rows_per_ticket);
    part.end_ticket = tickets_;
    parts_.push_back(std::move(part));
  }
  if (order_.mixes()) tickets_ = tickets_of(options_.order.batch_size, rows_per_ticket_);
  batches_per_epoch_ = static_cast<std::uint64_t>(order_.batches());
  look_ahead_batches_ = (kTicketsAhead + tickets_ - 1) / std::max<std::uint64_t>(tickets_, 1);
  lay_out();
  if (order_.mixes()) lay_out_mix();
}

void BatchWork::lay_out() {
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    OpenDataset& part = parts_[group];
    const auto rows = static_cast<std::size_t>(order_.most_rows(group));
    for (const Field& field : part.source->fields()) {
      const std::size_t row_bytes = field.bytes();
      std::size_t bytes = 0;
      if (__builtin_mul_overflow(row_bytes, rows, &bytes) || bytes > SIZE_MAX - kAlignment) too_large(field);
      part.field_bytes.push_back(row_bytes);
      part.field_offsets.push_back(slot_bytes_);
      if (__builtin_add_overflow(slot_bytes_, aligned(bytes), &slot_bytes_)) too_large(field);
    }
  }
}

// Places the fields of a mix in a slot. In a mix any row may come from any data set, so the place of a group differs from batch
// to batch. Reserves memory as if all rows came from the data set with the widest rows.
void BatchWork::lay_out_mix() {
  std::size_t widest = 0;
  std::size_t fields = 0;
  for (const OpenDataset& part : parts_) {
    widest = std::max(widest, std::accumulate(part.field_bytes.begin(), part.field_bytes.end(), std::size_t{0}));
    fields += part.field_bytes.size();
  }
  // This size is hardly larger than the size of a slot that holds all groups (lay_out()), and often smaller.
  slot_bytes_ = static_cast<std::size_t>(options_.order.batch_size) * widest + fields * kAlignment;
}

std::int64_t BatchWork::samples() const noexcept {
  std::int64_t sum = 0;
  for (const Dataset& dataset : datasets_) sum += dataset.source->size();
  return sum;
}

std::unique_ptr<BatchSlot> BatchWork::make_slot() {
  auto slot = std::make_unique<BatchSlot>(arena_, std::max<std::size_t>(slot_bytes_, kAlignment));
  slot->groups.resize(parts_.size());
  if (order_.mixes()) slot->places.resize(static_cast<std::size_t>(options_.order.batch_size));
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    GroupSlot& here = slot->groups[group];
    for (const std::size_t offset : parts_[group].field_offsets)
      here.data.push_back(order_.mixes() ? slot->memory : slot->memory + offset);
    here.indices.resize(static_cast<std::size_t>(order_.most_rows(group)));
    here.positions.resize(static_cast<std::size_t>(order_.most_rows(group)));
  }
  return slot;
}

void BatchWork::begin(BatchSlot& slot, std::uint64_t batch) noexcept {
  slot.bad.clear();
  if (order_.mixes()) {
    try {
      begin_mix(slot, batch);
    } catch (...) {  // stored in the slot; the error is reported when this batch is delivered
      for (GroupSlot& group : slot.groups) group.rows = 0;
      slot.bad.push_back({.error = std::current_exception(), .failed = {}});
    }
    return;
  }
  const auto in_epoch = static_cast<std::int64_t>(batch % batches_per_epoch_);
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    const RowRange range = order_.rows(group, in_epoch);
    GroupSlot& here = slot.groups[group];
    here.rows = range.count;
    std::iota(here.positions.begin(), here.positions.begin() + range.count, range.first);
  }
}

// Draws the data set of each row, and sets where each group begins.
void BatchWork::begin_mix(BatchSlot& slot, std::uint64_t batch) const {
  const RowRange range = order_.mixed_rows(static_cast<std::int64_t>(batch % batches_per_epoch_));
  const std::span places(slot.places.data(), static_cast<std::size_t>(range.count));
  for (GroupSlot& group : slot.groups) group.rows = 0;
  order_.fill_mixed(batch / batches_per_epoch_, range.first, places);
  for (std::size_t i = 0; i < places.size(); ++i) {
    GroupSlot& here = slot.groups[places[i].group];
    here.indices[static_cast<std::size_t>(here.rows)] = places[i].index;
    here.positions[static_cast<std::size_t>(here.rows++)] = range.first + static_cast<std::int64_t>(i);
  }
  std::size_t offset = 0;
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    GroupSlot& here = slot.groups[group];
    for (std::size_t field = 0; field < here.data.size(); ++field) {
      here.data[field] = slot.memory + offset;
      offset += aligned(static_cast<std::size_t>(here.rows) * parts_[group].field_bytes[field]);
    }
  }
}

void BatchWork::run(BatchSlot& slot, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept {
  if (order_.mixes()) return run_mix(slot, batch, ticket, reader);
  std::size_t group = 0;
  while (ticket >= parts_[group].end_ticket) ++group;
  const OpenDataset& part = parts_[group];
  if (looks_ahead(part)) look_ahead(group, batch + look_ahead_batches_, ticket);
  const std::int64_t first_row = static_cast<std::int64_t>(ticket - part.first_ticket) * part.rows_per_ticket;
  const std::int64_t rows = std::min(part.rows_per_ticket, slot.groups[group].rows - first_row);
  if (rows > 0) read_timed(slot, {part, group, first_row, rows, batch, batch / batches_per_epoch_, reader});
}

// Reads the rows of a ticket, group after group.
void BatchWork::run_mix(BatchSlot& slot, std::uint64_t batch, std::uint64_t ticket, int reader) noexcept {
  if (std::any_of(parts_.begin(), parts_.end(), [this](const OpenDataset& part) { return looks_ahead(part); }))
    look_ahead_in_mix(batch + look_ahead_batches_, ticket);
  const std::int64_t first = static_cast<std::int64_t>(ticket) * rows_per_ticket_;
  std::int64_t begin = 0;
  for (std::size_t group = 0; group < parts_.size(); ++group) {
    const std::int64_t rows = slot.groups[group].rows;
    const std::int64_t from = std::max<std::int64_t>(first - begin, 0);
    const std::int64_t to = std::min(first + rows_per_ticket_ - begin, rows);
    if (from < to) read_timed(slot, {parts_[group], group, from, to - from, batch, batch / batches_per_epoch_, reader});
    begin += rows;
  }
}

void BatchWork::read_timed(BatchSlot& slot, const Block& block) noexcept {
  Activity& activity = activity_of(block.reader);
  const std::int64_t began = steady_nanoseconds();
  const double cpu_began = this_thread_cpu_seconds();
  activity.group.store(block.group, std::memory_order_relaxed);
  activity.batch.store(block.batch, std::memory_order_relaxed);
  activity.since.store(began, std::memory_order_relaxed);
  (void)take_kept_sample();  // clears the flag of note_kept_sample(), which an earlier, untimed read may have set
  try {
    read_block(slot, block);
  } catch (...) {  // memory ran out while an error was stored, or weights are invalid
    const std::lock_guard lock(slot.mutex);
    slot.bad.push_back(
        {.group = block.group, .row = block.first_row, .reader = block.reader, .error = std::current_exception(), .failed = {}});
  }
  activity.since.store(0, std::memory_order_relaxed);
  const std::int64_t passed = steady_nanoseconds() - began;
  activity.read_nanoseconds.fetch_add(passed, std::memory_order_relaxed);
  activity.cpu_nanoseconds.fetch_add(static_cast<std::int64_t>((this_thread_cpu_seconds() - cpu_began) * 1e9),
                                     std::memory_order_relaxed);
  if (!take_kept_sample()) {
    slow_reads_.note(passed, block.rows, [&] {
      return block.part.source->describe(slot.groups[block.group].indices[static_cast<std::size_t>(block.first_row)]);
    });
  }
  // Two readers that share an entry may overwrite each other's value, which is acceptable for a measurement.
  if (passed > activity.slowest_nanoseconds.load(std::memory_order_relaxed)) {
    activity.slowest_nanoseconds.store(passed, std::memory_order_relaxed);
  }
}

bool BatchWork::looks_ahead(const OpenDataset& part) const { return options_.looks_ahead && part.source->looks_ahead(); }

void BatchWork::announce(const OpenDataset& part, std::span<const std::int64_t> indices, const ReadRandom& random) noexcept {
  static const telemetry::Counter taken("look_ahead");
  taken.add(1);
  part.source->will_need(indices, random);
}

// Announces later reads. The order is a function of the position, so these reads are known without a list. Ticket n of a batch
// announces ticket n of the batch that comes a fixed number of batches later, so no read is announced twice.
void BatchWork::look_ahead(std::size_t group, std::uint64_t batch, std::uint64_t ticket) const noexcept {
  const OpenDataset& part = parts_[group];
  const RowRange range = order_.rows(group, static_cast<std::int64_t>(batch % batches_per_epoch_));
  const std::int64_t first_row = static_cast<std::int64_t>(ticket - part.first_ticket) * part.rows_per_ticket;
  const std::uint64_t epoch = batch / batches_per_epoch_;
  std::array<std::int64_t, 64> indices{};
  std::array<std::int64_t, 64> positions{};
  const std::int64_t end = std::min(first_row + part.rows_per_ticket, range.count);
  for (std::int64_t row = first_row; row < end; row += static_cast<std::int64_t>(indices.size())) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(end - row, indices.size()));
    try {
      order_.fill(group, epoch, range.first + row, {indices.data(), count});
    } catch (...) {
      return;  // the read itself will report the error
    }
    std::iota(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(count), range.first + row);
    announce(part, {indices.data(), count}, ReadRandom(part.seed, epoch, {positions.data(), count}));
  }
}

void BatchWork::look_ahead_in_mix(std::uint64_t batch, std::uint64_t ticket) const noexcept {
  const RowRange range = order_.mixed_rows(static_cast<std::int64_t>(batch % batches_per_epoch_));
  const std::uint64_t epoch = batch / batches_per_epoch_;
  const std::int64_t first_row = static_cast<std::int64_t>(ticket) * rows_per_ticket_;
  std::array<MixedRow, 64> places{};
  const std::int64_t end = std::min(first_row + rows_per_ticket_, range.count);
  for (std::int64_t row = first_row; row < end; row += static_cast<std::int64_t>(places.size())) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(end - row, places.size()));
    try {
      order_.fill_mixed(epoch, range.first + row, {places.data(), count});
    } catch (...) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const OpenDataset& part = parts_[places[i].group];
      const std::int64_t position = range.first + row + static_cast<std::int64_t>(i);
      if (looks_ahead(part)) announce(part, {&places[i].index, 1}, ReadRandom(part.seed, epoch, {&position, 1}));
    }
  }
}

void BatchWork::read_block(BatchSlot& slot, const Block& block) {
  GroupSlot& here = slot.groups[block.group];
  const std::span indices(here.indices.data() + block.first_row, static_cast<std::size_t>(block.rows));
  if (!order_.mixes()) order_.fill(block.group, block.epoch, here.positions[static_cast<std::size_t>(block.first_row)], indices);

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
  // Reads the rows one by one, so that a bad row does not affect the other rows of the block.
  for (std::int64_t row = block.first_row; row < block.first_row + block.rows; ++row) {
    read_one(slot, block, row, block.rows == 1 ? error : nullptr);
  }
}

void BatchWork::read_rows(BatchSlot& slot, const Block& block, std::span<const std::int64_t> indices,
                          std::int64_t first_row) const {
  const GroupSlot& here = slot.groups[block.group];
  const OpenDataset& part = block.part;
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
  const Reading reading{part.reads, datasets_[block.group].name, indices, block.batch % batches_per_epoch_, block.epoch};
  const ForeignCall foreign(&Reading::describe, &reading);
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

// Replaces a bad row. The replacement depends only on seed, epoch, position and attempt, so it is the same for any number of
// readers and after a resume.
void BatchWork::replace(BatchSlot& slot, const Block& block, BadRow& bad) const {
  GroupSlot& here = slot.groups[block.group];
  const auto row = static_cast<std::size_t>(bad.row);
  const auto position = static_cast<std::uint64_t>(here.positions[row]);
  for (std::uint64_t attempt = 1; attempt <= kMaxReplacements; ++attempt) {
    const std::int64_t index = order_.replacement(block.group, block.epoch, position, attempt);
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

double BatchWork::read_cpu_seconds() const noexcept {
  std::int64_t sum = 0;
  for (const Activity& activity : activities_) sum += activity.cpu_nanoseconds.load(std::memory_order_relaxed);
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
  // activity() reads group and index from two atomics, one after the other. The two values may belong to different samples, so
  // the index is checked.
  const bool is_one = index >= 0 && index < datasets_[group].source->size();
  const std::string more = is_one ? datasets_[group].source->describe(index) : "";
  return sample_name(group, index) + (more.empty() ? "" : " (" + more + ")");
}

namespace {

// Removes the bad rows of a group and moves later rows up.
void drop_rows(GroupSlot& group, std::span<const Field> fields, const std::vector<std::int64_t>& rows) {
  std::int64_t kept = rows.front();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t from = rows[i] + 1;
    const std::int64_t end = i + 1 < rows.size() ? rows[i + 1] : group.rows;
    const auto count = static_cast<std::size_t>(end - from);
    for (std::size_t f = 0; f < fields.size(); ++f) {
      const std::size_t bytes = fields[f].bytes();
      std::memmove(group.data[f] + static_cast<std::size_t>(kept) * bytes, group.data[f] + static_cast<std::size_t>(from) * bytes,
                   count * bytes);
    }
    std::copy(group.indices.begin() + from, group.indices.begin() + end, group.indices.begin() + kept);
    std::copy(group.positions.begin() + from, group.positions.begin() + end, group.positions.begin() + kept);
    kept += end - from;
  }
  group.rows = kept;
}

}  // namespace

void BatchWork::drop_bad(BatchSlot& slot) const {
  for (std::size_t group = 0; group < slot.groups.size(); ++group) {
    std::vector<std::int64_t> rows;
    for (const BadRow& bad : slot.bad) {
      if (bad.group == group && !bad.replaced && bad.row < slot.groups[group].rows) rows.push_back(bad.row);
    }
    if (!rows.empty()) drop_rows(slot.groups[group], datasets_[group].source->fields(), rows);
  }
}

Message reason_of(const BadRow& bad, const std::string& sample) {
  if (!bad.error) return {.what = sample + " is in quarantine and no replacement could be read", .where = "", .next = ""};
  try {
    std::rethrow_exception(bad.error);
  } catch (const DataError& error) {
    return error.message();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::logic_error& error) {  // thrown by vector::at() and similar functions, not by checks of files
    return {.what = sample + " can't be read: the code of its source failed: " + error.what(),
            .where = "",
            .next =
                "look in read() of the source for an index, a name or a number that is out of range; if the file is at fault, "
                "throw a DataError (base/error.h) that names the file"};
  } catch (const std::exception& error) {
    return {.what = sample + " can't be read: " + error.what(), .where = "", .next = ""};
  } catch (...) {
    return {.what = sample + " can't be read: its source threw something that is not a std::exception",
            .where = "",
            .next = "throw a DataError (base/error.h) that names the file and the sample"};
  }
}

std::uint64_t usual_buffer(std::uint64_t slot_bytes) {
  constexpr std::uint64_t kUsual = 1ULL << 30U;
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  std::uint64_t half = pages / 2 * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  // Uses at most half of a control group's limit, because beyond the limit the kernel ends the process without a message.
  if (const auto limit = Machine().memory_limit()) half = std::min(half, *limit / 2);
  return std::max(std::min(kUsual, half), slot_bytes > half / 3 ? half : 3 * slot_bytes);
}

}  // namespace millrace::data::detail
