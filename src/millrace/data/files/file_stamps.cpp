#include "millrace/data/files/file_stamps.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <system_error>
#include <thread>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/input_file.h"
#include "millrace/system/signals.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;

struct Depth {
  std::size_t most_files;
  char kind;  // a letter that names the kind of the digest
  std::uint64_t whole;
  std::uint64_t edge;
  std::uint64_t samples;
  std::uint64_t sample;
};
constexpr std::uint64_t kKib = 1024;
constexpr std::array<Depth, 3> kDepths = {{{256, 'a', 1024 * kKib, 64 * kKib, 16, 8 * kKib},
                                           {4096, 'b', 64 * kKib, 16 * kKib, 8, 4 * kKib},
                                           {SIZE_MAX, 'c', 12 * kKib, 4 * kKib, 1, 4 * kKib}}};

// A digest of the bytes that add() reads, in the order of the calls.
class Digest {
 public:
  Digest(const InputFile& file, std::vector<std::byte>& buffer) : file_(file), buffer_(buffer) {}
  void add(std::uint64_t offset, std::uint64_t count) {
    buffer_.resize(std::max<std::size_t>(buffer_.size(), count));
    const std::span<std::byte> bytes(buffer_.data(), count);
    file_.read(offset, bytes);
    crc_ = crc32c(bytes, crc_);
  }
  [[nodiscard]] std::string hex() const {
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (int shift = 28; shift >= 0; shift -= 4) text += kDigits[crc_ >> static_cast<unsigned>(shift) & 15U];
    return text;
  }

 private:
  const InputFile& file_;
  std::vector<std::byte>& buffer_;
  std::uint32_t crc_ = 0;
};

void stamp(const stdfs::path& path, const Depth& depth, FileStamp& stamp, std::vector<std::byte>& buffer) {
  try {
    const InputFile file(path);
    Digest digest(file, buffer);
    if (file.size() <= depth.whole) {
      digest.add(0, file.size());
    } else {
      digest.add(0, depth.edge);
      for (std::uint64_t i = 1; i <= depth.samples; ++i) {
        digest.add((file.size() - depth.sample) / (depth.samples + 1) * i, depth.sample);
      }
      digest.add(file.size() - depth.edge, depth.edge);
    }
    stamp.size = file.size();
    stamp.modified_ns = file.modified_ns();
    stamp.digest = std::string(1, depth.kind) + ':' + digest.hex();
  } catch (const Error&) {
    // The error is ignored, because reading the file as data will report it.
  }
}

}  // namespace

std::vector<std::string> relative_names(std::span<const stdfs::path> files) {
  std::error_code failure;  // an error is ignored, because the current folder may have been removed
  const stdfs::path here = stdfs::current_path(failure);
  std::vector<std::string> names;
  for (const stdfs::path& file : files) names.push_back((here / file).lexically_normal().generic_string());
  const auto folder_of = [](const std::string& name) { return std::string_view(name).substr(0, name.rfind('/') + 1); };
  std::string common(names.empty() ? std::string_view() : folder_of(names.front()));
  for (const std::string& name : names) {
    if (name.starts_with(common) && name.find('/', common.size()) == std::string::npos) continue;
    const std::string_view folder = folder_of(name);
    const auto apart = std::mismatch(common.begin(), common.end(), folder.begin(), folder.end()).first;
    common.erase(apart, common.end());
    common.resize(common.rfind('/') + 1);
  }
  for (std::string& name : names) name.erase(0, common.size());
  return names;
}

std::string content_text(const FileStamp& stamp) {
  if (stamp.digest.empty()) return {};
  return std::to_string(stamp.size) + ' ' + stamp.digest + ' ' + std::to_string(stamp.modified_ns);
}

std::vector<FileStamp> stamps_of(std::span<const stdfs::path> files) { return stamps_of(files, relative_names(files)); }

std::vector<FileStamp> stamps_of(std::span<const stdfs::path> files, std::vector<std::string> names) {
  MR_CHECK(names.size() == files.size(), "each file must have a name");
  const Depth& depth =
      *std::find_if(kDepths.begin(), kDepths.end(), [&](const Depth& d) { return files.size() <= d.most_files; });
  std::vector<FileStamp> stamps(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) stamps[i].name = std::move(names[i]);
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    std::vector<std::byte> buffer;
    for (std::size_t i = next++; i < files.size(); i = next++) {
      stamp(files[i], depth, stamps[i], buffer);
      doing_moved();
    }
  };
  // There may be more threads than cores, because the threads mostly wait for the disk.
  constexpr std::size_t kFilesPerThread = 32;
  constexpr std::size_t kMostThreads = 8;
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < std::min(kMostThreads, files.size() / kFilesPerThread)) {
      threads.emplace_back([&work] {
        block_signals_in_this_thread();
        work();
      });
    }
  } catch (const std::system_error&) {  // if the system allows no more threads, the threads that have started do the work
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return stamps;
}

}  // namespace millrace::data
