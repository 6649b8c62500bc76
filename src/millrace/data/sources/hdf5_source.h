// Samples from HDF5 files: a sample is a whole file, or an index of the first axis.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "millrace/data/loader/source.h"
#include "millrace/hdf5/file.h"

namespace millrace::data {

struct Hdf5Field {
  // The indices [begin, end) of an axis; end -1 = to the end of the axis.
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = -1;
  };

  std::string name;     // name of the field in the samples
  std::string dataset;  // name in the file, such as "/vis"
  // Ranges of the last axes of a sample, as in [..., a:b]; empty: the whole sample. Only these ranges are read from the file.
  std::vector<Range> keep = {};
};

enum class Hdf5Samples : std::uint8_t { file, row };

class Hdf5Source final : public Source {
 public:
  // Opens the files. All files must agree in shapes and types; if samples are rows, the length of the first axis may differ
  // between files, but not between the fields of a file. Samples are numbered in the order of `files`. `open`: see
  // hdf5::File::open_all. Throws DataError with the names of a file that does not match and of the first file, and ConfigError
  // for a range outside the data set.
  Hdf5Source(std::span<const std::filesystem::path> files, std::vector<Hdf5Field> fields, Hdf5Samples samples,
             const hdf5::OpenOptions& open = {});

  [[nodiscard]] std::span<const Field> fields() const override { return fields_; }
  [[nodiscard]] std::int64_t size() const override { return first_.back(); }
  void read(std::span<const std::int64_t> indices, Rows rows, const ReadRandom& random) const override;
  // Returns a text that depends on the names of the HDF5 data sets and on the ranges.
  [[nodiscard]] std::string fingerprint() const override { return fingerprint_; }
  [[nodiscard]] std::vector<FileStamp> stamps() const override;
  [[nodiscard]] std::int64_t samples_per_ticket() const override { return samples_per_ticket_; }
  // Returns a text such as "c07.h5" or "c07.h5 row 12".
  [[nodiscard]] std::string describe(std::int64_t index) const override;
  // Returns the lines of packed(), separated by "; ".
  [[nodiscard]] std::string read_as() const override;
  [[nodiscard]] bool looks_ahead() const override { return true; }
  void will_need(std::span<const std::int64_t> indices, const ReadRandom& random) const noexcept override;
  [[nodiscard]] Keeps keeps() const override { return Keeps::rows; }
  [[nodiscard]] std::span<const std::shared_ptr<const hdf5::File>> files() const noexcept { return files_; }
  // Returns a line for each field whose numbers may be packed, with the attributes of the first file that say so. read() gives
  // the numbers as they are stored.
  [[nodiscard]] std::span<const std::string> packed() const noexcept { return packed_; }

 private:
  void add_field(std::size_t field);
  void note_packing(const Hdf5Field& spec);
  void check_rows();
  [[nodiscard]] std::size_t file_of(std::int64_t index) const;
  // Calls use(file, offset, count) with the block of field `f` that holds the samples [index, index + samples), which are in one
  // file.
  template <class Use>
  void with_block(std::size_t f, std::int64_t index, std::int64_t samples, Use use) const;

  std::vector<Hdf5Field> specs_;
  Hdf5Samples samples_;
  std::vector<std::shared_ptr<const hdf5::File>> files_;
  std::vector<std::int64_t> first_;  // index of each file's first sample; the last element is the number of all samples
  std::vector<Field> fields_;
  std::vector<Shape> begin_;  // for each field, where its range begins; the axis of samples is left out
  std::vector<std::size_t> row_bytes_;
  std::int64_t samples_per_ticket_ = 1;
  std::string fingerprint_;
  std::vector<std::string> packed_;
};

}  // namespace millrace::data
