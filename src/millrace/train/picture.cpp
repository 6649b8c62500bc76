#include "millrace/train/picture.h"

#include <array>

#include "millrace/base/error.h"

namespace millrace {
namespace {

void put_big_endian(std::string& out, std::uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) out.push_back(static_cast<char>(value >> shift & 0xFFU));
}

std::uint32_t crc32(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFFU;
  for (const char c : bytes) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1U ^ 0xEDB88320U : crc >> 1U;
  }
  return ~crc;
}

void put_chunk(std::string& out, std::string_view type, const std::string& data) {
  put_big_endian(out, static_cast<std::uint32_t>(data.size()));
  const std::string body = std::string(type) + data;
  out += body;
  put_big_endian(out, crc32(body));
}

// A zlib stream of stored blocks.
std::string stored(const std::string& bytes) {
  constexpr std::size_t kBlock = 65535;
  std::string out = "\x78\x01";
  std::uint32_t a = 1;
  std::uint32_t b = 0;
  for (const char c : bytes) {
    a = (a + static_cast<std::uint8_t>(c)) % 65521U;
    b = (b + a) % 65521U;
  }
  for (std::size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    const auto size = static_cast<std::uint16_t>(std::min(kBlock, bytes.size() - begin));
    const std::uint16_t inverse = static_cast<std::uint16_t>(~size);
    out.push_back(begin + kBlock >= bytes.size() ? '\1' : '\0');
    for (const std::uint16_t word : {size, inverse}) {
      out.push_back(static_cast<char>(word & 0xFFU));
      out.push_back(static_cast<char>(word >> 8U));
    }
    out.append(bytes, begin, size);
  }
  put_big_endian(out, b << 16U | a);
  return out;
}

}  // namespace

std::string png_of(const Picture& picture) {
  const auto row = static_cast<std::size_t>(picture.width) * 3;
  MR_CHECK(picture.width > 0 && picture.height > 0 && picture.rgb.size() == row * static_cast<std::size_t>(picture.height),
           "a picture holds three bytes a pixel");
  std::string lines;
  for (std::size_t y = 0; y < static_cast<std::size_t>(picture.height); ++y) {
    lines.push_back('\0');  // no filter
    lines.append(reinterpret_cast<const char*>(picture.rgb.data()) + y * row, row);
  }
  std::string head;
  put_big_endian(head, static_cast<std::uint32_t>(picture.width));
  put_big_endian(head, static_cast<std::uint32_t>(picture.height));
  head += std::string("\x08\x02\x00\x00\x00", 5);  // eight bits, RGB
  std::string file = "\x89PNG\r\n\x1a\n";
  put_chunk(file, "IHDR", head);
  put_chunk(file, "IDAT", stored(lines));
  put_chunk(file, "IEND", "");
  return file;
}

}  // namespace millrace
