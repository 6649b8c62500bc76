// HDF5 files: reading at the speed of pread and decoding, and writing. The library itself runs only in a child process
// (millrace-hdf5): a file that crashes it is a DataError here. The child returns the chunk table and digests of the first chunks
// as the library decodes them; this process reads chunks with pread, undoes their filters on the calling thread and checks its
// results against those digests at open. Layouts that this process does not know are read by the child, serially, through a pipe.
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

inline constexpr std::size_t kMaxRank = 32;  // axes of a data set

// One data set of a file as it is stored. A compound {r,i}, {re,im} or {real,imag}, in either order, is complex: two equal floats
// make c64, but two f64 c128; two integers of up to 2 bytes each make c64, of up to 4 bytes c128. The library converts all but
// {r,i} of f32 or f64.
struct Dataset {
  std::string name;  // full path, "/index_map/freq"
  DType dtype = DType::f32;
  Shape shape;
  Shape chunk;                 // empty: contiguous
  bool through_child = false;  // read by the library in the child: correct, serial
  std::string reason;          // why, if through_child
};

// A data set that can't be read, and why: "text", "filter 32001 (blosc), which is not known here".
struct Unreadable {
  std::string name;
  std::string reason;
  std::string text = {};  // its value, if that is a text of at most 1024 bytes: any bytes except zero
};

struct OpenOptions {
  std::filesystem::path index_folder;  // where the children's answers are kept for the next call; "": nowhere
  // False: the library in the child reads every block, in one process per file. This is the reference that the direct reading of
  // chunks must equal.
  bool direct = true;
};

// An open file. read() is const and thread-safe; everything else is fixed once open.
class File {
 public:
  // Starts the child for the metadata of `datasets` (empty: all of the file). Throws DataError if the file is not HDF5, is
  // truncated or crashed the library, or if a data set is missing (the message lists the existing ones) or has a type without a
  // DType.
  [[nodiscard]] static std::shared_ptr<const File> open(const std::filesystem::path& path,
                                                        std::span<const std::string> datasets = {});
  // Called with a file's index in `paths` and its error, on the thread of the call.
  using OnFailure = std::function<void(std::size_t, const DataError&)>;
  // Opens many files, with a few children in parallel; the result is in the order of `paths`. A file with an error is null in the
  // result if `failed` is given; else the first error is thrown. The index supplies the metadata of files with unchanged size,
  // modification time and first 4096 bytes.
  [[nodiscard]] static std::vector<std::shared_ptr<const File>> open_all(std::span<const std::filesystem::path> paths,
                                                                         std::span<const std::string> datasets = {},
                                                                         const OnFailure& failed = {},
                                                                         const OpenOptions& options = {});
  virtual ~File() = default;
  [[nodiscard]] virtual const std::filesystem::path& path() const = 0;
  [[nodiscard]] virtual std::span<const Dataset> datasets() const = 0;
  // The data sets omitted from datasets(); empty unless all of the file was requested.
  [[nodiscard]] virtual std::span<const Unreadable> unreadable() const { return {}; }
  [[nodiscard]] virtual std::uint64_t size() const noexcept { return 0; }        // bytes of the file when it was opened
  [[nodiscard]] virtual std::int64_t modified_ns() const noexcept { return 0; }  // modification time when it was opened
  // Attributes of the root group, "/", or of a data set. Throws DataError as dataset() does.
  [[nodiscard]] virtual const Attributes& attributes(std::string_view) const {
    static const Attributes kNone{};
    return kNone;
  }
  // The filters of a data set in the order they were applied: "shuffle", "deflate", "fletcher32", "lzf", "lz4", "bitshuffle",
  // "zstd", "filter 32001".
  [[nodiscard]] virtual std::vector<std::string> filters(std::string_view) const { return {}; }
  // Throws DataError that names the file, the data set and the existing ones.
  [[nodiscard]] virtual const Dataset& dataset(std::string_view name) const = 0;
  // Reads the block of `count` elements per axis from `offset`, in C order and this machine's byte order, into `out`, which holds
  // exactly its bytes. Throws DataError if it is outside the data set or truncated, or if a filter's check fails.
  virtual void read(std::string_view name, std::span<const std::int64_t> offset, std::span<const std::int64_t> count,
                    std::span<std::byte> out) const = 0;
  // Advises the kernel that the block will be read soon (posix_fadvise); never fails.
  virtual void will_need(std::string_view name, std::span<const std::int64_t> offset,
                         std::span<const std::int64_t> count) const = 0;
};

// Number of files that millrace-hdf5 has described for this process so far, without those found in an index.
[[nodiscard]] std::uint64_t files_described() noexcept;
// Number of blocks that File::read has read without the library, in all threads of this process so far.
[[nodiscard]] std::uint64_t blocks_read_directly() noexcept;

// An array for write_file().
struct Array {
  std::string name;  // "/vis"; its groups are created
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;  // C order
  Shape chunk = {};                  // empty: contiguous
  int deflate = 0;                   // 0 to 9; needs chunks, as do all that follow
  bool shuffle = false;
  bool lz4 = false;
  int zstd = 0;  // 1 to 19; at most one of deflate, lz4, zstd
  bool fletcher32 = false;
};

// Writes a new file under a temporary name, syncs it and renames it to `path`; `attributes` become those of its root group, and
// each must have a value. Throws DataError with the library's own words.
void write_file(const std::filesystem::path& path, std::span<const Array> arrays, std::span<const Attribute> attributes = {});

}  // namespace millrace::hdf5
