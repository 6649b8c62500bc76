// What the pickle of a torch.save file says: tensors as views of storages, and plain values, all with the way to them as a name.
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
  std::vector<PtTensor> tensors;  // in order of name; each inside what its storage claims to have
  std::vector<PtValue> values;    // in order of name
  std::vector<PtStorageClaim> storages;
  std::uint64_t reach = 0;  // bytes that reading all tensors touches
  std::string problem;      // "" or what is wrong
  std::string remedy;       // of the problem, where it has one of its own
  bool is_unread = false;   // the problem is something that torch may write and nobody here reads
};

// A container that occurs in several places is listed in each of them, within limits; one that holds itself is refused.
[[nodiscard]] PtContent interpret(const Pickled& pickled);

}  // namespace millrace::format::detail
