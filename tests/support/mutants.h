// Damaged files by the thousand, for the tests of readers. Mutant k of a file depends only on the file, k and the seed.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

#include "millrace/base/error.h"
#include "millrace/base/philox.h"

namespace millrace::data::test {

// How a mutant differs from the file it comes from.
enum class Damage : std::uint8_t { bit, block, truncation, growth, extreme };

struct Mutant {
  std::string bytes;
  Damage damage = Damage::bit;
};

// Returns a mutant whose kind `seed` draws. One bit is flipped, or 16 bytes are replaced by noise, or the file is cut off, or up
// to 64 bytes of noise are appended. Or a number of 1, 2, 4 or 8 bytes within the first `header_bytes` is replaced by an
// extreme: all zeros, all ones, the sign bit, or the largest positive number, in either byte order.
inline Mutant mutant(const std::string& file, std::size_t header_bytes, std::uint64_t seed) {
  Philox random(seed);
  Mutant result{.bytes = file, .damage = static_cast<Damage>(random.below(5))};
  std::string& bytes = result.bytes;
  const auto noise = [&] { return static_cast<char>(random.below(256)); };
  switch (result.damage) {
    case Damage::bit: {
      // Half of the damages are in the header, a small part of the file that controls most decisions of a reader.
      const std::size_t at = random.below(random.below(2) == 0 ? header_bytes : bytes.size());
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ (1U << random.below(8)));
      break;
    }
    case Damage::block: {
      const std::size_t at = random.below(bytes.size());
      for (std::size_t i = at; i < std::min(at + 16, bytes.size()); ++i) bytes[i] = noise();
      break;
    }
    case Damage::truncation:
      bytes.resize(random.below(bytes.size()));
      break;
    case Damage::growth:
      for (std::uint64_t more = 1 + random.below(64); more > 0; --more) bytes += noise();
      break;
    case Damage::extreme: {
      const std::size_t width = std::size_t{1} << random.below(4);
      const std::size_t at = random.below(header_bytes - width + 1);
      const auto kind = random.below(4);
      const bool big = random.below(2) == 0;
      for (std::size_t i = 0; i < width; ++i) {
        const bool top = big ? i == 0 : i + 1 == width;
        bytes[at + i] = static_cast<char>(kind == 0   ? 0x00
                                          : kind == 1 ? 0xFF
                                          : kind == 2 ? (top ? 0x80 : 0x00)
                                                      : (top ? 0x7F : 0xFF));
      }
      break;
    }
  }
  return result;
}

// Returns the number of mutants of each file: 1,000 in CI, or the larger number that MILLRACE_MUTANTS names for the long tests.
inline std::uint64_t mutant_count() {
  const char* const asked = std::getenv("MILLRACE_MUTANTS");
  return asked == nullptr ? 1000 : std::strtoull(asked, nullptr, 10);
}

struct MutantFormat {
  std::string extension;         // the files' extension, as in ".npy"
  std::string file;              // an intact file
  std::size_t header_bytes = 0;  // number of bytes at the beginning in which extremes are placed
  // True: a checksum or a rule covers every bit, so content that is accepted must equal the original content.
  bool checked = false;
  // Reads a file and returns all its content as bytes. May throw only DataError.
  std::function<std::string(const std::filesystem::path&)> read;
};

// Checks that every mutant is rejected with a DataError of three parts, or is read. A truncated mutant must be rejected unless
// its content is complete. The content read must be the truth if the format can detect damage. Memory use must stay within 64 MB
// of the process's earlier use.
inline void expect_survives_mutants(const MutantFormat& format) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("millrace-mutants-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const auto content = [&](const std::string& bytes, const std::string& name) -> std::optional<std::string> {
    const std::filesystem::path path = folder / (name + format.extension);
    std::ofstream(path, std::ios::binary) << bytes;
    std::optional<std::string> result;
    try {
      result = format.read(path);
    } catch (const DataError& error) {
      EXPECT_FALSE(error.message().what.empty() || error.message().next.empty()) << error.what();
      EXPECT_NE(std::string(error.what()).find(path.filename().string()), std::string::npos) << error.what();
    }
    std::filesystem::remove(path);
    return result;
  };
  const std::optional<std::string> truth = content(format.file, "whole");
  ASSERT_TRUE(truth.has_value());
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  std::uint64_t refused = 0;
  for (std::uint64_t k = 0; k < mutant_count(); ++k) {
    const Mutant mutated = mutant(format.file, format.header_bytes, make_key(20'250'101, k));
    const std::optional<std::string> read = content(mutated.bytes, "m" + std::to_string(k));
    if (!read) {
      ++refused;
      continue;
    }
    const bool must_equal = format.checked || mutated.damage == Damage::truncation || mutated.damage == Damage::growth;
    ASSERT_TRUE(!must_equal || *read == *truth)
        << "mutant " << k << " of kind " << static_cast<int>(mutated.damage) << " was accepted";
  }
  EXPECT_GT(refused, mutant_count() / 6);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // sanitizers keep freed memory
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 64 * 1024) << "kB";
#endif
  std::filesystem::remove_all(folder);
}

}  // namespace millrace::data::test
