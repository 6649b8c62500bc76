// Opens damaged HDF5 files: this process gets no signal, no truncated file is accepted, and an accepted file reads as the library
// reads it.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/base/input_file.h"
#include "millrace/base/philox.h"
#include "millrace/hdf5/child/made_by_library.h"
#include "millrace/hdf5/detail/library_reader.h"
#include "millrace/hdf5/file.h"

namespace millrace::hdf5 {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class Hdf5Hostile : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("hdf5_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) + std::to_string(::getpid()));
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Small files of every layout that the fast path knows, a file with a filter that only the child undoes, and a file with
  // attributes.
  std::vector<std::string> originals() {
    std::vector<std::string> texts;
    std::string bytes(16 * 12 * 4, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 4 == 3 ? 0x3F : i * i % 97);
    const Array plain{.name = "/g/a", .dtype = DType::f32, .shape = {16, 12}, .bytes = std::as_bytes(std::span(bytes))};
    for (int kind = 0; kind < 6; ++kind) {
      Array array = plain;
      if (kind > 0) array.chunk = {5, 12};
      array.shuffle = kind > 1;
      array.deflate = kind == 2 || kind == 3 ? 4 : 0;
      array.fletcher32 = kind == 3;
      array.lz4 = kind == 4;
      array.zstd = kind == 5 ? 1 : 0;
      write_file(root_ / "original.h5", std::span(&array, 1));
      texts.push_back(text_of(root_ / "original.h5"));
    }
    std::vector<float> values(16 * 12);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    made::write_bitshuffled(root_ / "original.h5", values, 16, 12, 64, 2);
    texts.push_back(text_of(root_ / "original.h5"));
    const std::vector<Attribute> attributes = {{"rate", 240.0}, {"session", std::string("a")}, {"valid", true}};
    write_file(root_ / "original.h5", std::span(&plain, 1), attributes);
    texts.push_back(text_of(root_ / "original.h5"));
    return texts;
  }

  // Writes files with these contents and returns their paths. Only one batch exists at a time, so that the folder stays small.
  std::vector<fs::path> write_all(const std::vector<std::string>& texts) {
    std::vector<fs::path> paths;
    for (const std::string& text : texts) {
      paths.push_back(root_ / (std::to_string(paths.size()) + ".h5"));
      std::ofstream(paths.back(), std::ios::binary) << text;
    }
    return paths;
  }

  fs::path root_;
};

struct Reading {
  std::string bytes;
  bool failed = false;
};

template <class Read>
Reading attempt(std::size_t bytes, Read read) {
  Reading result{.bytes = std::string(bytes, '\xEE'), .failed = false};
  try {
    read(std::as_writable_bytes(std::span(result.bytes)));
  } catch (const DataError& error) {
    result = {.bytes = error.what(), .failed = true};
  }
  return result;
}

// Reads all data sets of a reasonable size. With `compare` the library must read them too, with the same result.
void check_accepted(const File& file, bool compare, const std::string& label) {
  for (const Dataset& dataset : file.datasets()) {
    constexpr std::int64_t kReasonable = 1 << 20;
    const auto count = element_count(dataset.shape);
    ASSERT_TRUE(count);
    if (*count > kReasonable) continue;
    const std::size_t bytes = static_cast<std::size_t>(*count) * size_of(dataset.dtype);
    const Shape zero(dataset.shape.size(), 0);
    const Reading ours = attempt(bytes, [&](auto out) { file.read(dataset.name, zero, dataset.shape, out); });
    if (!compare || ours.failed || dataset.through_child) continue;
    const InputFile input(file.path());
    detail::LibraryReader library;
    const Reading theirs = attempt(bytes, [&](auto out) { library.read(input, dataset.name, zero, dataset.shape, out, "it"); });
    EXPECT_FALSE(theirs.failed) << label << ": we accept what the library refuses: " << theirs.bytes;
    EXPECT_TRUE(theirs.failed || ours.bytes == theirs.bytes) << label << ": we read something else than the library";
  }
}

std::string mutant_of(const std::string& original, Philox& random) {
  std::string text = original;
  const auto below = [&](std::size_t most) { return random() % most; };
  const std::size_t edits = 1 + below(3);
  for (std::size_t e = 0; e < edits; ++e) {
    // Half of the edits change the first 2 KB, because metadata are at the front and in small blocks.
    const std::size_t at = below(below(2) == 0 ? std::min<std::size_t>(text.size(), 2048) : text.size());
    switch (below(6)) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ (1U << below(8)));
        break;
      case 1:
        text[at] = static_cast<char>(below(256));
        break;
      case 2:
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::size_t>(8, text.size() - at), '\xFF');
        break;
      case 3:
        std::fill_n(text.begin() + static_cast<std::ptrdiff_t>(at), std::min<std::size_t>(32, text.size() - at), '\0');
        break;
      case 4: {  // a piece from another part of the file
        const std::size_t size = std::min<std::size_t>(1 + below(64), text.size() - at);
        text.replace(at, size, original.substr(below(original.size() - size), size));
        break;
      }
      default:
        text[at] = static_cast<char>(text[at] + (below(2) == 0 ? 1 : -1));
    }
  }
  return text;
}

TEST_F(Hdf5Hostile, SeededMutants) {
  const char* wanted = std::getenv("MILLRACE_MUTANTS");
  const std::size_t mutants = wanted != nullptr ? static_cast<std::size_t>(std::atoll(wanted)) : 1000;
  const std::vector<std::string> original = originals();
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  std::size_t refused = 0;
  std::size_t accepted = 0;
  for (std::size_t done = 0; done < mutants;) {
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < 64 && done + i < mutants; ++i) {
      Philox random(make_key(20'26, done + i, 0, 0));
      texts.push_back(mutant_of(original[(done + i) % original.size()], random));
    }
    const std::vector<fs::path> paths = write_all(texts);
    const auto files = File::open_all(paths, {}, [&](std::size_t, const DataError& error) {
      ++refused;
      EXPECT_FALSE(error.message().what.empty() || error.message().where.empty() || error.message().next.empty());
    });
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (!files[i]) continue;
      // Compares only some of the files, because each comparison starts the library anew.
      check_accepted(*files[i], accepted++ % 8 == 0, "mutant " + std::to_string(done + i));
    }
    done += texts.size();
  }
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(refused + accepted, mutants);
  EXPECT_GT(refused, mutants / 10);
  EXPECT_GT(accepted, mutants / 10);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 256 * 1024) << "kB";
}

TEST_F(Hdf5Hostile, EveryTruncationIsRefused) {
  const std::vector<std::string> original = originals();
  for (std::size_t kind = 0; kind < original.size(); ++kind) {
    for (std::size_t begin = kind * 3; begin < original[kind].size(); begin += 64 * 97) {
      std::vector<std::string> texts;
      for (std::size_t size = begin; size < original[kind].size() && texts.size() < 64; size += 97) {
        texts.push_back(original[kind].substr(0, size));
      }
      const std::vector<fs::path> paths = write_all(texts);
      const auto files = File::open_all(paths, {}, [](std::size_t, const DataError&) {});
      for (std::size_t i = 0; i < files.size(); ++i) EXPECT_EQ(files[i], nullptr) << kind << ": " << texts[i].size() << " bytes";
    }
  }
}

TEST_F(Hdf5Hostile, GroupsNestedWithoutEndAreRefusedAtOnce) {
  const float value = 1.0F;
  const auto refusal = [&](int levels) {
    std::string name;
    for (int level = 0; level < levels; ++level) name += "/g";
    const Array array{.name = name + "/a", .dtype = DType::f32, .shape = {1}, .bytes = std::as_bytes(std::span(&value, 1))};
    write_file(root_ / "nested.h5", std::span(&array, 1));
    try {
      return File::open(root_ / "nested.h5")->datasets()[0].name == array.name ? std::string("accepted") : "something else";
    } catch (const DataError& error) {
      return error.message().what;
    }
  };
  EXPECT_EQ(refusal(60), "accepted");
  EXPECT_EQ(refusal(100), "nested.h5 is not a valid HDF5 file: groups nested more than 64 deep");
}

TEST_F(Hdf5Hostile, BytesBehindTheEndChangeNothing) {
  for (const std::string& text : originals()) {
    const std::vector<fs::path> paths = write_all({text, text + 'x'});
    const auto files = File::open_all(paths);
    const auto content = [](const File& file) {
      return attempt(16 * 12 * 4, [&](auto out) { file.read("/g/a", Shape{0, 0}, Shape{16, 12}, out); }).bytes;
    };
    EXPECT_EQ(content(*files[0]), content(*files[1]));
    fs::resize_file(paths[1], std::uintmax_t{5} << 30U);  // the file is sparse
    EXPECT_EQ(content(*File::open(paths[1])), content(*files[0]));
  }
}

}  // namespace
}  // namespace millrace::hdf5
