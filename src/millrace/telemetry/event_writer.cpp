#include <unistd.h>

#include <array>
#include <bit>
#include <cctype>
#include <cstddef>
#include <mutex>
#include <span>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/hash.h"
#include "millrace/base/utf8.h"
#include "millrace/format/log_file.h"
#include "millrace/system/process.h"
#include "millrace/telemetry/run_log.h"

namespace millrace::telemetry {
namespace {

constexpr std::size_t kMostPending = std::size_t{64} << 10U;

// Encodes protocol buffers, as far as events need them (wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes).
class Encoder {
 public:
  void varint(int field, std::uint64_t value) {
    key(field, 0);
    number(value);
  }
  void float64(int field, double value) {
    key(field, 1);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
  }
  void float32(int field, float value) {
    key(field, 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
  }
  void bytes(int field, std::string_view value) {
    key(field, 2);
    number(value.size());
    text_ += value;
  }
  void little_endian(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFFU);
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  void key(int field, int wire_type) { number(static_cast<std::uint64_t>(field << 3 | wire_type)); }
  void number(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) text_ += static_cast<char>(value | 0x80U);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return (crc >> 15U | crc << 17U) + 0xA282EAD8U;
}

// Returns a record in TFRecord's frame: length, its checksum, the bytes, their checksum.
std::string framed(const std::string& record) {
  Encoder head;
  head.little_endian(record.size(), 8);
  Encoder all = head;
  all.little_endian(masked_crc(head.text()), 4);
  Encoder tail;
  tail.little_endian(masked_crc(record), 4);
  return all.text() + record + tail.text();
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary = 5;
// SessionLog session_log = 7; }
std::string event(std::int64_t step, int payload_field, std::string_view payload) {
  Encoder result;
  result.float64(1, unix_seconds());
  if (step != 0) result.varint(2, static_cast<std::uint64_t>(step));
  result.bytes(payload_field, payload);
  return framed(result.text());
}

// message Summary { repeated Value value = 1; } with Value { tag = 1; simple_value = 2; tensor = 8; metadata = 9; }
std::string summary_event(std::int64_t step, const Encoder& value) {
  Encoder summary;
  summary.bytes(1, value.text());
  return event(step, 5, summary.text());
}

// Returns the text as valid UTF-8, because readers reject a whole event if a string in it is not UTF-8.
std::string valid_utf8(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    append_utf8(result, step.code_point);
    at += step.size;
  }
  return result;
}

// Returns this machine's name, in a form for a file name.
std::string host_in_file_name() {
  std::string text = host_name();
  if (text.empty() || text == "?") return "host";
  for (char& c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return text;
}

}  // namespace

struct EventWriter::Impl {
  Impl(Fs& fs, const std::filesystem::path& folder, std::function<void(const std::string&)> warn)
      : base(folder / ("events.out.tfevents." + std::to_string(static_cast<std::int64_t>(unix_seconds())) + "." +
                       host_in_file_name() + "." + std::to_string(::getpid()))),
        file(fs, base, std::move(warn)) {}

  void push(const std::string& record) {
    const std::lock_guard lock(mutex);
    pending += record;
    if (pending.size() >= kMostPending) flush_locked();
  }
  void flush_locked() {
    if (pending.empty()) return;
    if (is_new_file) pending.insert(0, event(0, 3, "brain.Event:2"));
    is_new_file = !file.write(pending);
    if (is_new_file) {
      std::filesystem::path next = base;
      next += "." + std::to_string(file.failures());
      file.move_to(next);
    }
    pending.clear();
  }

  std::mutex mutex;  // guards the members below
  std::filesystem::path base;
  format::LogFile file;
  bool is_new_file = true;
  std::string pending;
};

EventWriter::EventWriter(Fs& fs, const std::filesystem::path& folder, std::function<void(const std::string&)> warn)
    : impl_(std::make_unique<Impl>(fs, folder, std::move(warn))) {}

EventWriter::~EventWriter() { flush(); }

// Writes the event's field 7: message SessionLog { SessionStatus status = 1; } with the status START = 1.
void EventWriter::goes_on_at(std::int64_t step) {
  Encoder log;
  log.varint(1, 1);
  impl_->push(event(step, 7, log.text()));
}

void EventWriter::scalar(std::string_view tag, std::int64_t step, double value) {
  Encoder entry;
  entry.bytes(1, valid_utf8(tag));
  entry.float32(2, static_cast<float>(value));
  impl_->push(summary_event(step, entry));
}

// A tensor of one string (dtype DT_STRING = 7, shape [1]) that the text plug-in shows.
void EventWriter::text(std::string_view tag, std::int64_t step, std::string_view value) {
  Encoder dimension;
  dimension.varint(1, 1);
  Encoder shape;
  shape.bytes(2, dimension.text());
  Encoder tensor;
  tensor.varint(1, 7);
  tensor.bytes(2, shape.text());
  tensor.bytes(8, value);
  Encoder plugin;
  plugin.bytes(1, "text");
  Encoder metadata;
  metadata.bytes(1, plugin.text());
  Encoder entry;
  entry.bytes(1, valid_utf8(tag));
  entry.bytes(8, tensor.text());
  entry.bytes(9, metadata.text());
  impl_->push(summary_event(step, entry));
}

void EventWriter::image(std::string_view tag, std::int64_t step, std::int64_t height, std::int64_t width,
                        std::string_view rgb_png) {
  Encoder image;
  image.varint(1, static_cast<std::uint64_t>(height));
  image.varint(2, static_cast<std::uint64_t>(width));
  image.varint(3, 3);  // the colour space: 3 = RGB
  image.bytes(4, rgb_png);
  Encoder entry;
  entry.bytes(1, valid_utf8(tag));
  entry.bytes(4, image.text());
  impl_->push(summary_event(step, entry));
}

std::string EventWriter::file_name() const { return impl_->base.filename().string(); }

void EventWriter::flush() {
  const std::lock_guard lock(impl_->mutex);
  impl_->flush_locked();
}

}  // namespace millrace::telemetry
