// The file driver through which libhdf5 reads and writes: a descriptor that its caller opened. The driver opens no file, so links
// to other files fail; a read past the end of the file is an error, where the library's own driver returns zeros.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>

namespace millrace::hdf5::child {

inline constexpr const char* kDriverFileName = "the file of descriptor";

// A file access property list with this driver on `descriptor`; the library may open that file, with one handle at a time.
[[nodiscard]] hid_t driver_access(int descriptor);

struct RawRead {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};
// While recording, reads of raw data are recorded but not done: H5Dread_chunk then shows where a chunk is, by the index's own
// search. (H5Dget_chunk_info_by_coord of HDF5 1.10 walks the whole index for each chunk.)
void start_recording();
[[nodiscard]] std::optional<RawRead> last_recorded();  // also clears it
void stop_recording();

}  // namespace millrace::hdf5::child
