// Compares random trees of sources with a plain reference, which computes samples one by one from the definition.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "millrace/data/cache/cached_source.h"
#include "millrace/data/sources/memory_source.h"
#include "millrace/data/transforms/compose.h"
#include "tests/support/test_sources.h"

namespace millrace::data {
namespace {

using Values = std::array<std::int64_t, 2>;  // the values of the fields "a" and "b"

// Selects the random numbers of a sample. A map increases `depth` for its inner source.
struct Draws {
  std::uint64_t epoch = 0;
  std::int64_t position = 0;
  int depth = 0;
  [[nodiscard]] Philox stream(std::uint64_t operation) const {
    ReadRandom random(99, epoch, {&position, 1});
    for (int i = 0; i < depth; ++i) random = random.inside();
    return random(0, operation);
  }
};

// A tree of sources and its reference.
struct Tree {
  std::shared_ptr<const Source> source;
  std::int64_t size = 0;
  std::function<Values(std::int64_t index, const Draws& draws)> sample;
  std::string text;
};

// A source with a = begin + index. With Keeps::rows, b = index. Otherwise b combines a random number of the sample with the
// second of its two parts, which some sources draw and others fix by the index.
class Leaf final : public Source {
 public:
  Leaf(std::int64_t begin, std::int64_t size, Keeps keeps) : begin_(begin), size_(size), keeps_(keeps) {}
  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  [[nodiscard]] std::string fingerprint() const override { return "leaf " + std::to_string(begin_); }
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return 3; }
  [[nodiscard]] Keeps keeps() const override { return keeps_; }
  // `stream(operation)`: a random stream of the sample.
  template <class Stream>
  [[nodiscard]] Values sample(std::int64_t index, Stream stream) const {
    if (keeps_ == Keeps::rows) return {begin_ + index, index};
    return {begin_ + index, static_cast<std::int64_t>(stream(0)()) * 64 + second_part(index, stream)};
  }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override {
    for (std::size_t i = 0; i < indices.size(); ++i) {
      write(sample(indices[i], [&](std::uint64_t operation) { return random(i, operation); }), rows, i);
    }
  }
  [[nodiscard]] std::int64_t parts() const override { return size_ + 3; }
  [[nodiscard]] std::size_t parts_per_sample() const override { return 2; }
  void parts_of(std::int64_t index, const ReadRandom& random, std::span<std::int64_t> parts) const override {
    parts[0] = index;
    parts[1] = second_part(index, [&](std::uint64_t operation) { return random(0, operation); });
  }
  [[nodiscard]] std::size_t part_bytes(std::int64_t) const override { return 8; }
  void load(std::int64_t part, std::span<std::byte> bytes) const override { std::memcpy(bytes.data(), &part, 8); }
  void finish(std::int64_t index, std::span<const std::span<const std::byte>> parts, Rows rows,
              const ReadRandom& random) const override {
    Values loaded{};
    for (std::size_t p = 0; p < 2; ++p) std::memcpy(&loaded[p], parts[p].data(), 8);
    EXPECT_EQ(loaded[0], index);
    write({begin_ + loaded[0], static_cast<std::int64_t>(random(0)()) * 64 + loaded[1]}, rows, 0);
  }

 private:
  template <class Stream>
  [[nodiscard]] std::int64_t second_part(std::int64_t index, Stream stream) const {
    return size_ + (begin_ % 2 == 0 ? index % 3 : static_cast<std::int64_t>(stream(1).below(3)));
  }
  static void write(const Values& values, Rows rows, std::size_t i) {
    for (std::size_t f = 0; f < 2; ++f) std::memcpy(rows.row(f, i, 8), &values[f], 8);
  }

  std::int64_t begin_, size_;
  Keeps keeps_;
  std::vector<Field> fields_ = {{"a", DType::i64, {}}, {"b", DType::i64, {}}};
};

Tree leaf(Philox& draw) {
  const auto size = static_cast<std::int64_t>(1 + draw.below(12));
  const auto keeps = static_cast<Keeps>(draw.below(3));
  const auto source = std::make_shared<Leaf>(static_cast<std::int64_t>(draw.below(1000)), size, keeps);
  return {source, size,
          [source](std::int64_t index, const Draws& draws) {
            return source->sample(index, [&](std::uint64_t operation) { return draws.stream(operation); });
          },
          "leaf(" + std::to_string(size) + ", " + std::to_string(static_cast<int>(keeps)) + ")"};
}

Tree mapped(const Tree& inner, Philox& draw) {
  const auto factor = static_cast<std::int64_t>(1 + draw.below(5));
  const bool both = draw.below(2) == 1;
  Mapping mapping{.name = "scaled",
                  .makes = {{"a", DType::i64, {}}},
                  .function = [=](const Sample& in, const MutableSample& out, const SampleRandom& random) {
                    const std::int64_t a = in.values<std::int64_t>("a")[0];
                    const std::int64_t b = in.values<std::int64_t>("b")[0];
                    out.values<std::int64_t>("a")[0] = a * factor + b % 1000 + random()() % 7;
                    if (both) out.values<std::int64_t>("b")[0] = b + 1;
                  }};
  if (both) mapping.makes.push_back({"b", DType::i64, {}});
  return {map(inner.source, std::move(mapping)), inner.size,
          [=](std::int64_t index, const Draws& draws) {
            Draws inside = draws;
            ++inside.depth;
            const Values from = inner.sample(index, inside);
            return Values{from[0] * factor + from[1] % 1000 + draws.stream(0)() % 7, from[1] + (both ? 1 : 0)};
          },
          "map(" + inner.text + ")"};
}

Tree chosen_from(const Tree& inner, Philox& draw) {
  std::vector<std::int64_t> indices(1 + draw.below(15));
  for (std::int64_t& index : indices) index = static_cast<std::int64_t>(draw.below(static_cast<std::uint64_t>(inner.size)));
  return {subset(inner.source, indices), static_cast<std::int64_t>(indices.size()),
          [=](std::int64_t index, const Draws& draws) { return inner.sample(indices[static_cast<std::size_t>(index)], draws); },
          "subset(" + inner.text + ")"};
}

Tree grown(Philox& draw, int depth);

Tree joined_trees(Philox& draw, int depth) {
  std::vector<Tree> trees;
  std::vector<std::shared_ptr<const Source>> sources;
  std::int64_t size = 0;
  std::string text;
  for (std::uint64_t i = 0; i <= draw.below(3); ++i) {
    trees.push_back(grown(draw, depth - 1));
    sources.push_back(trees.back().source);
    size += trees.back().size;
    text += (i == 0 ? "" : ", ") + trees.back().text;
  }
  return {concat(sources), size,
          [trees](std::int64_t index, const Draws& draws) {
            std::size_t tree = 0;
            while (index >= trees[tree].size) index -= trees[tree++].size;
            return trees[tree].sample(index, draws);
          },
          "concat(" + text + ")"};
}

Tree grown(Philox& draw, int depth) {
  if (depth == 0) return leaf(draw);
  const std::uint64_t kind = draw.below(6);
  if (kind == 0) return leaf(draw);
  if (kind == 1) return joined_trees(draw, depth);
  const Tree inner = grown(draw, depth - 1);
  if (kind == 2) return mapped(inner, draw);
  if (kind == 3) return chosen_from(inner, draw);
  const auto count = static_cast<std::int64_t>(1 + draw.below(kind == 4 ? 20 : 3));
  const auto same = [=](std::int64_t index, const Draws& draws) { return inner.sample(index % inner.size, draws); };
  if (kind == 4) return {take(inner.source, count), std::min(count, inner.size), same, "take(" + inner.text + ")"};
  return {repeat(inner.source, count), count * inner.size, same, "repeat(" + inner.text + ")"};
}

void expect_samples(const Tree& tree, std::uint64_t budget, int readers) {
  Pipeline pipeline = single(tree.source);
  if (budget > 0) use_cache(pipeline, std::make_shared<SampleCache>(budget));
  LoaderOptions options;
  options.batch_size = 7;
  options.shuffle = true;
  options.seed = 99;
  options.readers = readers;
  Loader loader(pipeline, options);
  for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
    std::int64_t samples = 0;
    while (const auto batch = loader.next()) {
      const HostBatch::Group& group = batch->groups[0];
      for (std::size_t row = 0; row < group.positions.size(); ++row, ++samples) {
        const Values expected = tree.sample(group.indices[row], {epoch, group.positions[row], 0});
        Values is{};
        for (std::size_t f = 0; f < 2; ++f) std::memcpy(&is[f], group.data[f] + 8 * row, 8);
        ASSERT_EQ(is, expected) << "sample " << group.indices[row];
      }
    }
    ASSERT_EQ(samples, tree.size);
  }
}

TEST(ComposeTree, random_trees_deliver_what_the_definition_says) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Philox draw(make_key(2026, seed));
    const Tree tree = grown(draw, static_cast<int>(1 + seed % 5));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + tree.text);
    ASSERT_EQ(tree.source->size(), tree.size);
    const std::uint64_t payload = cache_payload(*tree.source);
    ASSERT_EQ(payload == 0, !is_cacheable(tree.source->keeps()));
    for (const std::uint64_t budget : {std::uint64_t{0}, payload / 2, payload}) {
      for (const int readers : {0, 3}) ASSERT_NO_FATAL_FAILURE(expect_samples(tree, payload == 0 ? 0 : budget, readers));
    }
  }
}

}  // namespace
}  // namespace millrace::data
