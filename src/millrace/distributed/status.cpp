#include "millrace/distributed/status.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "millrace/base/doing.h"
#include "millrace/base/error.h"

namespace millrace::distributed {
namespace {

constexpr std::size_t kPage = 8192, kText = 1024, kPath = 4096;

// A text that another process may read while this process writes it. The version is odd during a write.
template <std::size_t size>
class SharedText {
 public:
  void write(std::string_view text) noexcept {
    version_.fetch_add(1, std::memory_order_acq_rel);
    const std::size_t length = std::min(text.size(), size - 1);
    for (std::size_t i = 0; i < length; ++i) bytes_[i].store(text[i], std::memory_order_relaxed);
    bytes_[length].store('\0', std::memory_order_relaxed);
    version_.fetch_add(1, std::memory_order_release);
  }
  [[nodiscard]] std::string read() const {
    constexpr int kTries = 100;  // limited, because the version stays odd if a rank was killed while it wrote
    std::string text;
    for (int i = 0; i < kTries; ++i) {
      const std::uint32_t before = version_.load(std::memory_order_acquire);
      text.clear();
      for (std::size_t at = 0; at < size; ++at) {
        const char byte = bytes_[at].load(std::memory_order_relaxed);
        if (byte == '\0') break;
        text += byte;
      }
      std::atomic_thread_fence(std::memory_order_acquire);
      if (before % 2 == 0 && version_.load(std::memory_order_relaxed) == before) break;
    }
    return text;
  }

 private:
  std::atomic<std::uint32_t> version_;
  std::array<std::atomic<char>, size> bytes_;
};

struct Page {
  std::atomic<std::uint64_t> beat;
  std::atomic<bool> is_done;
  SharedText<kText> doing;
  SharedText<kPath> run_folder;
};
static_assert(sizeof(Page) <= kPage);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<char>::is_always_lock_free);

Page& page_at(void* memory, int index) {
  return *reinterpret_cast<Page*>(static_cast<char*>(memory) + static_cast<std::size_t>(index) * kPage);
}

}  // namespace

StatusPages::StatusPages(int ranks) : ranks_(ranks) {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * kPage;
  descriptor_ = ::memfd_create("millrace-status", 0);
  if (descriptor_ >= 0 && ::ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0)
    memory_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (memory_ != nullptr && memory_ != MAP_FAILED) return;
  const std::string reason = std::strerror(errno);
  if (descriptor_ >= 0) ::close(descriptor_);
  throw DistributedError(
      {"no memory could be shared with the ranks: " + reason, "memfd_create, mmap", "free memory or descriptors"});
}

StatusPages::~StatusPages() {
  ::munmap(memory_, static_cast<std::size_t>(ranks_) * kPage);
  ::close(descriptor_);
}

StatusPages::Status StatusPages::read(int local_rank) const {
  const Page& page = page_at(memory_, local_rank);
  return {
      .doing = page.doing.read(), .beat = page.beat.load(), .is_done = page.is_done.load(), .run_folder = page.run_folder.read()};
}

void StatusPages::clear() { std::memset(memory_, 0, static_cast<std::size_t>(ranks_) * kPage); }

struct StatusWriter::Parts {
  void* memory = nullptr;
  std::size_t bytes = 0;
  int local_rank = 0;
  std::mutex mutex;
  std::condition_variable wake;
  bool ends = false;
  std::thread thread;

  [[nodiscard]] Page& page() const { return page_at(memory, local_rank); }
  void write() const {
    std::array<char, kText> text{};
    describe_doing(text.data(), text.size());
    page().doing.write(text.data());
    page().beat.store(doing_beat());
  }
  void run() {
    constexpr auto kPause = std::chrono::milliseconds(50);
    std::unique_lock lock(mutex);
    while (!wake.wait_for(lock, kPause, [this] { return ends; })) write();
  }
};

StatusWriter::StatusWriter(const Environment& environment, int local_rank) {
  const char* value = environment(kStatusVariable);
  if (value == nullptr) return;
  int descriptor = -1;
  std::from_chars(value, value + std::strlen(value), descriptor);
  struct stat status {};
  const auto bytes = static_cast<std::size_t>(local_rank + 1) * kPage;
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0 || static_cast<std::size_t>(status.st_size) < bytes) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) return;
  parts_ = std::make_unique<Parts>();
  parts_->memory = memory;
  parts_->bytes = bytes;
  parts_->local_rank = local_rank;
  parts_->write();
  parts_->thread = std::thread([parts = parts_.get()] { parts->run(); });
}

StatusWriter::~StatusWriter() {
  if (!parts_) return;
  {
    const std::lock_guard lock(parts_->mutex);
    parts_->ends = true;
  }
  parts_->wake.notify_all();
  parts_->thread.join();
  parts_->write();
  ::munmap(parts_->memory, parts_->bytes);
}

void StatusWriter::run_folder(const std::string& path) {
  if (parts_) parts_->page().run_folder.write(path);
}

void StatusWriter::done() {
  if (parts_) parts_->page().is_done.store(true);
}

}  // namespace millrace::distributed
