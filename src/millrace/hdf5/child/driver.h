// The file driver through which libhdf5 reads and writes. It uses a descriptor that its caller has opened, and opens no file
// itself, so links to other files fail. A read past the end of the file is an error; the library's own driver would return zeros.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>

namespace millrace::hdf5::child {

inline constexpr const char* kDriverFileName = "the file of descriptor";

// Returns a file access property list with which libhdf5 reads the file of `descriptor` through this driver. libhdf5 may open
// the file several times, but must close it before it opens it again.
[[nodiscard]] hid_t driver_access(int descriptor);

struct RawRead {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};
// From this call until stop_recording(), libhdf5's reads of raw data are only recorded, not carried out. So a call of
// H5Dread_chunk gives the address of a chunk at the cost of one search in the index. (H5Dget_chunk_info_by_coord of HDF5 1.10
// walks the whole index for each chunk.)
void start_recording();
[[nodiscard]] std::optional<RawRead> last_recorded();  // returns the last recorded read, then clears the record
void stop_recording();

}  // namespace millrace::hdf5::child
