#include "recorder.h"

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "accounts.h"
#include "device_memory.h"
#include "entries.h"
#include "races.h"

namespace millrace::standin {

// The recorded work and its memory.
class Tape {
 public:
  Tape(int device, std::uint64_t number) : device_(device), number_(number) {}
  ~Tape() {
    if (is_shelved_) {
      const std::scoped_lock lock(shelf_mutex());
      std::erase(shelf(), this);
    }
    for (const Block& block : made_) {
      if (line_) land_copies_of(block.begin, block.begin + block.bytes, *line_);
      let_go(block);
    }
  }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  // A thread's share of a sum depends on how many threads share it: each work keeps the number that it was launched with.
  void add(std::function<void()> work) { works_.push_back({std::move(work), at::get_num_threads()}); }
  void needs(const Block& block) {
    if (block.begin != nullptr && !births_.contains(block.birth)) needed_[block.birth] = block;
  }
  void made(const Block& block) {
    keep(block);
    births_.insert(block.birth);
    made_.push_back(block);
  }
  void draws() { draws_ = true; }
  // Of neighbours that are alike the first is enough.
  void launches(const std::string& name) {
    if (launched_.empty() ? is_update(name) : is_update(launched_.back()) != is_update(name)) launched_.push_back(name);
  }
  // The work is complete, and can be replayed from now on.
  void shelve() {
    const std::scoped_lock lock(shelf_mutex());
    shelf().push_back(this);
    is_shelved_ = true;
  }
  [[nodiscard]] bool has_draws() const { return draws_; }

  void replay() {
    fail_if_lost("a replay");
    count(Count::replays, "cuda:" + std::to_string(device_));
    end_of_step("a replay");
    if (computes_nothing()) {
      for (const std::string& name : launched_) end_of_step(name);
      return;
    }
    for (const auto& [birth, block] : needed_)
      if (block_of(block.begin).birth != birth)
        mistake("a replay needs a block of " + std::to_string(block.bytes) + " bytes on cuda:" + std::to_string(device_) +
                " whose tensor is gone");
    const c10::DeviceGuard guard(c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_)));
    line_ = line_of(current_stream(device_));
    in_order(device_);
    spoil_memory();
    run();
  }

 private:
  struct Work {
    std::function<void()> run;
    int threads = 1;
  };

  // On a GPU a later recording got the memory of this one's tensors that were gone by then.
  void spoil_memory() const {
    const std::scoped_lock lock(shelf_mutex());
    for (const Tape* const tape : shelf()) {
      if (tape->device_ != device_ || tape->number_ < number_) continue;
      for (const Block& block : tape->made_) {
        touch(device_, block.begin, block.begin + block.bytes, true, "a replay");
        spoil(block.begin, block.bytes);
      }
    }
  }

  void run() const {
    struct Threads {
      int before = at::get_num_threads();
      ~Threads() { set(before); }
      static void set(int threads) {
        if (at::get_num_threads() != threads) at::set_num_threads(threads);
      }
    } threads;
    for (const Work& work : works_) {
      Threads::set(work.threads);
      work.run();
    }
  }

  // All that can be replayed. Never destroyed: as the memory of devices.
  static std::vector<Tape*>& shelf() {
    static auto* const kept = new std::vector<Tape*>;
    return *kept;
  }
  static std::mutex& shelf_mutex() {
    static auto* const kept = new std::mutex;
    return *kept;
  }

  int device_;
  std::uint64_t number_;  // in the order in which they were recorded
  bool is_shelved_ = false;
  std::vector<Work> works_;
  std::vector<Block> made_;
  std::set<std::uint64_t> births_;  // of those
  std::map<std::uint64_t, Block> needed_;
  std::vector<std::string> launched_;  // where the steps of the account end
  std::optional<std::size_t> line_;    // of the last replay
  bool draws_ = false;
};

namespace {

std::mutex mutex;                                     // of the next
std::array<std::atomic<Recorder*>, kDevices> open{};  // by device
std::atomic<int> how_many_open = 0;
std::atomic<std::uint64_t> last_number = 0;
thread_local Recorder* work_of = nullptr;  // the recording whose work this thread is inside of

Recorder* open_on(int device) { return open.at(static_cast<std::size_t>(device)).load(); }

Recorder* here() {
  if (how_many_open == 0) return nullptr;
  if (work_of != nullptr) return work_of;
  for (int device = 0; device < kDevices; ++device)
    if (Recorder* const found = recorder(device)) return found;
  return nullptr;
}

class Replayed final : public device::Recording {
 public:
  explicit Replayed(std::unique_ptr<Tape> tape) : tape_(std::move(tape)) {}
  void replay() override {
    if (std::this_thread::get_id() != thread_) mistake("a recording is replayed by a thread that did not record it");
    refuse_in_recording("a replay");
    tape_->replay();
  }
  [[nodiscard]] bool draws() const override { return tape_->has_draws(); }

 private:
  std::unique_ptr<Tape> tape_;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace

Recorder::Recorder(int device) : device_(device), number_(++last_number), tape_(std::make_unique<Tape>(device, number_)) {
  lines_[line_of(stream())] = {};
  const std::scoped_lock lock(mutex);
  TORCH_CHECK(open_on(device) == nullptr, "stand-in: a recording is open on cuda:", device, " already");
  open.at(static_cast<std::size_t>(device)) = this;
  ++how_many_open;
}

Recorder::~Recorder() {
  const std::scoped_lock lock(mutex);
  open.at(static_cast<std::size_t>(device_)) = nullptr;
  --how_many_open;
}

c10::Stream Recorder::stream() const {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device_)), kRecordingStream);
}

void Recorder::add(std::function<void()> work) {
  const std::scoped_lock lock(mutex_);
  ++lines_.at(line_of(current_stream(device_))).launched;
  tape_->add(std::move(work));
}

void Recorder::needs(const void* address) {
  if (address == nullptr || device_of(address) < 0) return;
  const std::scoped_lock lock(mutex_);
  tape_->needs(block_of(address));
}

void Recorder::made(const void* memory) {
  const std::scoped_lock lock(mutex_);
  tape_->made(block_of(memory));
}

void Recorder::draws() {
  const std::scoped_lock lock(mutex_);
  tape_->draws();
}

void Recorder::launches(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  tape_->launches(name);
}

void Recorder::fail(const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

std::unique_ptr<Tape> Recorder::finish() {
  const std::scoped_lock lock(mutex_);
  TORCH_CHECK(failure_.empty(), "stand-in: the recording failed earlier: ", failure_);
  for (const auto& [line, progress] : lines_)
    TORCH_CHECK(line == line_of(stream()) || progress.joined >= progress.launched, "stand-in: can't be recorded: work on ",
                name_of_stream(line), " that the recording's stream does not wait for");
  tape_->shelve();
  return std::move(tape_);
}

bool Recorder::has(std::size_t line) {
  const std::scoped_lock lock(mutex_);
  return lines_.contains(line);
}

void Recorder::mark(Event& event, std::size_t line) {
  const std::scoped_lock lock(mutex_);
  event.recording = number_;
  event.line = line;
  event.launched = lines_.at(line).launched;
}

void Recorder::join(const Event& event, std::size_t line) {
  const std::scoped_lock lock(mutex_);
  ++lines_[line].launched;  // also a wait has to be joined
  if (event.line == line) return;
  Progress& earlier = lines_.at(event.line);
  earlier.joined = std::max(earlier.joined, event.launched);
}

Recorder* recorder(int device) {
  Recorder* const found = how_many_open == 0 ? nullptr : open_on(device);
  return found != nullptr && found->has(line_of(current_stream(device))) ? found : nullptr;
}

bool records_here() { return here() != nullptr; }

void refuse_in_recording(const std::string& what) {
  Recorder* const found = here();
  if (found == nullptr) return;
  found->fail(what);
  TORCH_CHECK(false, "stand-in: can't be recorded: ", what);
}

void refuse_stray(int device, const std::string& name) {
  if (work_of != nullptr && recorder(device) == nullptr)
    refuse_in_recording(name + " on " + name_of_stream(line_of(current_stream(device))) + ", which is not recorded");
}

bool record_in_recording(Event& event, c10::Stream stream) {
  event.recording = 0;
  Recorder* const found = open_on(stream.device_index());
  if (found == nullptr || !found->has(line_of(stream))) return false;
  found->mark(event, line_of(stream));
  return true;
}

bool block_in_recording(const Event& event, c10::Stream stream) {
  Recorder* const found = open_on(stream.device_index());
  if (event.recording != 0 && stream.id() == 0) refuse_recorded(event, "a wait of the default stream");
  const bool is_own = found != nullptr && event.recording == found->number();
  if (is_own) return found->join(event, line_of(stream)), true;
  refuse_recorded(event, "a wait of a stream");
  if (found == nullptr || !event.recorded || !found->has(line_of(stream))) return false;
  const std::string what = "a wait for an event of work that is not recorded";
  found->fail(what);
  TORCH_CHECK(false, "stand-in: can't be recorded: ", what);
}

void refuse_recorded(const Event& event, const std::string& what) {
  if (event.recording == 0) return;
  refuse_in_recording(what + " for an event of the recording");
  TORCH_CHECK(false, "stand-in: ", what, " for an event that is in a recording");
}

std::unique_ptr<device::Recording> record(int device, const std::function<void()>& work) {
  refuse_in_recording("a recording inside another");
  const char* const wanted = std::getenv("STANDIN_RECORDINGS");
  if (wanted != nullptr && std::string_view(wanted) == "none") return nullptr;
  Recorder recorder(device);
  {
    const c10::StreamGuard guard(recorder.stream());
    struct Inside {
      explicit Inside(Recorder* of) { work_of = of; }
      ~Inside() { work_of = nullptr; }
    } const inside(&recorder);
    work();
  }
  return std::make_unique<Replayed>(recorder.finish());
}

}  // namespace millrace::standin
