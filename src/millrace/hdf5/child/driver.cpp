#include "millrace/hdf5/child/driver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace millrace::hdf5::child {
namespace {

constexpr haddr_t kMaxAddress = (haddr_t{1} << 62U) - 1;

struct File {
  H5FD_t base;  // must be the first member, because the library casts pointers to it
  int descriptor;
  haddr_t end_of_allocation;
  haddr_t end_of_file;
};

// The state is global, because libhdf5 passes a driver no argument of Millrace's except the file's name. The process has one
// thread.
struct State {
  int descriptor = -1;
  bool is_open = false;  // libhdf5 opens the file several times, but closes it each time before it opens it again
  bool records = false;
  std::optional<RawRead> recorded;
};
State g_state;

File* file_of(H5FD_t* base) { return reinterpret_cast<File*>(base); }
const File* file_of(const H5FD_t* base) { return reinterpret_cast<const File*>(base); }

herr_t refuse(const char* words) {
  H5Epush2(H5E_DEFAULT, __FILE__, "millrace-hdf5", 0, H5E_ERR_CLS, H5E_IO, H5E_READERROR, "%s", words);
  return -1;
}

H5FD_t* open_file(const char* name, unsigned, hid_t, haddr_t) {
  struct stat status {};
  if (g_state.is_open || std::strcmp(name, kDriverFileName) != 0 || ::fstat(g_state.descriptor, &status) != 0) {
    refuse("other files are not opened");
    return nullptr;
  }
  g_state.is_open = true;
  auto* file = new File{};
  file->descriptor = g_state.descriptor;
  file->end_of_file = static_cast<haddr_t>(status.st_size);
  return &file->base;
}

herr_t close_file(H5FD_t* base) {
  delete file_of(base);
  g_state.is_open = false;
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) { return a < b ? -1 : static_cast<int>(a != b); }

herr_t query(const H5FD_t*, unsigned long* flags) {
  if (flags != nullptr) *flags = H5FD_FEAT_AGGREGATE_METADATA | H5FD_FEAT_AGGREGATE_SMALLDATA | H5FD_FEAT_DATA_SIEVE;
  return 0;
}

haddr_t end_of_allocation(const H5FD_t* base, H5FD_mem_t) { return file_of(base)->end_of_allocation; }

herr_t set_end_of_allocation(H5FD_t* base, H5FD_mem_t, haddr_t address) {
  file_of(base)->end_of_allocation = address;
  return 0;
}

haddr_t end_of_file(const H5FD_t* base, H5FD_mem_t) { return file_of(base)->end_of_file; }

herr_t read_bytes(H5FD_t* base, H5FD_mem_t type, hid_t, haddr_t address, std::size_t size, void* buffer) {
  const File* file = file_of(base);
  if (g_state.records && type == H5FD_MEM_DRAW) {
    g_state.recorded = RawRead{address, size};
    return 0;
  }
  if (address > file->end_of_file || size > file->end_of_file - address)
    return refuse("the file is shorter than its metadata says");
  auto* to = static_cast<char*>(buffer);
  while (size > 0) {
    const ssize_t got = ::pread(file->descriptor, to, size, static_cast<off_t>(address));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return refuse(got == 0 ? "the file has become shorter" : std::strerror(errno));
    to += got;
    address += static_cast<haddr_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  return 0;
}

herr_t write_bytes(H5FD_t* base, H5FD_mem_t, hid_t, haddr_t address, std::size_t size, const void* buffer) {
  File* file = file_of(base);
  const auto* from = static_cast<const char*>(buffer);
  while (size > 0) {
    const ssize_t done = ::pwrite(file->descriptor, from, size, static_cast<off_t>(address));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return refuse(std::strerror(errno));
    from += done;
    address += static_cast<haddr_t>(done);
    size -= static_cast<std::size_t>(done);
  }
  file->end_of_file = std::max(file->end_of_file, address);
  return 0;
}

herr_t truncate_file(H5FD_t* base, hid_t, hbool_t) {
  File* file = file_of(base);
  if (file->end_of_file == file->end_of_allocation) return 0;
  if (::ftruncate(file->descriptor, static_cast<off_t>(file->end_of_allocation)) != 0) return refuse(std::strerror(errno));
  file->end_of_file = file->end_of_allocation;
  return 0;
}

H5FD_class_t driver_class() {
  H5FD_class_t driver{};
  driver.name = "millrace descriptor";
  driver.maxaddr = kMaxAddress;
  driver.fc_degree = H5F_CLOSE_WEAK;
  driver.open = open_file;
  driver.close = close_file;
  driver.cmp = compare;
  driver.query = query;
  driver.get_eoa = end_of_allocation;
  driver.set_eoa = set_end_of_allocation;
  driver.get_eof = end_of_file;
  driver.read = read_bytes;
  driver.write = write_bytes;
  driver.truncate = truncate_file;
  constexpr std::array<H5FD_mem_t, H5FD_MEM_NTYPES> kMap = H5FD_FLMAP_DICHOTOMY;
  std::copy(kMap.begin(), kMap.end(), driver.fl_map);
  return driver;
}

}  // namespace

hid_t driver_access(int descriptor) {
  static const H5FD_class_t kClass = driver_class();
  static const hid_t kDriver = H5FDregister(&kClass);
  g_state = State{.descriptor = descriptor, .is_open = false, .records = false, .recorded = std::nullopt};
  const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
  if (access >= 0) H5Pset_driver(access, kDriver, nullptr);
  return access;
}

void start_recording() { g_state.records = true; }

std::optional<RawRead> last_recorded() { return std::exchange(g_state.recorded, std::nullopt); }

void stop_recording() { g_state.records = false; }

}  // namespace millrace::hdf5::child
