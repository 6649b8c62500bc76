// An image: a snapshot that is ready to be written, with names, shapes, texts, and access to the bytes of each tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
#include "millrace/device/copies.h"
#include "millrace/device/device.h"
#include "millrace/format/safetensors.h"
#include "millrace/snapshot/snapshot.h"

namespace millrace::snapshot::detail {

struct ImageFile {
  std::string name;
  std::vector<Field> fields;
  format::TensorBytes bytes_of;
  std::uint64_t bytes = 0;  // size of the file
};

struct Image {
  std::int64_t step = 0;
  std::vector<ImageFile> files;
  std::string state;               // the text of state.json
  device::Copies::MarkPtr copied;  // once reached, the bytes are complete; null = they are complete already
};

struct FreeHost {
  device::Backend* locked_for = nullptr;  // the backend that copies into this memory; null = not page-locked
  void operator()(std::byte* memory) const noexcept;
};

// Memory that is kept from one snapshot to the next and grows to the size of the largest snapshot.
class HostMemory {
 public:
  // Returns at least `bytes`, uninitialised; the old contents are lost. Throws std::bad_alloc if memory runs out. If `copier` is
  // given, the memory is page-locked for its copies, provided that this takes at most a quarter of the free memory and the
  // system allows it; `copier` must outlive this object.
  std::byte* get(std::uint64_t bytes, device::Backend* copier = nullptr);
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<std::byte, FreeHost> memory_;
  std::uint64_t capacity_ = 0;
};

// The memory that image_in() will request, and the device on which the state is. The device is the CPU if the whole state is in
// host memory.
struct Room {
  std::uint64_t bytes = 0;
  c10::Device device = c10::Device(c10::kCPU);
  void make_in(HostMemory& memory) const;  // any thread may call this
};
[[nodiscard]] Room room_for(const Content& content);

// Makes an image that reads a tensor's bytes only when they are requested. Write the image in the thread that owns the tensors,
// before the tensors change. A SnapshotError names what can't be stored; saving() translates DataError, Json::exception and
// c10::Error.
[[nodiscard]] Image image_of(const Content& content);
// Copies the state's bytes into `memory`. The image refers to no LibTorch object, so any thread may write it. When this returns,
// the tensors may change: host tensors are copied, and later work of a device waits until the device's tensors are copied.
[[nodiscard]] Image image_in(HostMemory& memory, const Content& content);

// Writes the image whole or not at all, and returns the folder. Throws the same errors as image_of().
std::filesystem::path write_image(Fs& fs, const std::filesystem::path& run, const Image& image);

// Runs one stage of a save. Turns an error into a SnapshotError that names the step; only the error of a lost device is passed
// on unchanged.
void saving(const std::filesystem::path& run, std::int64_t step, const std::function<void()>& stage);

}  // namespace millrace::snapshot::detail
