#include <algorithm>
#include <cstring>

#include "millrace/base/format.h"
#include "millrace/data/loader/parts_view.h"
#include "millrace/data/loader/rows.h"
#include "millrace/data/loader/scratch.h"
#include "millrace/data/transforms/compose.h"
#include "millrace/data/transforms/detail/compose.h"

namespace millrace::data {
namespace {

constexpr std::size_t kScratchAlignment = 64;
// Bytes that are read from the inner source at once: few enough to stay in a core's cache.
constexpr std::size_t kBlockBytes = std::size_t{1} << 18U;
// Bytes of the samples that a thread takes at once: fewer than for a plain copy, because a mapping does more work per byte.
constexpr std::size_t kTicketBytes = std::size_t{1} << 16U;

class MapSource final : public Source {
 public:
  MapSource(std::shared_ptr<const Source> source, Mapping mapping);

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return source_->size(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return source_->stamps(); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }
  [[nodiscard]] bool waits() const override { return source_->waits(); }
  [[nodiscard]] std::string describe(std::int64_t index) const override { return source_->describe(index); }
  [[nodiscard]] std::string read_as() const override { return source_->read_as(); }
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override;
  [[nodiscard]] bool looks_ahead() const override { return source_->looks_ahead(); }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override {
    source_->will_need(indices, random.inside());
  }
  [[nodiscard]] Keeps keeps() const override { return view_.wrapped(); }
  [[nodiscard]] std::int64_t parts() const override { return view_.parts(); }
  [[nodiscard]] std::size_t parts_per_sample() const override { return view_.parts_per_sample(); }
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const override {
    view_.parts_of(index, random.inside(), parts);
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override { return view_.part_bytes(part); }
  void load(std::int64_t part, std::span<std::byte> bytes) const override { view_.load(part, bytes); }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override;

 private:
  static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

  void declare_fields();
  void call(std::span<const std::byte* const> in, Rows row, const ReadRandom& random) const;

  std::shared_ptr<const Source> source_;
  Mapping mapping_;
  detail::PartsView view_;
  std::vector<Field> fields_;
  std::vector<std::size_t> field_bytes_;
  std::vector<std::size_t> inner_bytes_;   // bytes of each field of source_
  std::vector<std::size_t> passes_to_;     // for each field of source_: its number among the fields of this source, or kNowhere
  std::vector<std::size_t> inner_offset_;  // for each field that is not passed on: its place in a sample's scratch memory
  std::size_t scratch_bytes_ = 0;          // bytes of the scratch memory of a sample
  std::vector<std::size_t> made_;          // numbers of the made fields: mapping_.makes[m] is fields_[made_[m]]
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
};

MapSource::MapSource(std::shared_ptr<const Source> source, Mapping mapping)
    : source_(detail::required(std::move(source), "map()")), mapping_(std::move(mapping)), view_(source_) {
  if (mapping_.name.empty()) {
    detail::refuse_composing(
        "map() was given a function without a name", "Mapping::name",
        "give a name that says what the function does and how strongly: a run resumes only with the same name");
  }
  if (!mapping_.function && !mapping_.makes.empty()) {
    detail::refuse_composing("map " + quoted(mapping_.name) + " makes fields without a function", "Mapping::function",
                             "give it a function that writes the fields");
  }
  declare_fields();
  field_bytes_ = detail::bytes_of(fields_);
  std::size_t sample_bytes = 1;
  for (std::size_t f = 0; f < inner_bytes_.size(); ++f) {
    sample_bytes += inner_bytes_[f];
    inner_offset_.push_back(scratch_bytes_);
    if (passes_to_[f] == kNowhere) scratch_bytes_ += detail::aligned_to(kScratchAlignment, inner_bytes_[f]);
  }
  for (const std::size_t bytes : field_bytes_) sample_bytes += bytes;
  samples_per_ticket_ = std::clamp<std::int64_t>(static_cast<std::int64_t>(kTicketBytes / sample_bytes), 1,
                                                 std::max<std::int64_t>(1, source_->samples_per_ticket()));
  fingerprint_ = "map " + quoted(mapping_.name) + " to " + detail::text_of(fields_) + " of (" + source_->fingerprint() + ')';
}

void MapSource::declare_fields() {
  const std::span<const Field> inner = source_->fields();
  inner_bytes_ = detail::bytes_of(inner);
  const auto called = [](const std::string& name) { return [&name](const Field& field) { return field.name == name; }; };
  for (const std::string& name : mapping_.drops) (void)field_called(name, inner);
  detail::check_fields(mapping_.makes, "map " + quoted(mapping_.name), "Mapping::makes");
  for (const Field& field : inner) {
    const auto made = std::find_if(mapping_.makes.begin(), mapping_.makes.end(), called(field.name));
    const bool drops = std::find(mapping_.drops.begin(), mapping_.drops.end(), field.name) != mapping_.drops.end();
    const bool passes = made == mapping_.makes.end() && !drops;
    passes_to_.push_back(passes ? fields_.size() : kNowhere);
    if (passes) fields_.push_back(field);
    if (made != mapping_.makes.end()) fields_.push_back(*made);
  }
  for (const Field& field : mapping_.makes) {
    const bool there = std::any_of(fields_.begin(), fields_.end(), called(field.name));
    if (!there) fields_.push_back(field);
    made_.push_back(static_cast<std::size_t>(std::find_if(fields_.begin(), fields_.end(), called(field.name)) - fields_.begin()));
  }
}

// Returns the names of a field's values. Empty for a field that the function makes, because its values differ from those of the
// source's field of that name.
std::vector<std::string> MapSource::value_names(std::string_view field) const {
  const bool made = std::ranges::any_of(mapping_.makes, [&](const Field& one) { return one.name == field; });
  return made ? std::vector<std::string>() : source_->value_names(field);
}

// Calls the function. `row` already holds the fields that are passed on.
void MapSource::call(std::span<const std::byte* const> in, Rows row, const ReadRandom& random) const {
  if (!mapping_.function) return;
  detail::FieldPointers<> out(made_.size());
  for (std::size_t m = 0; m < made_.size(); ++m) out[m] = row.field_data[made_[m]];
  mapping_.function(Sample(source_->fields(), in), MutableSample(mapping_.makes, out.span()), SampleRandom(random));
}

void MapSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  const std::size_t block =
      std::min(indices.size(), std::max<std::size_t>(1, kBlockBytes / std::max<std::size_t>(scratch_bytes_, 1)));
  const detail::Scratch scratch(block * scratch_bytes_);
  detail::FieldPointers<> inner(inner_bytes_.size());
  detail::FieldPointers<const std::byte> in(inner_bytes_.size());
  for (std::size_t begin = 0; begin < indices.size(); begin += block) {
    const std::size_t count = std::min(block, indices.size() - begin);
    const detail::RowAt here(rows, begin, field_bytes_);
    for (std::size_t f = 0; f < inner_bytes_.size(); ++f) {
      inner[f] = passes_to_[f] == kNowhere ? scratch.data() + block * inner_offset_[f] : here.rows().field_data[passes_to_[f]];
    }
    source_->read(indices.subspan(begin, count), {inner.span()}, random.part(begin, count).inside());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t f = 0; f < inner_bytes_.size(); ++f) in[f] = inner[f] + i * inner_bytes_[f];
      call(in.span(), detail::RowAt(here.rows(), i, field_bytes_).rows(), random.part(begin + i, 1));
    }
  }
}

void MapSource::finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
                       const ReadRandom& random) const {
  detail::FieldPointers<const std::byte> in(inner_bytes_.size());
  const std::span<const std::size_t> offsets = view_.field_offsets();
  if (!offsets.empty() || inner_bytes_.empty()) {  // the function reads the fields directly from the part in memory
    for (std::size_t f = 0; f < offsets.size(); ++f) {
      in[f] = parts[0].data() + offsets[f];
      if (passes_to_[f] != kNowhere) std::memcpy(rows.field_data[passes_to_[f]], in[f], inner_bytes_[f]);
    }
    return call(in.span(), rows, random);
  }
  const detail::Scratch scratch(scratch_bytes_);
  detail::FieldPointers<> inner(inner_bytes_.size());
  for (std::size_t f = 0; f < inner_bytes_.size(); ++f) {
    inner[f] = passes_to_[f] == kNowhere ? scratch.data() + inner_offset_[f] : rows.field_data[passes_to_[f]];
    in[f] = inner[f];
  }
  view_.finish(index, parts, {inner.span()}, random.inside());
  call(in.span(), rows, random);
}

}  // namespace

std::shared_ptr<const Source> map(std::shared_ptr<const Source> source, Mapping mapping) {
  return std::make_shared<MapSource>(std::move(source), std::move(mapping));
}

}  // namespace millrace::data
