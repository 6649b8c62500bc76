#include "millrace/format/wav.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "millrace/base/error.h"
#include "millrace/base/fs.h"
#include "tests/support/refusal.h"

namespace millrace::format {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::string little(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

// Bytes of a sound of 8,000 Hz with these numbers; `before` comes between header and numbers.
std::string wav(std::uint16_t code, std::uint16_t channels, std::uint16_t bits, const std::string& numbers,
                const std::string& before = "") {
  const std::string header = little(code) + little(channels) + little<std::uint32_t>(8000) +
                             little<std::uint32_t>(8000U * channels * bits / 8) +
                             little<std::uint16_t>(static_cast<std::uint16_t>(channels * bits / 8)) + little(bits);
  const std::string rest = "WAVEfmt " + little<std::uint32_t>(16) + header + before + "data" +
                           little(static_cast<std::uint32_t>(numbers.size())) + numbers;
  return "RIFF" + little(static_cast<std::uint32_t>(rest.size())) + rest;
}

std::vector<float> read(const std::string& bytes) {
  write_atomically(Fs::real(), "a.wav", bytes);
  const WavFile file("a.wav");
  std::vector<float> values(static_cast<std::size_t>(file.layout().channels * file.layout().frames));
  file.read(values);
  return values;
}

std::string refused(const std::string& bytes) {
  return refusal<DataError>([&] { (void)read(bytes); });
}

TEST(Wav, NumbersOfEveryWidthBecomeFractions) {
  EXPECT_THAT(read(wav(1, 1, 8, std::string("\x80\x00\xff", 3))), ElementsAre(0.0F, -1.0F, 127.0F / 128.0F));
  EXPECT_THAT(read(wav(1, 1, 16, little<std::int16_t>(-32768) + little<std::int16_t>(16384))), ElementsAre(-1.0F, 0.5F));
  EXPECT_THAT(read(wav(1, 1, 24, std::string("\x00\x00\xc0\x00\x00\x20", 6))), ElementsAre(-0.5F, 0.25F));
  EXPECT_THAT(read(wav(1, 1, 32, little<std::int32_t>(-1073741824))), ElementsAre(-0.5F));
  EXPECT_THAT(read(wav(3, 1, 32, little(1.5F))), ElementsAre(1.5F));
  EXPECT_THAT(read(wav(3, 1, 64, little(-2.25))), ElementsAre(-2.25F));
}

TEST(Wav, ChannelsStandOneAfterTheOtherAndOtherChunksArePassedOver) {
  std::string numbers;
  for (const std::int16_t value : {16384, -16384, 8192, -8192}) numbers += little(value);
  const std::string list = "LIST" + little<std::uint32_t>(3) + "abc" + std::string(1, '\0');  // padded to an even offset
  EXPECT_THAT(read(wav(1, 2, 16, numbers, list)), ElementsAre(0.5F, 0.25F, -0.5F, -0.25F));
  EXPECT_EQ(WavFile("a.wav").layout().rate, 8000);
  EXPECT_EQ(WavFile("a.wav").layout().frames, 2);
}

TEST(Wav, WhatIsDamagedCompressedOrNoSoundIsRefused) {
  const std::string sound = wav(1, 1, 16, std::string(100, 'x'));
  EXPECT_THAT(refused(sound.substr(0, sound.size() - 10)), HasSubstr("the sound is cut off: 90 of 100 bytes are in the file"));
  EXPECT_THAT(refused(wav(17, 1, 4, "abcd")),
              HasSubstr("the sound has format code 17 with 4 bits, which Millrace does not read"));
  EXPECT_THAT(refused("RIFF????AVI LIST"), HasSubstr("the file is not a WAVE file"));
  EXPECT_THAT(refused(wav(1, 0, 16, "ab")), HasSubstr("the sound has no channel or no rate"));
  for (std::size_t bytes = 0; bytes < sound.size(); ++bytes) EXPECT_THROW((void)read(sound.substr(0, bytes)), DataError) << bytes;
}

// Both were read in silence: numbers made of the wrong bytes, and a sound without numbers.
TEST(Wav, HeadersThatDoNotFitTheNumbersAreRefused) {
  constexpr std::size_t kBlockBytes = 32, kDataBytes = 40;
  std::string padded = wav(1, 2, 24, std::string(16, 'x'));
  padded[kBlockBytes] = 8;
  EXPECT_THAT(refused(padded), HasSubstr("numbers of 24 bits, each stored in 4 bytes, which Millrace does not read"));
  std::string unfinished = wav(1, 1, 16, std::string(8, 'x'));
  unfinished[kDataBytes] = 0;
  EXPECT_THAT(refused(unfinished), HasSubstr("announces 0 bytes, but 8 follow: the recording was not finished"));
  EXPECT_THAT(read(wav(1, 1, 16, "")), testing::IsEmpty());
}

TEST(Wav, ASoundOfNoNumbersIsWholeAlsoBeforeOtherChunks) {
  const std::string list = "LIST" + little<std::uint32_t>(3) + "abc";
  for (const std::string& behind : {list + std::string(1, '\0'), list, list + std::string(1, '\0') + list}) {
    EXPECT_THAT(read(wav(1, 1, 16, "") + behind), testing::IsEmpty());
    EXPECT_EQ(WavFile("a.wav").layout().frames, 0);
  }
  EXPECT_THAT(refused(wav(1, 1, 16, "") + list + "abcd"), HasSubstr("the recording was not finished"));
  EXPECT_THAT(refused(wav(1, 1, 16, "") + std::string(16, '\0')), HasSubstr("the recording was not finished")) << "silence";
  const std::string second = "data" + little<std::uint32_t>(2) + little<std::int16_t>(16384);
  EXPECT_THAT(read(wav(1, 1, 16, "") + second), ElementsAre(0.5F)) << "the numbers come in a second chunk";
}

}  // namespace
}  // namespace millrace::format
