#include "millrace/data/loader/keeping.h"

#include <algorithm>
#include <array>
#include <new>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::data::detail {
namespace {

std::string label(const std::string& name) { return name.empty() ? "the data set" : "data set " + quoted(name); }

void check_rows(const Source& source, const std::string& name) {
  constexpr std::int64_t kPosition = 0;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> fields;
  bool drawn = false;
  try {
    for (const Field& field : source.fields()) fields.push_back(memory.emplace_back(field.bytes()).data());
    const std::array<std::int64_t, 1> index{0};
    source.read(index, {fields}, ReadRandom(0, 0, {&kPosition, 1}).watched(drawn));
  } catch (...) {
    // The error is ignored, because reading the sample for a batch will report it.
  }
  if (drawn) refuse_drawn_rows(name);
}

void check_parts(const Source& source, const std::string& name) {
  std::size_t bytes = 1;
  try {
    bytes = source.part_bytes(0);
  } catch (const DataError&) {
    // The error is ignored, because reading the sample for a batch will report it.
  }
  if (bytes == 0) refuse_empty_part(0, name);
}

}  // namespace

void refuse_drawn_rows(const std::string& name) {
  throw ConfigError(Message{.what = label(name) + " draws random numbers in read(): a cache of its rows would repeat the numbers "
                                                  "of the first epoch",
                            .where = "keeps() of its source, which says Keeps::rows",
                            .next = "return Keeps::parts and draw in finish(), or return Keeps::nothing"});
}

void refuse_empty_part(std::int64_t part, const std::string& name) {
  throw ConfigError(Message{.what = "part " + std::to_string(part) + " of " + label(name) + " has 0 bytes, but should be cached",
                            .where = "part_bytes() of its source, which says Keeps::parts",
                            .next = "return the number of bytes that load() writes"});
}

std::string reason_to_keep_nothing(std::span<const Dataset> datasets) {
  const bool in_memory = std::all_of(datasets.begin(), datasets.end(),
                                     [](const Dataset& dataset) { return dataset.source->keeps() == Keeps::memory; });
  return in_memory ? "off: the data is in memory already" : "off: samples are made anew at each read, as their source says";
}

void check_keeping(const Source& source, const std::string& name) {
  if (source.size() < 1) return;
  if (source.keeps() == Keeps::rows) check_rows(source, name);
  if (source.keeps() == Keeps::parts) check_parts(source, name);
}

}  // namespace millrace::data::detail
