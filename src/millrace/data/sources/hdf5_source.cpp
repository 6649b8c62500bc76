#include "millrace/data/sources/hdf5_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/hdf5/attribute.h"

namespace millrace::data {
namespace {

std::string name_of(const hdf5::File& file) { return file.path().filename().string(); }

[[noreturn]] void disagree(const hdf5::File& file, const std::string& what, const hdf5::File& first) {
  throw DataError({.what = name_of(file) + ' ' + what,
                   .where = quoted(file.path().string()) + " and " + quoted(first.path().string()),
                   .next = "remove or convert the file that differs"});
}

Shape without_first(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

}  // namespace

Hdf5Source::Hdf5Source(std::span<const std::filesystem::path> files, std::vector<Hdf5Field> fields, Hdf5Samples samples,
                       const hdf5::OpenOptions& open)
    : specs_(std::move(fields)), samples_(samples) {
  MR_CHECK(!specs_.empty(), "samples from HDF5 files need at least one field");
  if (files.empty()) {
    throw DataError({.what = "there is no HDF5 file to read samples from", .where = "", .next = "name at least one file"});
  }
  std::vector<std::string> names;
  for (const Hdf5Field& spec : specs_) names.push_back(spec.dataset);
  files_ = hdf5::File::open_all(files, names, {}, open);
  Sha256 hash;
  for (std::size_t f = 0; f < specs_.size(); ++f) {
    add_field(f);
    note_packing(specs_[f]);
    hash.update(specs_[f].name + '\n' + specs_[f].dataset + ' ' + std::string(millrace::name_of(fields_[f].dtype)) +
                to_text(begin_[f]) + to_text(fields_[f].shape) + '\n');
  }
  first_.push_back(0);
  check_rows();
  fingerprint_ = "hdf5 " + std::to_string(files_.size()) + " files, " + std::to_string(size()) + " samples by " +
                 (samples_ == Hdf5Samples::file ? "file" : "row") + ", sha256 " + hash.hex();
  std::size_t bytes = 1;
  for (const std::size_t row : row_bytes_) bytes += row;
  constexpr std::size_t kWorthAClaim = std::size_t{1} << 18U;
  if (samples_ == Hdf5Samples::row)
    samples_per_ticket_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(kWorthAClaim / bytes));
}

std::vector<FileStamp> Hdf5Source::stamps() const {
  std::vector<std::filesystem::path> paths;
  for (const auto& file : files_) paths.push_back(file->path());
  return stamps_of(paths);
}

// Takes the shape and the type of a field from the first file, and checks that all other files have the same.
void Hdf5Source::add_field(std::size_t field) {
  const Hdf5Field& spec = specs_[field];
  const hdf5::File& first = *files_.front();
  const bool by_row = samples_ == Hdf5Samples::row;
  const hdf5::Dataset& like = first.dataset(spec.dataset);
  for (const auto& file : files_) {
    const hdf5::Dataset& dataset = file->dataset(spec.dataset);
    if (by_row && dataset.shape.empty()) {
      disagree(*file, dataset.name + " is a single number, but must have an axis of samples", first);
    }
    if (dataset.shape.size() != like.shape.size() ||
        !std::equal(dataset.shape.begin() + (by_row ? 1 : 0), dataset.shape.end(), like.shape.begin() + (by_row ? 1 : 0))) {
      disagree(*file, dataset.name + " is " + to_text(dataset.shape) + ", " + name_of(first) + " has " + to_text(like.shape),
               first);
    }
    if (dataset.dtype != like.dtype) {
      disagree(*file,
               dataset.name + " is " + std::string(millrace::name_of(dataset.dtype)) + ", " + name_of(first) + " has " +
                   std::string(millrace::name_of(like.dtype)),
               first);
    }
  }
  Shape shape = by_row ? without_first(like.shape) : like.shape;
  Shape begin(shape.size(), 0);
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(Message{.what = name_of(first) + ' ' + like.name + " is " + to_text(like.shape) + what,
                              .where = quoted(first.path().string()),
                              .next = "keep a part that is inside every sample"});
  };
  if (spec.keep.size() > shape.size()) refuse(", the part to keep has " + std::to_string(spec.keep.size()) + " axes");
  for (std::size_t k = 0; k < spec.keep.size(); ++k) {
    const std::size_t d = shape.size() - spec.keep.size() + k;
    const Hdf5Field::Range& range = spec.keep[k];
    const std::int64_t end = range.end < 0 ? shape[d] : range.end;
    if (range.begin < 0 || range.begin > end || end > shape[d]) {
      refuse(", the part to keep is " + std::to_string(range.begin) + " to " + std::to_string(end) + " of " +
             std::to_string(shape[d]));
    }
    begin[d] = range.begin;
    shape[d] = end - range.begin;
  }
  fields_.push_back({spec.name, like.dtype, shape});
  begin_.push_back(begin);
  row_bytes_.push_back(fields_.back().bytes());
}

// Adds a line if the field's numbers may be packed. netCDF files often hold packed numbers, with attributes for scale, offset
// and the number that stands for "missing". Only these attributes show that the numbers are packed.
void Hdf5Source::note_packing(const Hdf5Field& spec) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  // The attributes of packed numbers, each with the value that changes nothing.
  constexpr std::array<std::pair<const char*, double>, 4> kPacking = {
      {{"scale_factor", 1}, {"add_offset", 0}, {"_FillValue", kNone}, {"missing_value", kNone}}};
  const hdf5::File& first = *files_.front();
  std::vector<std::string> found;
  for (const auto& [name, harmless] : kPacking) {
    const hdf5::Attribute* const attribute = first.attributes(spec.dataset).find(name);
    if (attribute == nullptr) continue;
    const std::optional<double> value = hdf5::number_of(*attribute);
    if (value && std::isfinite(*value) && *value != harmless) found.push_back(std::string(name) + ' ' + significant(*value, 6));
  }
  if (!found.empty())
    packed_.push_back("numbers of " + spec.dataset + " in " + first.path().string() +
                      " are read as stored, so apply in map() or prepare() what the attributes say: " + joined(found, ", "));
}

// Counts the samples of each file, and checks that all fields of a file have the same number of rows.
void Hdf5Source::check_rows() {
  for (const auto& file : files_) {
    std::int64_t rows = 1;
    if (samples_ == Hdf5Samples::row) {
      rows = file->dataset(specs_.front().dataset).shape.front();
      for (const Hdf5Field& spec : specs_) {
        const hdf5::Dataset& dataset = file->dataset(spec.dataset);
        if (dataset.shape.front() != rows) {
          disagree(*file,
                   dataset.name + " has " + std::to_string(dataset.shape.front()) + " rows, " + specs_.front().dataset + " has " +
                       std::to_string(rows),
                   *file);
        }
      }
    }
    first_.push_back(first_.back() + rows);
  }
}

std::size_t Hdf5Source::file_of(std::int64_t index) const {
  return static_cast<std::size_t>(std::upper_bound(first_.begin() + 1, first_.end() - 1, index) - (first_.begin() + 1));
}

template <class Use>
void Hdf5Source::with_block(std::size_t f, std::int64_t index, std::int64_t samples, Use use) const {
  const std::size_t file = file_of(index);
  std::array<std::int64_t, hdf5::kMaxRank + 1> offset{};
  std::array<std::int64_t, hdf5::kMaxRank + 1> count{};
  std::size_t rank = 0;
  if (samples_ == Hdf5Samples::row) {
    offset[0] = index - first_[file];
    count[0] = samples;
    rank = 1;
  }
  for (std::size_t d = 0; d < begin_[f].size(); ++d, ++rank) {
    offset[rank] = begin_[f][d];
    count[rank] = fields_[f].shape[d];
  }
  use(*files_[file], std::span<const std::int64_t>(offset).first(rank), std::span<const std::int64_t>(count).first(rank));
}

void Hdf5Source::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  for (std::size_t i = 0; i < indices.size();) {
    // Reads consecutive rows of a file together, as one block.
    std::size_t end = i + 1;
    const std::int64_t last = first_[file_of(indices[i]) + 1];
    while (end < indices.size() && indices[end] == indices[end - 1] + 1 && indices[end] < last) ++end;
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      const std::span<std::byte> out(rows.row(f, i, row_bytes_[f]), (end - i) * row_bytes_[f]);
      with_block(f, indices[i], static_cast<std::int64_t>(end - i),
                 [&](const hdf5::File& file, auto offset, auto count) { file.read(specs_[f].dataset, offset, count, out); });
    }
    i = end;
  }
}

void Hdf5Source::will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept {
  for (const std::int64_t index : indices) {
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      with_block(f, index, 1,
                 [&](const hdf5::File& file, auto offset, auto count) { file.will_need(specs_[f].dataset, offset, count); });
    }
  }
}

std::string Hdf5Source::describe(std::int64_t index) const {
  const std::size_t file = file_of(index);
  const std::string name = files_[file]->path().string();
  return samples_ == Hdf5Samples::file ? name : name + " row " + std::to_string(index - first_[file]);
}

std::string Hdf5Source::read_as() const { return joined(packed_, "; "); }

}  // namespace millrace::data
