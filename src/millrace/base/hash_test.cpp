#include "millrace/base/hash.h"

#include <gtest/gtest.h>

#include <vector>

#include "millrace/base/philox.h"

namespace millrace {
namespace {

std::span<const std::byte> bytes_in(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

TEST(Crc32c, PublishedVectors) {
  EXPECT_EQ(crc32c(bytes_in("")), 0U);
  EXPECT_EQ(crc32c(bytes_in("123456789")), 0xE3069283U);
  EXPECT_EQ(crc32c(bytes_in(std::string(32, '\0'))), 0x8A9136AAU);
  EXPECT_EQ(crc32c(bytes_in(std::string(32, '\xFF'))), 0x62A8AB43U);
}

TEST(Crc32c, BlocksAreCheckedAsOneByOne) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += static_cast<char>(i * 37 % 251);
  for (const std::size_t size : {0, 1, 63, 64, 65, 191, 192, 193, 200, 640, 5000}) {
    const auto all = bytes_in(text).first(size);
    for (const std::size_t block : {8U, 64U, 4096U}) {
      std::vector<std::uint32_t> crcs((size + block - 1) / block);
      crc32c_blocks(all, block, crcs);
      for (std::size_t i = 0; i < crcs.size(); ++i)
        EXPECT_EQ(crcs[i], crc32c(all.subspan(i * block, std::min(block, size - i * block)))) << size << ' ' << block << ' ' << i;
    }
  }
}

TEST(Crc32c, PortableAndFastAgreeAndContinue) {
  Philox random(1);
  std::vector<std::byte> data(1000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const std::span<const std::byte> all(data);
  for (std::size_t size = 0; size < 70; ++size) {
    EXPECT_EQ(crc32c(all.first(size)), detail::crc32c_without_sse(all.first(size))) << size;
  }
  const std::uint32_t whole = crc32c(all);
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, std::size_t{13}, std::size_t{999}, std::size_t{1000}}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole);
    EXPECT_EQ(detail::crc32c_without_sse(all.subspan(cut), detail::crc32c_without_sse(all.first(cut))), whole);
  }
}

TEST(Sha256, PublishedVectors) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameAsTheWhole) {
  const std::string text(300, 'x');
  for (std::size_t size = 50; size < 140; ++size) {
    Sha256 pieces;
    for (std::size_t at = 0; at < size; at += 7)
      pieces.update(std::string_view(text).substr(at, std::min<std::size_t>(7, size - at)));
    EXPECT_EQ(pieces.hex(), sha256(text.substr(0, size))) << size;
  }
}

}  // namespace
}  // namespace millrace
