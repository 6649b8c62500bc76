// The file driver libhdf5 reads and writes through: one descriptor that somebody else opened. It opens nothing itself, so links
// to other files end here; a read past the end of the file is an error, where the library's own driver answers with zeros.
#pragma once

#include <hdf5.h>

#include <cstdint>
#include <optional>

namespace millrace::hdf5::child {

inline constexpr const char* kDriverFileName = "the file of descriptor";

// A file access property list with this driver on `descriptor`, which lets the library open that file, one handle at a time.
[[nodiscard]] hid_t driver_access(int descriptor);

struct RawRead {
  std::uint64_t address = 0;
  std::uint64_t size = 0;
};
// While recording, reads of raw data are noted, not done: H5Dread_chunk then says where a chunk is, by the index' own search.
// (H5Dget_chunk_info_by_coord of HDF5 1.10 walks through the whole index for each chunk.)
void start_recording();
[[nodiscard]] std::optional<RawRead> last_recorded();  // and forgets it
void stop_recording();

}  // namespace millrace::hdf5::child
