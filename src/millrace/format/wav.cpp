#include "millrace/format/wav.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/format.h"

namespace millrace::format {
namespace {

constexpr std::uint16_t kWavePcm = 1, kWaveFloat = 3, kWaveExtensible = 0xfffe;
constexpr std::uint64_t kRiffBytes = 12, kChunkBytes = 8, kFormatBytes = 16, kExtensibleBytes = 26;

template <class T>
T number_at(std::span<const std::byte> bytes, std::size_t offset) {
  static_assert(std::endian::native == std::endian::little);
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

std::string_view word_at(std::span<const std::byte> bytes, std::size_t offset) {
  return {reinterpret_cast<const char*>(bytes.data()) + offset, 4};
}

[[noreturn]] void refuse_wav(const InputFile& file, const std::string& what) {
  throw DataError(
      {what, file.path().string(), "repair or remove the file; ffmpeg -i FILE -c:a pcm_s16le OUT.wav writes it anew"});
}

WavLayout layout_from(const InputFile& file, std::span<const std::byte> chunk) {
  WavLayout layout{.channels = number_at<std::uint16_t>(chunk, 2),
                   .rate = number_at<std::uint32_t>(chunk, 4),
                   .bits = number_at<std::uint16_t>(chunk, 14)};
  std::uint16_t code = number_at<std::uint16_t>(chunk, 0);
  if (code == kWaveExtensible && chunk.size() >= kExtensibleBytes) code = number_at<std::uint16_t>(chunk, 24);
  layout.is_float = code == kWaveFloat;
  const bool is_known = code == kWaveFloat ? layout.bits == 32 || layout.bits == 64
                                           : code == kWavePcm && layout.bits % 8 == 0 && layout.bits >= 8 && layout.bits <= 32;
  if (!is_known) {
    throw UnreadKind({"the sound has format code " + std::to_string(code) + " with " + std::to_string(layout.bits) +
                          " bits, which Millrace does not read; it reads PCM of 8 to 32 bits, and floats",
                      file.path().string(), "write it anew: ffmpeg -i FILE -c:a pcm_s16le OUT.wav"});
  }
  if (layout.channels < 1 || layout.rate < 1) refuse_wav(file, "the sound has no channel or no rate");
  // Refuses numbers that are stored in more bytes than their bits need. If such numbers were read in fewer bytes, all after the
  // first would be wrong.
  const std::int64_t each = number_at<std::uint16_t>(chunk, 12) / layout.channels;
  if (each > layout.bits / 8) {
    throw UnreadKind({"the sound has numbers of " + std::to_string(layout.bits) + " bits, each stored in " +
                          std::to_string(each) + " bytes, which Millrace does not read",
                      file.path().string(), "write it anew: ffmpeg -i FILE -c:a pcm_s16le OUT.wav"});
  }
  return layout;
}

// Returns one number as f32.
float value_at(const std::byte* from, const WavLayout& layout) {
  if (layout.is_float) {
    if (layout.bits == 32) return number_at<float>({from, 4}, 0);
    return static_cast<float>(number_at<double>({from, 8}, 0));
  }
  if (layout.bits == 8) return (static_cast<float>(std::to_integer<int>(*from)) - 128.0F) / 128.0F;
  std::uint32_t bits = 0;  // the number is put into the highest bytes, so that its sign is right
  const auto bytes = static_cast<std::size_t>(layout.bits / 8);
  std::memcpy(reinterpret_cast<std::byte*>(&bits) + (4 - bytes), from, bytes);
  return static_cast<float>(std::bit_cast<std::int32_t>(bits)) / 2147483648.0F;
}

// True if the rest of the file, from `at`, is a sequence of whole chunks. In an unfinished recording the rest consists of
// samples, so the result is false.
bool holds_chunks(const InputFile& file, std::uint64_t at) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  while (at + kChunkBytes <= file.size()) {
    std::array<std::byte, kChunkBytes> chunk{};
    file.read(at, chunk);
    if (!std::ranges::all_of(word_at(chunk, 0), is_printable)) return false;
    const std::uint64_t bytes = number_at<std::uint32_t>(chunk, 4);
    at += kChunkBytes + bytes + bytes % 2;
  }
  return at == file.size() || at == file.size() + 1;  // some programs leave out the last chunk's byte of padding
}

}  // namespace

WavFile::WavFile(const std::filesystem::path& path) : file_(std::make_unique<InputFile>(path)) {
  std::array<std::byte, kRiffBytes> head{};
  if (file_->size() < kRiffBytes) refuse_wav(*file_, "the file is too short for a sound");
  file_->read(0, head);
  if (word_at(head, 0) != "RIFF" || word_at(head, 8) != "WAVE") refuse_wav(*file_, "the file is not a WAVE file");
  bool has_format = false, has_sound = false;
  for (std::uint64_t at = kRiffBytes; at + kChunkBytes <= file_->size();) {
    std::array<std::byte, kChunkBytes> chunk{};
    file_->read(at, chunk);
    const std::uint64_t bytes = number_at<std::uint32_t>(chunk, 4), begin = at + kChunkBytes;
    if (word_at(chunk, 0) == "fmt ") {
      std::array<std::byte, kExtensibleBytes> format{};
      const std::uint64_t taken = std::min<std::uint64_t>(bytes, kExtensibleBytes);
      if (bytes < kFormatBytes || begin + taken > file_->size()) refuse_wav(*file_, "the sound's header is cut off");
      file_->read(begin, std::span(format).first(taken));
      layout_ = layout_from(*file_, std::span<const std::byte>(format).first(taken));
      has_format = true;
    } else if (word_at(chunk, 0) == "data") {
      if (!has_format) refuse_wav(*file_, "the sound's numbers come before its header");
      if (begin + bytes > file_->size()) {
        refuse_wav(*file_, "the sound is cut off: " + with_commas(static_cast<std::int64_t>(file_->size() - begin)) + " of " +
                               with_commas(static_cast<std::int64_t>(bytes)) + " bytes are in the file");
      }
      if (bytes == 0 && !holds_chunks(*file_, begin)) {
        refuse_wav(*file_, "the sound's header announces 0 bytes, but " +
                               with_commas(static_cast<std::int64_t>(file_->size() - begin)) +
                               " follow: the recording was not finished");
      }
      first_ = begin;
      layout_.frames = static_cast<std::int64_t>(bytes) / (layout_.channels * (layout_.bits / 8));
      has_sound = true;
      if (bytes > 0) return;
    }
    at = begin + bytes + bytes % 2;  // the next chunk begins at an even offset
  }
  if (!has_sound) refuse_wav(*file_, "the file holds no sound");
}

void WavFile::read(std::span<float> out) const {
  const auto bytes = static_cast<std::size_t>(layout_.bits / 8);
  const auto channels = static_cast<std::size_t>(layout_.channels), frames = static_cast<std::size_t>(layout_.frames);
  MR_CHECK(out.size() == channels * frames, "room for the whole sound");
  thread_local std::vector<std::byte> kept;
  if (kept.size() < out.size() * bytes) kept.resize(out.size() * bytes);
  const std::span<std::byte> stored = std::span(kept).first(out.size() * bytes);
  file_->read(first_, stored);
  const std::byte* from = stored.data();
  for (std::size_t t = 0; t < frames; ++t) {
    for (std::size_t c = 0; c < channels; ++c, from += bytes) out[c * frames + t] = value_at(from, layout_);
  }
}

}  // namespace millrace::format
