#include "streams.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "accounts.h"
#include "races.h"
#include "recorder.h"

namespace millrace::standin {
namespace {

constexpr std::size_t kPerDevice = kStreams + 1;

thread_local int device_of_thread = 0;
thread_local std::array<c10::StreamId, kDevices> stream_of_thread{};

struct Item {
  std::uint32_t sequence = 0;
  std::uint64_t ticket = 0;  // in the order in which they were asked for, of all streams
  Copy copy;
  bool landed = false;
  std::uint64_t checksum = 0;  // of the source on the host when the copy landed
};

struct Line {
  std::uint32_t sequence = 0;
  Clock clock{};
  std::list<Item> items;  // not known to the host as done
};

std::uint64_t checksum(const void* memory, std::size_t bytes) {
  std::uint64_t sum = 14695981039346656037ULL;
  const auto* const at = static_cast<const unsigned char*>(memory);
  for (std::size_t i = 0; i < bytes; ++i) sum = (sum ^ at[i]) * 1099511628211ULL;
  return sum;
}

void merge(Clock& into, const Clock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into.at(i) = std::max(into.at(i), from.at(i));
}

c10::Stream stream_at(int device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device)), id);
}

class Order {
 public:
  Order() {
    const char* const seed = std::getenv("STANDIN_LATE");
    if (seed != nullptr) seed_ = std::strtoull(seed, nullptr, 10), picks_ = true;
  }

  void launch(std::size_t line) {
    const std::scoped_lock lock(mutex_);
    step(line);
    land_up_to(lines_.at(line).clock);
  }

  void copy(std::size_t line, Copy what) {
    const std::scoped_lock lock(mutex_);
    step(line);
    Line& own = lines_.at(line);
    own.items.push_back({.sequence = own.sequence, .ticket = ++tickets_, .copy = std::move(what)});
    if (!is_late()) land(own.items.back(), false);
  }

  void touch(const Access& access, const std::string& name) {
    std::string wrong;
    {
      const std::scoped_lock lock(mutex_);
      wrong = find_race(access, lines_.at(access.line).clock, name);
    }
    if (!wrong.empty()) mistake(wrong);
  }

  void record(Event& event, std::size_t line) {
    const std::scoped_lock lock(mutex_);
    event.clock = lines_.at(line).clock;
    event.recorded = true;
    event.queries = 0;
    event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  void block(const Event& event, std::size_t line) {
    const std::scoped_lock lock(mutex_);
    if (!event.recorded) return;
    merge(lines_.at(line).clock, event.clock);
    land_up_to(event.clock);
  }

  [[nodiscard]] bool query(Event& event) {
    constexpr int kPatience = 2;
    const std::scoped_lock lock(mutex_);
    if (event.recorded && has_late(event.clock) && event.queries++ < kPatience) return false;
    if (event.recorded) known(event.clock);
    return true;
  }

  [[nodiscard]] bool query(std::size_t line) {
    const std::scoped_lock lock(mutex_);
    const Clock clock = lines_.at(line).clock;
    if (has_late(clock)) return false;
    known(clock);
    return true;
  }

  void wait(const Event& event) {
    const std::scoped_lock lock(mutex_);
    if (event.recorded) known(event.clock);
  }

  void wait(std::size_t line) {
    const std::scoped_lock lock(mutex_);
    known(Clock(lines_.at(line).clock));
  }

  void wait_for_device(int device) {
    const std::scoped_lock lock(mutex_);
    Clock clock{};
    for (std::size_t i = 0; i < kPerDevice; ++i) merge(clock, lines_.at(static_cast<std::size_t>(device) * kPerDevice + i).clock);
    known(clock);
  }

  // The memory is looked at no more: it may be anybody's soon.
  void land_copies_of(const void* host) {
    const std::scoped_lock lock(mutex_);
    for (Line& line : lines_) {
      for (Item& item : line.items) {
        if (item.copy.host != host) continue;
        if (!item.landed) land(item, true);
        if (item.copy.deliver) item.copy.deliver();
        item.copy.deliver = nullptr;
        item.copy.host = nullptr;
      }
    }
  }

  void land_copies_of(const std::byte* begin, const std::byte* end, std::size_t line) {
    const std::scoped_lock lock(mutex_);
    for (Item& item : lines_.at(line).items)
      if (!item.landed && item.copy.device >= begin && item.copy.device < end) land(item, true);
  }

  [[nodiscard]] bool is_in_use(const void* host) {
    const std::scoped_lock lock(mutex_);
    return std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) { return uses(line, host); });
  }

 private:
  static bool uses(const Line& line, const void* host) {
    return std::any_of(line.items.begin(), line.items.end(), [&](const Item& item) { return item.copy.host == host; });
  }

  // What the host knows to be done is before whatever it asks for next.
  void step(std::size_t line) {
    Line& own = lines_.at(line);
    merge(own.clock, host_);
    own.clock.at(line) = ++own.sequence;
  }

  [[nodiscard]] bool is_late() {
    if (!picks_) return true;
    if (seed_ == 0) return false;
    std::uint64_t x = seed_ + 0x9e3779b97f4a7c15ULL * ++copies_;  // splitmix64
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return ((x ^ (x >> 31U)) & 1U) != 0;
  }

  void land(Item& item, bool late) {
    if (item.copy.to_device) deliver_to(static_cast<const std::byte*>(item.copy.host), item.copy.bytes);
    item.copy.land();
    item.landed = true;
    if (item.copy.to_device) item.checksum = checksum(item.copy.host, item.copy.bytes);
    if (late) count(Count::late_copies, item.copy.to_device ? "to the device" : "to the host");
  }

  // What came to the host before is there for a copy back, also where the host does not know it: streams have their order.
  void deliver_to(const std::byte* host, std::size_t bytes) {
    for (Line& line : lines_) {
      for (Item& item : line.items) {
        const auto* const target = static_cast<const std::byte*>(item.copy.host);
        if (!item.landed || !item.copy.deliver || target >= host + bytes || host >= target + item.copy.bytes) continue;
        item.copy.deliver();
        item.copy.deliver = nullptr;
      }
    }
  }

  // What one copy brings another may take away, also on another stream that waited for it: in the order they were asked for.
  void land_up_to(const Clock& clock) {
    std::vector<Item*> due;
    for (std::size_t i = 0; i < lines_.size(); ++i)
      for (Item& item : lines_.at(i).items)
        if (!item.landed && item.sequence <= clock.at(i)) due.push_back(&item);
    std::sort(due.begin(), due.end(), [](const Item* a, const Item* b) { return a->ticket < b->ticket; });
    for (Item* const item : due) land(*item, true);
  }

  [[nodiscard]] bool has_late(const Clock& clock) const {
    for (std::size_t i = 0; i < lines_.size(); ++i)
      for (const Item& item : lines_.at(i).items)
        if (!item.landed && item.sequence <= clock.at(i)) return true;
    return false;
  }

  // The host learns that everything up to `clock` is done.
  void known(const Clock& clock) {
    land_up_to(clock);
    merge(host_, clock);
    std::string wrong;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      auto& items = lines_.at(i).items;
      while (!items.empty() && items.front().sequence <= clock.at(i)) {
        const Item& item = items.front();
        if (item.copy.deliver) item.copy.deliver();
        if (item.copy.to_device && item.copy.host != nullptr && checksum(item.copy.host, item.copy.bytes) != item.checksum)
          wrong = "the source of a copy (" + std::to_string(item.copy.bytes) + " bytes, " + name_of_stream(i) +
                  ") was written again before the host knew that the copy was done";
        items.pop_front();
      }
    }
    if (!wrong.empty()) mistake(wrong);
  }

  std::mutex mutex_;
  std::array<Line, std::tuple_size_v<Clock>> lines_;
  Clock host_{};
  std::uint64_t seed_ = 0;
  std::uint64_t copies_ = 0;
  std::uint64_t tickets_ = 0;
  bool picks_ = false;
};

Order& order() {
  static auto* const kept = new Order;
  return *kept;
}

// "12,cublas" of a variable of the environment; 0 where it is not set.
struct Wish {
  explicit Wish(const char* variable) {
    const char* const text = std::getenv(variable);
    if (text == nullptr) return;
    char* end = nullptr;
    at = std::strtoull(text, &end, 10);
    if (*end == ',') kind = end + 1;
  }
  std::uint64_t at = 0;
  std::string kind;
};

}  // namespace

std::size_t line_of(c10::Stream stream) {
  return static_cast<std::size_t>(stream.device_index()) * kPerDevice + static_cast<std::size_t>(stream.id());
}

int current_device() { return device_of_thread; }

int exchange_device(int device) {
  TORCH_CHECK(device >= 0 && device < kDevices, "CUDA error: invalid device ordinal ", device);
  return std::exchange(device_of_thread, device);
}

c10::Stream current_stream(int device) { return stream_at(device, stream_of_thread.at(static_cast<std::size_t>(device))); }

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream before = current_stream(stream.device_index());
  stream_of_thread.at(static_cast<std::size_t>(stream.device_index())) = stream.id();
  return before;
}

c10::Stream stream_from_pool(int device) {
  static std::array<std::atomic<int>, kDevices> next{};
  const int id = 1 + next.at(static_cast<std::size_t>(device)).fetch_add(1) % (kStreams - 1);
  return stream_at(device, id);
}

void launch(int device, const std::string& name) {
  if (!computes_nothing()) fail_if_lost(name);
  refuse_stray(device, name);
  if (recorder(device) != nullptr) return count(Count::recorded, name);
  count(Count::launches, name);
  if (!computes_nothing()) in_order(device);
}

void in_order(int device) {
  refuse_stray(device, "work");
  order().launch(line_of(current_stream(device)));
}

void touch(int device, const std::byte* begin, const std::byte* end, bool written, const std::string& name) {
  order().touch({.begin = begin, .end = end, .written = written, .line = line_of(current_stream(device))}, name);
}

void copy_asynchronously(int device, Copy copy) {
  refuse_stray(device, "a copy");
  order().copy(line_of(current_stream(device)), std::move(copy));
}
void land_copies_of(const void* host) { order().land_copies_of(host); }
void land_copies_of(const std::byte* begin, const std::byte* end, std::size_t line) { order().land_copies_of(begin, end, line); }
bool is_in_use(const void* host) { return order().is_in_use(host); }

void record(Event& event, c10::Stream stream) {
  if (!record_in_recording(event, stream)) order().record(event, line_of(stream));
}
void block(const Event& event, c10::Stream stream) {
  if (!block_in_recording(event, stream)) order().block(event, line_of(stream));
}
bool query(Event& event) {
  refuse_recorded(event, "a look");
  refuse_in_recording("a look at an event");
  return order().query(event);
}
bool query(c10::Stream stream) {
  refuse_in_recording("a look at a stream");
  return order().query(line_of(stream));
}

void wait(const Event& event) {
  fail_if_lost("event");
  refuse_recorded(event, "a wait of the host");
  count(Count::event_waits, "");
  order().wait(event);
}

void wait(c10::Stream stream, const std::string& name) {
  fail_if_lost(name);
  count(Count::stream_waits, name);
  order().wait(line_of(stream));
}

void wait_for_device(int device) {
  fail_if_lost("device");
  count(Count::device_waits, "cuda:" + std::to_string(device));
  order().wait_for_device(device);
}

bool computes_nothing() {
  static const bool nothing = [] {
    const char* const kernels = std::getenv("STANDIN_KERNELS");
    return kernels != nullptr && std::string(kernels) == "none";
  }();
  return nothing;
}

void mistake(const std::string& text) {
  std::fprintf(stderr, "stand-in: %s\n", text.c_str());
  TORCH_CHECK(false, "stand-in: ", text);
}

void refuse_if_asked(int device, std::size_t bytes) {
  static const Wish wish("STANDIN_OUT_OF_MEMORY");
  static std::atomic<std::uint64_t> made{0};
  if (wish.at == 0 || made.fetch_add(1) + 1 != wish.at) return;
  std::fprintf(stderr, "stand-in: out of memory, as asked, at allocation %llu on cuda:%d\n",
               static_cast<unsigned long long>(wish.at), device);
  if (wish.kind == "cublas") TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`");
  if (wish.kind == "cudnn") TORCH_CHECK(false, "cuDNN error: CUDNN_STATUS_ALLOC_FAILED");
  if (wish.kind == "internal") TORCH_CHECK(false, "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR");
  constexpr int kOutOfMemory = 2;  // cudaErrorMemoryAllocation
  if (wish.kind == "driver")
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, kOutOfMemory,
                                "CUDA error: out of memory");
  C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate " + std::to_string(bytes) + " bytes.");
}

void fail_if_lost(const std::string& name) {
  static const Wish wish("STANDIN_LOST");
  static std::atomic<std::uint64_t> made{0};
  if (wish.at != 0 && made.fetch_add(1) + 1 >= wish.at)
    TORCH_CHECK(false, "CUDA error: unspecified launch failure (", name, ", as the test asked)");
}

}  // namespace millrace::standin
