#include <algorithm>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/data/loader/rows.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/data/transforms/detail/compose.h"

namespace millrace::data {
namespace {

constexpr std::size_t kBytesOfATicket = std::size_t{1} << 16U;  // fewer than for a copy, because a copy is less work per byte

class GeneratedSource final : public Source {
 public:
  GeneratedSource(const std::string& name, std::int64_t size, std::vector<Field> fields, GenerateFunction function,
                  Generated about);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const detail::RowAt row(rows, i, field_bytes_);
      function_(indices[i], MutableSample(fields_, row.rows().field_data), SampleRandom(random.part(i, 1)));
    }
  }
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return stamps_of(about_.files); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    if (about_.describe) return about_.describe(index);
    return has_file_each() ? about_.files[static_cast<std::size_t>(index)].string() : "";
  }
  [[nodiscard]] bool looks_ahead() const override { return has_file_each(); }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept override {
    for (const std::int64_t index : indices) will_need_file(about_.files[static_cast<std::size_t>(index)]);
  }
  [[nodiscard]] Keeps keeps() const override { return about_.keeps; }

 private:
  [[nodiscard]] bool has_file_each() const noexcept {
    return size_ > 0 && about_.files.size() == static_cast<std::size_t>(size_);
  }

  std::int64_t size_;
  std::vector<Field> fields_;
  std::vector<std::size_t> field_bytes_;
  GenerateFunction function_;
  Generated about_;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

GeneratedSource::GeneratedSource(const std::string& name, std::int64_t size, std::vector<Field> fields, GenerateFunction function,
                                 Generated about)
    : size_(size), fields_(std::move(fields)), function_(std::move(function)), about_(std::move(about)) {
  const std::string called = "generate " + quoted(name);
  if (name.empty()) {
    detail::refuse_composing(
        "generate() was given no name", "generate()",
        "give a name that says what the samples are, with seed and version: a run resumes only with the same name");
  }
  if (size < 0 || !function_) {
    detail::refuse_composing(
        size < 0 ? "generate() was asked for " + with_commas(size) + " samples" : "generate() was given no function",
        "generate()", "give it a size of 0 or more, and a function that writes the fields");
  }
  if (about_.keeps == Keeps::parts)
    detail::refuse_composing(called + " says Keeps::parts, but has no parts", "Generated::keeps",
                             "use Keeps::nothing, rows or memory");
  detail::check_fields(fields_, called, "the fields of generate()");
  field_bytes_ = detail::bytes_of(fields_);
  std::size_t sample_bytes = 1;
  for (const std::size_t bytes : field_bytes_) sample_bytes += bytes;
  if (about_.keeps != Keeps::rows)
    samples_per_ticket_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kBytesOfATicket / sample_bytes));
  // An earlier version implemented this source as a map over numbers. The fingerprint keeps the words of that version, so that
  // its snapshots can be resumed.
  fingerprint_ = "map " + quoted(name) + " to " + detail::text_of(fields_) + " of (" + std::to_string(size_) + " numbers)";
}

}  // namespace

std::shared_ptr<const Source> generate(const std::string& name, std::int64_t size, std::vector<Field> fields,
                                       GenerateFunction function, Generated about) {
  return std::make_shared<GeneratedSource>(name, size, std::move(fields), std::move(function), std::move(about));
}

}  // namespace millrace::data
