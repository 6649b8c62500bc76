// Reads sound files (RIFF WAVE): PCM of 8, 16, 24 and 32 bits and floats of 32 and 64 bits, in any number of channels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "millrace/base/input_file.h"

namespace millrace::format {

struct WavLayout {
  std::int64_t channels = 0;
  std::int64_t frames = 0;  // number of values per channel
  std::int64_t rate = 0;    // frames per second
  std::int64_t bits = 0;    // bits of a number in the file
  bool is_float = false;
};

// A file open for reading; the constructor reads its header. Const and thread-safe. Throws a DataError with the file's name if
// the file is damaged, cut off or compressed (ADPCM, A-law, …).
class WavFile {
 public:
  explicit WavFile(const std::filesystem::path& path);
  [[nodiscard]] const WavLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return file_->path(); }
  // Reads all numbers channel by channel, [channels, frames]. PCM becomes value / 2^(bits - 1), in -1 to 1 (8 bits: (value - 128)
  // / 128), as soundfile and torchaudio read it; floats stay as they are. `out` has channels * frames numbers.
  void read(std::span<float> out) const;

 private:
  std::unique_ptr<InputFile> file_;
  WavLayout layout_;
  std::uint64_t first_ = 0;  // offset of the first number, in bytes
};

}  // namespace millrace::format
