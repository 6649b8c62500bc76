#include "millrace/base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "millrace/base/fs.h"

namespace millrace {

MappedFile::MappedFile(const std::filesystem::path& path, std::uint64_t size) : size_(size) {
  if (size == 0) return;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw FsError("open", path, errno);
  memory_ = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const int error = errno;
  ::close(file);
  if (memory_ == MAP_FAILED) throw FsError("map", path, error);
}

MappedFile::~MappedFile() {
  if (size_ > 0) ::munmap(memory_, size_);
}

}  // namespace millrace
