// A snapshot ready to be written: names, shapes and texts, and a way to the bytes of each tensor.
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
  std::uint64_t bytes = 0;  // of the file
};

struct Image {
  std::int64_t step = 0;
  std::vector<ImageFile> files;
  std::string state;               // state.json
  device::Copies::MarkPtr copied;  // the bytes are there when it is reached; null = they are
};

struct FreeHost {
  device::Backend* locked_for = nullptr;  // whose copies go there; null = it is not locked
  void operator()(std::byte* memory) const noexcept;
};

// Memory that is kept from one snapshot to the next and grows to the largest.
class HostMemory {
 public:
  // At least `bytes`, not set to anything; what was there before is lost. std::bad_alloc. `copier`: page-locked for what copies
  // into it, which outlives it, where that takes no more than a quarter of the free memory and the system lets it; null = plain.
  std::byte* get(std::uint64_t bytes, device::Backend* copier = nullptr);
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  std::unique_ptr<std::byte, FreeHost> memory_;
  std::uint64_t capacity_ = 0;
};

// What image_in() will ask of its memory, for the device that the state is on; the CPU where all of it is host memory.
struct Room {
  std::uint64_t bytes = 0;
  c10::Device device = c10::Device(c10::kCPU);
  void make_in(HostMemory& memory) const;  // any thread
};
[[nodiscard]] Room room_for(const Content& content);

// The bytes come from the tensors when they are asked for: write it in the thread that owns them, before they change.
// SnapshotError names what can't be stored; DataError, Json::exception and c10::Error as saving() translates them.
[[nodiscard]] Image image_of(const Content& content);
// The bytes are copied into `memory`. The image holds nothing of LibTorch: any thread may write it. The tensors may change when
// this returns: those of the host are copied then, and what a device is asked for from here on waits there for its copies.
[[nodiscard]] Image image_in(HostMemory& memory, const Content& content);

// Writes it whole or not at all; the folder. Errors as above.
std::filesystem::path write_image(Fs& fs, const std::filesystem::path& run, const Image& image);

// Runs one stage of a save; whatever goes wrong becomes a SnapshotError that names the step.
void saving(const std::filesystem::path& run, std::int64_t step, const std::function<void()>& stage);

}  // namespace millrace::snapshot::detail
