// The contents of the pickle of a torch.save file: tensors as views of storages, and plain values. Each is named by the path to
// it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/format/detail/pickle.h"
#include "millrace/format/pt.h"

namespace millrace::format::detail {

struct PtStorageClaim {
  std::string key;
  std::uint64_t bytes = 0;
};

struct PtContent {
  std::vector<PtTensor> tensors;  // sorted by name; each lies inside the claimed size of its storage
  std::vector<PtValue> values;    // sorted by name
  std::vector<PtStorageClaim> storages;
  std::uint64_t reach = 0;  // bytes that reading all tensors takes; overlapping tensors are counted separately
  std::string problem;      // what is wrong; "" = the file is valid
  std::string remedy;       // a special remedy for the problem; "" = the usual one
  bool is_unread = false;   // the problem is something valid that Millrace does not read
};

// Finds the tensors and the values. A container that occurs in several places is listed in each of them, within limits; a
// container that contains itself is rejected.
[[nodiscard]] PtContent interpret(const Pickled& pickled);

}  // namespace millrace::format::detail
