// Reads the part of Python's pickle that torch.save writes (protocol 2), as data. No function is called and no module is
// imported. A global must be a word of a fixed list; a call becomes a node, which the caller interprets. For a class outside the
// list, only the name is kept. An object of such a class is read as the dict of its attributes if it is made without arguments.
// Every other use of such a class, and every other opcode, is rejected by name.
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
  storage,            // torch.FloatStorage ... of `dtype`
  untyped_storage,    // torch.storage.UntypedStorage
  dtype,              // torch.float32 ...
  rebuild_tensor,     // (storage, offset, sizes, strides)
  rebuild_tensor_v2,  // (storage, offset, sizes, strides, requires_grad, hooks[, metadata])
  rebuild_tensor_v3,  // (storage, offset, sizes, strides, requires_grad, hooks, dtype[, metadata])
  rebuild_parameter,  // (tensor, requires_grad, hooks[, state])
};

// A global that is allowed.
struct PickleWord {
  std::string_view module, name;
  PickleWordKind kind;
  DType dtype = DType::f32;  // element type of a storage or dtype
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
  foreign,  // a class outside the list of words
  object    // an object of such a class
};

// A node refers to other nodes by their index. Containers may be shared and may contain themselves.
struct PickleNode {
  PickleKind kind = PickleKind::none;
  union {
    std::int64_t integer = 0;        // boolean (0, 1), integer
    std::uint64_t unsigned_integer;  // above the largest std::int64_t
    double real;
  };
  const PickleWord* word = nullptr;  // of a word: the global; of a call: the global that would be called
  std::string_view text;             // view of the pickle: a text's UTF-8, or the class of a foreign or object (class_name())
  // The content depends on the kind: the elements of a list or tuple; key, value, key, ... of a dict; the arguments of a call;
  // the id of a persistent; empty or the dict of attributes for an object.
  std::vector<std::uint32_t> items;
};

struct Pickled {
  std::vector<PickleNode> nodes;
  std::uint32_t root = 0;
  std::string problem;     // what is wrong, and at which byte; then the rest is meaningless. "" if nothing is wrong
  bool is_unread = false;  // the pickle is intact, but has an opcode or a class that Millrace does not read
};

inline constexpr std::size_t kMostPickleNodes = 2'000'000;  // some 80,000 tensors; bounds the memory to 200 MB

// `bytes` must outlive the result. Memory is bounded by the number of bytes and by the limit above; time is linear.
[[nodiscard]] Pickled unpickle(std::string_view bytes);

// The class of a foreign or an object, in quotes, such as "collections.deque": for messages.
[[nodiscard]] std::string class_name(const PickleNode& node);

// "a list", "text", "torch.FloatStorage": for messages.
[[nodiscard]] std::string describe(const PickleNode& node);

}  // namespace millrace::format::detail
