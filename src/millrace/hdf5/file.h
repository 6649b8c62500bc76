// Reads HDF5 files at the speed of pread and decoding, and writes them. The library libhdf5 runs only in a child process
// (millrace-hdf5), so that a file that crashes it is a DataError here. The child returns the table of chunks, and digests of a
// few blocks as the library decodes them. This process reads chunks with pread and undoes their filters on the calling thread.
// When it opens a file, it compares its own results with those digests. If this process does not know the layout of a data set,
// the child reads that data set, serially, through a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/field.h"
#include "millrace/hdf5/attribute.h"

namespace millrace::hdf5 {

inline constexpr std::size_t kMaxRank = 32;  // the most axes of a data set

// A data set of a file as it is stored. A compound {r,i}, {re,im}, {real,imag} or {real,imaginary}, in either order, is complex.
// Two f64 make c128, two other equal floats make c64. Two integers of up to 2 bytes each make c64, two of up to 4 bytes make
// c128. The library converts all of these except {r,i} of f32 or f64.
struct Dataset {
  std::string name;  // the full path of the data set, such as "/index_map/freq"
  DType dtype = DType::f32;
  Shape shape;
  Shape chunk;                 // shape of a chunk; empty: contiguous
  bool through_child = false;  // the library in the child reads it: correct, but serial
  std::string reason;          // why the child reads it
};

// A data set that can't be read, and why: "text", "filter 32001 (blosc), which is not known here".
struct Unreadable {
  std::string name;
  std::string reason;
  std::string text = {};  // the value, if it is a text of at most 1024 bytes; it has no zero byte, but may be invalid UTF-8
};

struct OpenOptions {
  std::filesystem::path index_folder;  // folder that keeps the children's answers for the next call; "": nothing is kept
  // False: the library in the child reads every block, with one process for each file. Direct reading of chunks must give the
  // same result.
  bool direct = true;
};

// An open file. read() is const and thread-safe; nothing else changes after the file is opened.
class File {
 public:
  // Starts the child for the metadata of `datasets` (empty: the whole file). Throws DataError if the file is not HDF5, is
  // truncated or crashes the library. Also throws DataError if a data set is missing (the message lists the existing ones) or
  // has a type without a DType.
  [[nodiscard]] static std::shared_ptr<const File> open(const std::filesystem::path& path,
                                                        std::span<const std::string> datasets = {});
  // Called in the calling thread with a file's index in `paths` and the file's error.
  using OnFailure = std::function<void(std::size_t, const DataError&)>;
  // Opens many files, with a few children in parallel. The result is in the order of `paths`. If `failed` is given, a file with
  // an error is null in the result; otherwise the first error is thrown. The index supplies the metadata of files whose size,
  // modification time and first 4096 bytes have not changed.
  [[nodiscard]] static std::vector<std::shared_ptr<const File>> open_all(std::span<const std::filesystem::path> paths,
                                                                         std::span<const std::string> datasets = {},
                                                                         const OnFailure& failed = {},
                                                                         const OpenOptions& options = {});
  virtual ~File() = default;
  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;
  [[nodiscard]] virtual std::span<const Dataset> datasets() const = 0;
  // Returns the data sets that datasets() leaves out; empty unless the whole file was requested.
  [[nodiscard]] virtual std::span<const Unreadable> unreadable() const { return {}; }
  [[nodiscard]] virtual std::uint64_t size() const noexcept { return 0; }        // size of the file when it was opened
  [[nodiscard]] virtual std::int64_t modified_ns() const noexcept { return 0; }  // modification time when it was opened
  // Attributes of the root group, "/", or of a data set. Throws DataError as dataset() does.
  [[nodiscard]] virtual const Attributes& attributes(std::string_view) const {
    static const Attributes kNone{};
    return kNone;
  }
  // The filters of a data set in the order in which they were applied: "shuffle", "deflate", "fletcher32", "lzf", "lz4",
  // "bitshuffle", "zstd", "filter 32001".
  [[nodiscard]] virtual std::vector<std::string> filters(std::string_view) const { return {}; }
  // Returns a data set. If `name` is missing, throws a DataError that names the file, the data set and the existing data sets.
  [[nodiscard]] virtual const Dataset& dataset(std::string_view name) const = 0;
  // Reads the block of `count` elements per axis from `offset` into `out`, in C order and this machine's byte order. `out` must
  // have exactly the block's bytes. Throws DataError if the block lies outside the data set or is truncated, or if a filter's
  // check fails.
  virtual void read(std::string_view name, std::span<const std::int64_t> offset, std::span<const std::int64_t> count,
                    std::span<std::byte> out) const = 0;
  // Advises the kernel that the block will be read soon (posix_fadvise); never fails.
  virtual void will_need(std::string_view name, std::span<const std::int64_t> offset,
                         std::span<const std::int64_t> count) const = 0;
};

// Number of files that millrace-hdf5 has described for this process so far. Files found in an index are not counted.
[[nodiscard]] std::uint64_t files_described() noexcept;
// Number of blocks that File::read has read without the library so far, in all threads of this process.
[[nodiscard]] std::uint64_t blocks_read_directly() noexcept;

// An array for write_file().
struct Array {
  std::string name;  // full name, such as "/vis"; the groups in it are created too
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;  // the elements in C order
  Shape chunk = {};                  // shape of a chunk; empty: contiguous
  int deflate = 0;                   // level from 0 to 9; this filter and those below need chunks
  bool shuffle = false;
  bool lz4 = false;
  int zstd = 0;  // level from 1 to 19; only one of deflate, lz4 and zstd may be used
  bool fletcher32 = false;
};

// Writes a new file under a temporary name, syncs it and renames it to `path`. `attributes` become those of the file's root
// group; each must have a value. Throws a DataError with the library's message.
void write_file(const std::filesystem::path& path, std::span<const Array> arrays, std::span<const Attribute> attributes = {});

}  // namespace millrace::hdf5
