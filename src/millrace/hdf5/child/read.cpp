// Reads blocks on request, for layouts that only the library can read.
#include <unistd.h>

#include <map>
#include <new>

#include "millrace/hdf5/child/jobs.h"
#include "millrace/hdf5/child/open.h"
#include "millrace/hdf5/detail/wire.h"

namespace millrace::hdf5::child {

int read_blocks(int descriptor) {
  std::string request;
  std::string failure;
  Id file;
  try {
    file = open_file(descriptor);
  } catch (const LibraryError& error) {
    failure = error.what();
  }
  std::map<std::string, OpenDataset> datasets;
  while (get_frame(kSocket, request)) {
    ::alarm(kWallSeconds);
    std::string answer(1, static_cast<char>(detail::Answer::ok));
    try {
      if (!failure.empty()) throw LibraryError(failure);
      detail::WireReader wanted(request);
      const std::string name = wanted.text();
      const auto offset = wanted.list<std::int64_t>();
      const auto count = wanted.list<std::int64_t>();
      auto found = datasets.find(name);
      if (found == datasets.end()) found = datasets.emplace(name, open_dataset(file.get(), name)).first;
      std::size_t bytes = found->second.element_bytes;
      for (const std::int64_t size : count) bytes *= static_cast<std::size_t>(size);  // can't overflow; the requester has checked
      answer.resize(1 + bytes);
      read_block(found->second, offset, count, answer.data() + 1);
    } catch (const std::exception& error) {
      answer = detail::WireWriter().put(detail::Answer::refused).text(error.what()).bytes();
    }
    ::alarm(0);
    if (!put_frame(kSocket, answer)) break;
  }
  return 0;
}

}  // namespace millrace::hdf5::child
