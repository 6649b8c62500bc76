#include "millrace/data/transforms/compose.h"

#include <algorithm>
#include <array>
#include <limits>

#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/data/loader/parts_view.h"
#include "millrace/data/loader/rows.h"
#include "millrace/data/transforms/detail/compose.h"

namespace millrace::data {
namespace {

using detail::refuse_composing;

// A source whose sample i is sample indices[i] of another source. If there are no indices, sample i is sample i % size of the
// other source.
class SelectedSource final : public Source {
 public:
  // `caller`: the function that selects, such as "subset()", for messages. `text`: what this source adds to the fingerprint.
  SelectedSource(std::shared_ptr<const Source> source, std::int64_t size, std::vector<std::int64_t> indices, std::string caller,
                 std::string text);

  [[nodiscard]] std::span<const Field> fields() const override { return source_->fields(); }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    std::vector<std::int64_t> inside(indices.size());
    std::transform(indices.begin(), indices.end(), inside.begin(), [this](std::int64_t index) { return inner(index); });
    source_->read(inside, rows, random);
  }
  [[nodiscard]] std::string fingerprint() const override { return text_ + " of (" + source_->fingerprint() + ')'; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override { return source_->stamps(); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return source_->samples_per_ticket(); }
  [[nodiscard]] bool waits() const override { return source_->waits(); }
  [[nodiscard]] std::string describe(std::int64_t index) const override {
    std::string text = source_->describe(inner(index));
    if (text.empty() && inner(index) != index) text = "sample " + std::to_string(inner(index)) + " before " + caller_;
    return text;
  }
  [[nodiscard]] std::string read_as() const override { return source_->read_as(); }
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override {
    return source_->value_names(field);
  }
  [[nodiscard]] bool looks_ahead() const override { return source_->looks_ahead(); }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override {
    detail::in_blocks(
        indices, [this](std::int64_t index) { return inner(index); },
        [&](std::span<const std::int64_t> some, std::size_t begin) {
          source_->will_need(some, random.part(begin, some.size()));
        });
  }
  [[nodiscard]] Keeps keeps() const override { return view_.wrapped(); }
  [[nodiscard]] std::int64_t parts() const override {
    return used_.empty() ? view_.parts() : static_cast<std::int64_t>(used_.size());
  }
  [[nodiscard]] std::size_t parts_per_sample() const override { return view_.parts_per_sample(); }
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const override {
    view_.parts_of(inner(index), random, parts);
    if (used_.empty()) return;
    for (std::int64_t& part : parts) part = std::lower_bound(used_.begin(), used_.end(), part) - used_.begin();
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override { return view_.part_bytes(inner_part(part)); }
  void load(std::int64_t part, std::span<std::byte> bytes) const override { view_.load(inner_part(part), bytes); }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override {
    view_.finish(inner(index), parts, rows, random);
  }

 private:
  [[nodiscard]] std::int64_t inner(std::int64_t index) const {
    return indices_.empty() ? index % inner_size_ : indices_[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::int64_t inner_part(std::int64_t part) const {
    return used_.empty() ? part : used_[static_cast<std::size_t>(part)];
  }
  void find_used_parts();

  std::shared_ptr<const Source> source_;
  detail::PartsView view_;
  std::int64_t inner_size_;
  std::int64_t size_;
  std::vector<std::int64_t> indices_;
  std::vector<std::int64_t> used_;  // the parts of source_ that the selected samples use, sorted; empty: any part may be used
  std::string caller_;
  std::string text_;
};

SelectedSource::SelectedSource(std::shared_ptr<const Source> source, std::int64_t size, std::vector<std::int64_t> indices,
                               std::string caller, std::string text)
    : source_(std::move(source)),
      view_(source_),
      inner_size_(source_->size()),
      size_(size),
      indices_(std::move(indices)),
      caller_(std::move(caller)),
      text_(std::move(text)) {
  if (view_.keeps() && (!indices_.empty() || size_ < inner_size_)) find_used_parts();
}

// Lists the parts that are used. If parts are drawn at random, any part of the source may be used, so the list stays empty.
void SelectedSource::find_used_parts() {
  constexpr std::int64_t kPosition = 0;
  std::array<std::int64_t, kMostParts> numbers{};
  const std::span<std::int64_t> parts(numbers.data(), std::min(kMostParts, view_.parts_per_sample()));
  bool drawn = false;
  for (std::int64_t index = 0; index < size_ && !drawn; ++index) {
    view_.parts_of(inner(index), ReadRandom(0, 0, {&kPosition, 1}).watched(drawn), parts);
    used_.insert(used_.end(), parts.begin(), parts.end());
  }
  std::sort(used_.begin(), used_.end());
  used_.erase(std::unique(used_.begin(), used_.end()), used_.end());
  if (drawn) used_.clear();
  used_.shrink_to_fit();
}

class ConcatSource final : public Source {
 public:
  explicit ConcatSource(std::vector<std::shared_ptr<const Source>> sources);

  [[nodiscard]] std::span<const Field> fields() const override { return sources_.front()->fields(); }
  [[nodiscard]] std::int64_t size() const override { return first_.back(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  [[nodiscard]] std::string fingerprint() const override {
    return "concat of (" +
           joined(sources_, "), (", [](const std::shared_ptr<const Source>& source) { return source->fingerprint(); }) + ')';
  }
  [[nodiscard]] std::vector<FileStamp> stamps() const override;
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return least_of(&Source::samples_per_ticket); }
  [[nodiscard]] bool waits() const override { return any_of(&Source::waits); }
  [[nodiscard]] std::string describe(std::int64_t index) const override;
  [[nodiscard]] std::string read_as() const override;
  [[nodiscard]] std::vector<std::string> value_names(std::string_view field) const override;
  [[nodiscard]] bool looks_ahead() const override { return any_of(&Source::looks_ahead); }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;
  [[nodiscard]] Keeps keeps() const override {
    const auto any = [this](Keeps what) {
      return std::any_of(views_.begin(), views_.end(), [what](const detail::PartsView& view) { return view.wrapped() == what; });
    };
    return any(Keeps::parts) ? Keeps::parts : any(Keeps::nothing) ? Keeps::nothing : Keeps::memory;
  }
  [[nodiscard]] std::int64_t parts() const override { return first_part_.back(); }
  [[nodiscard]] std::size_t parts_per_sample() const override { return parts_per_sample_; }
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const override;
  [[nodiscard]] std::size_t part_bytes(std::int64_t part) const override;
  void load(std::int64_t part, std::span<std::byte> bytes) const override;
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override;

 private:
  void check_fields() const;
  // Returns the number of the source that holds sample (or part) number `index`; `first` has the first number of each source.
  [[nodiscard]] static std::size_t at(const std::vector<std::int64_t>& first, std::int64_t index) {
    return static_cast<std::size_t>(std::upper_bound(first.begin(), first.end(), index) - first.begin()) - 1;
  }
  // For each run of indices of the same source, calls use(source, indices in that source, place of the run in `indices`).
  template <class Use>
  void in_runs(std::span<const std::int64_t> indices, Use use) const;
  [[nodiscard]] bool any_of(bool (Source::*property)() const) const {
    return std::any_of(sources_.begin(), sources_.end(), [property](const auto& source) { return (*source.*property)(); });
  }
  [[nodiscard]] std::int64_t least_of(std::int64_t (Source::*property)() const) const {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const auto& source : sources_) least = std::min(least, (*source.*property)());
    return least;
  }

  std::vector<std::shared_ptr<const Source>> sources_;
  std::vector<detail::PartsView> views_;
  std::vector<std::size_t> field_bytes_;
  std::vector<std::int64_t> first_{0};  // index of each source's first sample; the last element is the number of all samples
  // Part 0 is one byte without meaning. A sample lists part 0 in place of parts that it lacks, because its source keeps nothing
  // or has fewer parts per sample than another source.
  std::vector<std::int64_t> first_part_{1};
  std::size_t parts_per_sample_ = 1;
};

ConcatSource::ConcatSource(std::vector<std::shared_ptr<const Source>> sources) : sources_(std::move(sources)) {
  if (sources_.empty()) refuse_composing("concat() was given no source", "concat()", "give it one or more");
  for (const auto& source : sources_) {
    (void)detail::required(source, "concat()");
    views_.emplace_back(source);
    const bool keeps = views_.back().keeps();
    std::int64_t end = 0;
    if (__builtin_add_overflow(first_.back(), source->size(), &end))
      refuse_composing("concat() has more samples than can be numbered", "concat()", "give it fewer sources");
    first_.push_back(end);
    first_part_.push_back(first_part_.back() + (keeps ? views_.back().parts() : 0));
    if (keeps) parts_per_sample_ = std::max(parts_per_sample_, views_.back().parts_per_sample());
  }
  check_fields();
  field_bytes_ = detail::bytes_of(fields());
}

std::string type_text(const Field& field) { return std::string(name_of(field.dtype)) + ' ' + to_text(field.shape); }

void ConcatSource::check_fields() const {
  const std::span<const Field> expected = fields();
  const std::string next = "give concat() sources with the same fields; data::map can change them";
  for (std::size_t s = 1; s < sources_.size(); ++s) {
    const std::span<const Field> here = sources_[s]->fields();
    const std::string number = std::to_string(s + 1);
    for (std::size_t f = 0; f < std::max(expected.size(), here.size()); ++f) {
      if (f < expected.size() && f < here.size() && expected[f] == here[f]) continue;
      std::string what;
      if (f >= here.size()) {
        what = "source " + number + " has no field " + quoted(expected[f].name) + ", but source 1 has one";
      } else if (f >= expected.size()) {
        what = "source " + number + " has a field " + quoted(here[f].name) + ", but source 1 has none";
      } else if (expected[f].name != here[f].name) {
        what = "field " + std::to_string(f + 1) + " is " + quoted(here[f].name) + " in source " + number + " and " +
               quoted(expected[f].name) + " in source 1";
      } else {
        what = "field " + quoted(here[f].name) + " is " + type_text(here[f]) + " in source " + number + " and " +
               type_text(expected[f]) + " in source 1";
      }
      refuse_composing(std::move(what), "concat() of " + std::to_string(sources_.size()) + " sources", next);
    }
  }
}

template <class Use>
void ConcatSource::in_runs(std::span<const std::int64_t> indices, Use use) const {
  std::size_t begin = 0;
  while (begin < indices.size()) {
    const std::size_t source = at(first_, indices[begin]);
    std::size_t end = begin + 1;
    while (end < indices.size() && indices[end] >= first_[source] && indices[end] < first_[source + 1]) ++end;
    use(source, indices.subspan(begin, end - begin), begin);
    begin = end;
  }
}

void ConcatSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const {
  std::vector<std::int64_t> inside(indices.begin(), indices.end());
  in_runs(indices, [&](std::size_t source, std::span<const std::int64_t> run, std::size_t begin) {
    const std::span<std::int64_t> some = std::span(inside).subspan(begin, run.size());
    for (std::int64_t& index : some) index -= first_[source];
    sources_[source]->read(some, detail::RowAt(rows, begin, field_bytes_).rows(), random.part(begin, run.size()));
  });
}

void ConcatSource::will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept {
  in_runs(indices, [&](std::size_t source, std::span<const std::int64_t> run, std::size_t first) {
    detail::in_blocks(
        run, [&](std::int64_t index) { return index - first_[source]; },
        [&](std::span<const std::int64_t> some, std::size_t begin) {
          sources_[source]->will_need(some, random.part(first + begin, some.size()));
        });
  });
}

// Returns the stamps of all sources. If several sources have files, the names begin with the number of the source, because two
// sources may have files of the same name in different folders.
std::vector<FileStamp> ConcatSource::stamps() const {
  std::vector<std::vector<FileStamp>> each;
  each.reserve(sources_.size());
  for (const auto& source : sources_) each.push_back(source->stamps());
  const bool several = std::count_if(each.begin(), each.end(), [](const auto& stamps) { return !stamps.empty(); }) > 1;
  std::vector<FileStamp> all;
  for (std::size_t s = 0; s < each.size(); ++s) {
    for (FileStamp& stamp : each[s]) {
      if (several) stamp.name = "source " + std::to_string(s + 1) + '/' + stamp.name;
      all.push_back(std::move(stamp));
    }
  }
  return all;
}

std::string ConcatSource::describe(std::int64_t index) const {
  const std::size_t source = at(first_, index);
  std::string text = sources_[source]->describe(index - first_[source]);
  if (text.empty() && source > 0)
    text = "sample " + std::to_string(index - first_[source]) + " of source " + std::to_string(source + 1) + " of concat()";
  return text;
}

std::string ConcatSource::read_as() const {
  std::vector<std::string> texts;
  for (const auto& source : sources_) {
    std::string text = source->read_as();
    if (!text.empty() && std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return joined(texts, "; ");
}

// Returns the names of the values; empty if the sources disagree, because a number then means something different in each
// source.
std::vector<std::string> ConcatSource::value_names(std::string_view field) const {
  std::vector<std::string> names = sources_.front()->value_names(field);
  const bool agree = std::ranges::all_of(sources_, [&](const auto& source) { return source->value_names(field) == names; });
  return agree ? names : std::vector<std::string>();
}

void ConcatSource::parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const {
  const std::size_t source = at(first_, index);
  const detail::PartsView& view = views_[source];
  std::fill(parts.begin(), parts.end(), 0);
  if (!view.keeps()) return;
  const std::span<std::int64_t> own = parts.first(view.parts_per_sample());
  view.parts_of(index - first_[source], random, own);
  for (std::int64_t& part : own) part += first_part_[source];
}

std::size_t ConcatSource::part_bytes(std::int64_t part) const {
  if (part == 0) return 1;
  const std::size_t source = at(first_part_, part);
  return views_[source].part_bytes(part - first_part_[source]);
}

void ConcatSource::load(std::int64_t part, std::span<std::byte> bytes) const {
  if (part == 0) {
    bytes[0] = std::byte{0};
    return;
  }
  const std::size_t source = at(first_part_, part);
  views_[source].load(part - first_part_[source], bytes);
}

void ConcatSource::finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
                          const ReadRandom& random) const {
  const std::size_t source = at(first_, index);
  const std::int64_t inside = index - first_[source];
  if (!views_[source].keeps()) return sources_[source]->read({&inside, 1}, rows, random);
  views_[source].finish(inside, parts.first(views_[source].parts_per_sample()), rows, random);
}

std::string size_text(std::int64_t count) { return with_commas(count) + (count == 1 ? " sample" : " samples"); }

std::shared_ptr<const Source> chosen(std::shared_ptr<const Source> source, std::vector<std::int64_t> indices,
                                     const std::string& caller, const std::string& text) {
  const auto size = static_cast<std::int64_t>(indices.size());
  return std::make_shared<SelectedSource>(std::move(source), size, std::move(indices), caller, text);
}

}  // namespace

std::shared_ptr<const Source> subset(std::shared_ptr<const Source> source, std::vector<std::int64_t> indices) {
  source = detail::required(std::move(source), "subset()");
  if (indices.empty()) refuse_composing("the list of samples is empty", "subset()", "name one sample or more");
  const auto outside = [&](std::int64_t index) { return index < 0 || index >= source->size(); };
  if (const auto bad = std::find_if(indices.begin(), indices.end(), outside); bad != indices.end()) {
    refuse_composing("there is no sample " + std::to_string(*bad) + ": the source has " + size_text(source->size()) +
                         ", the first is sample 0",
                     "subset(), place " + std::to_string(bad - indices.begin()) + " of the list",
                     "name samples that the source has");
  }
  Sha256 digest;
  digest.update(std::as_bytes(std::span(indices)));
  const std::string text = "subset of " + std::to_string(indices.size()) + " samples sha256 " + digest.hex().substr(0, 16);
  return chosen(std::move(source), std::move(indices), "subset()", text);
}

std::shared_ptr<const Source> random_subset(std::shared_ptr<const Source> source, const Fraction& fraction) {
  source = detail::required(std::move(source), "random_subset()");
  const std::string range = lasting(fraction.from, 9) + " to " + lasting(fraction.to, 9);
  if (!(fraction.from >= 0 && fraction.from < fraction.to && fraction.to <= 1)) {
    refuse_composing("a fraction from " + range + " has no samples", "random_subset()",
                     "give a range within 0 and 1 whose end is above its beginning");
  }
  std::vector<std::int64_t> indices;
  for (std::int64_t index = 0; index < source->size(); ++index) {
    const double place = Philox(make_key(fraction.seed, static_cast<std::uint64_t>(index))).uniform();
    if (place >= fraction.from && place < fraction.to) indices.push_back(index);
  }
  const std::string text = "fraction " + range + " by seed " + std::to_string(fraction.seed);
  if (indices.empty() && source->size() > 0) {
    refuse_composing("no sample of " + with_commas(source->size()) + " falls into the fraction from " + range, "random_subset()",
                     "give a wider range, or choose samples by a list");
  }
  return chosen(std::move(source), std::move(indices), "random_subset()", text);
}

std::shared_ptr<const Source> take(std::shared_ptr<const Source> source, std::int64_t count) {
  source = detail::required(std::move(source), "take()");
  if (count < 1) refuse_composing("take() was asked for " + size_text(count), "take()", "take 1 or more");
  const std::int64_t size = std::min(count, source->size());
  return std::make_shared<SelectedSource>(std::move(source), size, std::vector<std::int64_t>{}, "take()",
                                          "first " + size_text(size));
}

std::shared_ptr<const Source> repeat(std::shared_ptr<const Source> source, std::int64_t times) {
  source = detail::required(std::move(source), "repeat()");
  std::int64_t size = 0;
  if (times < 1 || __builtin_mul_overflow(times, source->size(), &size)) {
    refuse_composing("repeat() was asked for " + with_commas(times) + " passes over " + size_text(source->size()), "repeat()",
                     "repeat at least once, and take fewer passes if a 64-bit number can't count all samples");
  }
  return std::make_shared<SelectedSource>(std::move(source), size, std::vector<std::int64_t>{}, "repeat()",
                                          std::to_string(times) + " times");
}

std::shared_ptr<const Source> concat(std::vector<std::shared_ptr<const Source>> sources) {
  return std::make_shared<ConcatSource>(std::move(sources));
}

}  // namespace millrace::data
