// Reads the part of Python's pickle that torch.save writes (protocol 2), as data. No function is called and no module is
// imported. The known globals are in a fixed list (PickleWord); a call of such a global becomes a node, which the reader's
// caller interprets. For a class outside the list, only the name is kept. An object of such a class that is made without
// arguments is read as the dict of its attributes. Every other use of such a class, and every other opcode, is rejected by name.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/field.h"

namespace millrace::format::detail {

enum class PickleWordKind : std::uint8_t {
  ordered_dict,       // collections.OrderedDict
  size,               // torch.Size
  device,             // torch.device
  storage,            // torch.FloatStorage and the like; `dtype` is the type of its elements
  untyped_storage,    // torch.storage.UntypedStorage
  dtype,              // torch.float32 and the like
  rebuild_tensor,     // arguments: (storage, offset, sizes, strides)
  rebuild_tensor_v2,  // arguments: (storage, offset, sizes, strides, requires_grad, hooks[, metadata])
  rebuild_tensor_v3,  // arguments: (storage, offset, sizes, strides, requires_grad, hooks, dtype[, metadata])
  rebuild_parameter,  // arguments: (tensor, requires_grad, hooks[, state])
};

// A global that is in the list of allowed globals.
struct PickleWord {
  std::string_view module, name;
  PickleWordKind kind;
  DType dtype = DType::f32;  // for a storage or a dtype: the element type
};
[[nodiscard]] std::span<const PickleWord> pickle_words() noexcept;

enum class PickleKind : std::uint8_t {
  none,
  boolean,
  integer,
  unsigned_integer,
  real,
  text,
  list,
  tuple,
  dict,
  word,
  call,
  persistent,
  foreign,  // a class that is not in the list of words
  object    // an object of a foreign class
};

// A node refers to other nodes by their index. Containers may be shared and may contain themselves.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  union {
    std::int64_t integer = 0;        // the value of a boolean (0 or 1) or an integer
    std::uint64_t unsigned_integer;  // an integer above the largest std::int64_t
    double real;
  };
  const PickleWord* word = nullptr;  // for a word: the global; for a call: the global that would be called
  std::string_view text;             // part of the pickle: a text, or the class name of a node of kind foreign or object
  // The content depends on the kind. list, tuple: the elements; dict: key, value, key, ...; call: the arguments; persistent: the
  // id; object: the dict of its attributes, or nothing.
  std::vector<std::uint32_t> items;
};

struct Pickled {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
  std::string problem;     // "" = valid; otherwise what is wrong and at which byte, and the other members are meaningless
  bool is_unread = false;  // the pickle is intact, but has an opcode or a class that Millrace does not read
};

inline constexpr std::size_t kMostPickleNodes = 2'000'000;  // enough for some 80,000 tensors; limits the memory to 200 MB

// Reads a pickle; `bytes` must outlive the result. The number of bytes and kMostPickleNodes bound the memory; the time is linear
// in the number of bytes.
[[nodiscard]] Pickled unpickle(std::string_view bytes);

// Returns the class of a node of kind foreign or object, in quotes, for messages: "collections.deque".
[[nodiscard]] std::string class_name(const PickleNode& node);

// Returns what the node is, for messages: "a list", "text", "torch.FloatStorage".
[[nodiscard]] std::string describe(const PickleNode& node);

}  // namespace millrace::format::detail
