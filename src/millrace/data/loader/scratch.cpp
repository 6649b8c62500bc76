#include "millrace/data/loader/scratch.h"

#include <memory>
#include <new>
#include <vector>

namespace millrace::data::detail {
namespace {

constexpr std::align_val_t kAligned{64};

struct FreeAligned {
  void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, kAligned); }
};

struct Buffer {
  std::unique_ptr<std::byte, FreeAligned> bytes;
  std::size_t size = 0;
};

struct Buffers {
  std::vector<Buffer> all;
  std::size_t used = 0;
};

Buffers& buffers() {
  thread_local Buffers mine;
  return mine;
}

}  // namespace

Scratch::Scratch(std::size_t bytes) {
  Buffers& mine = buffers();
  if (mine.used == mine.all.size()) mine.all.emplace_back();
  Buffer& buffer = mine.all[mine.used];
  if (buffer.size < bytes || !buffer.bytes) {
    buffer.bytes.reset();
    buffer.size = 0;
    buffer.bytes.reset(static_cast<std::byte*>(::operator new(bytes, kAligned)));
    buffer.size = bytes;
  }
  data_ = buffer.bytes.get();
  ++mine.used;
}

Scratch::~Scratch() { --buffers().used; }

}  // namespace millrace::data::detail
