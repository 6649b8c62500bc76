#include "millrace/data/sources/npy_source.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/input_file.h"
#include "millrace/data/sources/detail/file_list.h"

namespace millrace::data {

NpySource::NpySource(std::vector<NpyField> arrays) {
  std::vector<std::filesystem::path> paths;
  paths.reserve(arrays.size());
  for (const NpyField& array : arrays) paths.push_back(array.path);
  fingerprint_ = "npy " + detail::count_of_files(paths, "arrays");
  std::size_t sample_bytes = 0;
  for (NpyField& array : arrays) {
    format::NpyFile file(array.path);
    const format::NpyLayout& layout = file.layout();
    const std::string where = file.file().path().string();
    if (layout.shape.empty())
      throw DataError({"the array is a single number", where, "give arrays whose first axis counts the samples"});
    if (!fields_.empty() && layout.shape[0] != size_) {
      throw DataError({"the array has " + with_commas(layout.shape[0]) + " rows, the first one has " + with_commas(size_), where,
                       "give arrays of one length"});
    }
    size_ = layout.shape[0];
    fields_.push_back({std::move(array.name), layout.dtype, {layout.shape.begin() + 1, layout.shape.end()}});
    sample_bytes += fields_.back().bytes();
    fingerprint_ += ' ' + fields_.back().name + ' ' + std::string(name_of(layout.dtype)) + to_text(fields_.back().shape);
    std::vector<std::byte> loaded;
    if (layout.fortran && layout.shape.size() > 1) {
      loaded.resize(layout.bytes);
      file.read(loaded);
    }
    arrays_.push_back({std::move(file), std::move(loaded)});
  }
  // A ticket reads about a quarter of a megabyte, which takes some 50 us.
  samples_per_ticket_ =
      std::max<std::int64_t>(1, (std::int64_t{1} << 18) / std::max<std::int64_t>(1, static_cast<std::int64_t>(sample_bytes)));
}

std::vector<FileStamp> NpySource::stamps() const {
  std::vector<std::filesystem::path> paths;
  for (const Array& array : arrays_) paths.push_back(array.file.file().path());
  return stamps_of(paths);
}

std::string NpySource::describe(std::int64_t index) const {
  return joined(arrays_, ", ", [](const Array& array) { return array.file.file().path().string(); }) + " row " +
         std::to_string(index);
}

void NpySource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  for (std::size_t f = 0; f < arrays_.size(); ++f) {
    const std::size_t row_bytes = fields_[f].bytes();
    const Array& array = arrays_[f];
    // Reads neighbouring rows of the file with one call.
    for (std::size_t i = 0, run = 0; i < indices.size(); i += run) {
      run = 1;
      while (i + run < indices.size() && indices[i + run] == indices[i] + static_cast<std::int64_t>(run)) ++run;
      const std::span<std::byte> out(rows.row(f, i, row_bytes), run * row_bytes);
      if (array.loaded.empty()) {
        array.file.read_rows(indices[i], static_cast<std::int64_t>(run), out);
      } else {
        std::memcpy(out.data(), array.loaded.data() + static_cast<std::size_t>(indices[i]) * row_bytes, out.size());
      }
    }
  }
}

NpzSource::NpzSource(std::vector<std::filesystem::path> files, const std::vector<std::string>& names) : files_(std::move(files)) {
  fingerprint_ = "npz " + detail::count_of_files(files_, "samples");
  const format::NpzFile first(files_.front());
  for (const format::NpzEntry& entry : first.entries()) {
    if (names.empty()) fields_.push_back({entry.name, entry.layout.dtype, entry.layout.shape});
  }
  for (const std::string& name : names) {
    const format::NpzEntry* const entry = first.find(name);
    if (entry == nullptr) {
      throw DataError({"the file has no array " + quoted(name), files_.front().string(),
                       "name some of these: " + joined(first.entries(), ", ", &format::NpzEntry::name)});
    }
    fields_.push_back({name, entry->layout.dtype, entry->layout.shape});
  }
  if (fields_.empty()) throw DataError({"the file has no arrays", files_.front().string(), "give files that numpy.savez wrote"});
  for (const Field& field : fields_)
    fingerprint_ += ' ' + field.name + ' ' + std::string(name_of(field.dtype)) + to_text(field.shape);
}

void NpzSource::read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom&) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const format::NpzFile file(files_[static_cast<std::size_t>(indices[i])]);
    for (std::size_t f = 0; f < fields_.size(); ++f) {
      const Field& field = fields_[f];
      const format::NpzEntry* const entry = file.find(field.name);
      if (entry == nullptr || entry->layout.dtype != field.dtype || entry->layout.shape != field.shape) {
        throw DataError(
            {"array " + quoted(field.name) +
                 (entry == nullptr ? " is missing"
                                   : " is " + to_text(entry->layout.shape) + ' ' + std::string(name_of(entry->layout.dtype))) +
                 ", the first file has " + to_text(field.shape) + ' ' + std::string(name_of(field.dtype)),
             file.file().path().string(), "use files whose arrays have equal shapes and types, or leave this one out"});
      }
      file.read(*entry, {rows.row(f, i, field.bytes()), field.bytes()});
    }
  }
}

void NpzSource::will_need(std::span<const std::int64_t> indices, const ReadRandom&) const noexcept {
  for (const std::int64_t index : indices) will_need_file(files_[static_cast<std::size_t>(index)]);
}

}  // namespace millrace::data
