// A snapshot ready to be written: names, shapes and texts, and a way to the bytes of each tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/fs.h"
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
  std::string state;  // state.json
};

// Memory that is kept from one snapshot to the next and grows to the largest.
class HostMemory {
 public:
  // At least `bytes`, not set to anything; what was there before is lost. std::bad_alloc.
  std::byte* get(std::uint64_t bytes);
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte, Free> memory_;
  std::uint64_t capacity_ = 0;
};

// The bytes come from the tensors when they are asked for: write it in the thread that owns them, before they change.
// SnapshotError names what can't be stored; DataError, Json::exception and c10::Error as saving() translates them.
[[nodiscard]] Image image_of(const Content& content);
// The bytes are copied into `memory` now. The image holds nothing of LibTorch: any thread may write it.
[[nodiscard]] Image image_in(HostMemory& memory, const Content& content);

// Writes it whole or not at all; the folder. Errors as above.
std::filesystem::path write_image(Fs& fs, const std::filesystem::path& run, const Image& image);

// Runs one stage of a save; whatever goes wrong becomes a SnapshotError that names the step.
void saving(const std::filesystem::path& run, std::int64_t step, const std::function<void()>& stage);

}  // namespace millrace::snapshot::detail
