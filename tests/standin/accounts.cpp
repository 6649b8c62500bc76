#include "accounts.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "recorder.h"
#include "streams.h"

namespace millrace::standin {
namespace {

constexpr auto kCounts = static_cast<std::size_t>(Count::kEnd);
constexpr std::array<const char*, kCounts> kNames = {
    "launches",  "recorded", "replays",         "event_waits",     "stream_waits", "device_waits", "read_backs",
    "to_device", "to_host",  "pageable_copies", "blocking_copies", "late_copies",  "draws",        "allocations"};

struct Tally {
  std::array<std::uint64_t, kCounts> counts{};
  std::uint64_t bytes_to_device = 0;
  std::uint64_t bytes_to_host = 0;
  std::map<std::string, std::uint64_t> by_name;  // "read_backs _local_scalar_dense"

  [[nodiscard]] nlohmann::json as_json() const {
    nlohmann::json json;
    for (std::size_t i = 0; i < kCounts; ++i) json[kNames.at(i)] = counts.at(i);
    json["bytes_to_device"] = bytes_to_device;
    json["bytes_to_host"] = bytes_to_host;
    json["by_name"] = by_name;
    return json;
  }

  void add(const Tally& other) {
    for (std::size_t i = 0; i < kCounts; ++i) counts.at(i) += other.counts.at(i);
    bytes_to_device += other.bytes_to_device;
    bytes_to_host += other.bytes_to_host;
    for (const auto& [name, times] : other.by_name) by_name[name] += times;
  }
};

class Accounts {
 public:
  Accounts() {
    const char* const path = std::getenv("STANDIN_ACCOUNT");
    if (path != nullptr) path_ = path;
    is_timed_ = path == nullptr && computes_nothing();  // who measures what the host does wants no books kept
  }
  ~Accounts() {
    if (!path_.empty()) std::ofstream(path_) << as_json() << '\n';
  }
  Accounts(const Accounts&) = delete;
  Accounts& operator=(const Accounts&) = delete;

  void count(Count what, const std::string& name) {
    if (capturing_ && !can_be_captured(what))
      TORCH_CHECK(false, "stand-in: can't be captured: ", kNames.at(static_cast<std::size_t>(what)), " ", name);
    if (what != Count::draws && !can_be_captured(what))
      refuse_in_recording(kNames.at(static_cast<std::size_t>(what)) + (" " + name));
    if (is_timed_) return;
    const std::scoped_lock lock(mutex_);
    ++step_.counts.at(static_cast<std::size_t>(what));
    ++step_.by_name[kNames.at(static_cast<std::size_t>(what)) + (" " + name)];
  }

  void capture(bool on) { capturing_ = on; }

  void count_bytes(bool to_device, std::size_t bytes) {
    const std::scoped_lock lock(mutex_);
    (to_device ? step_.bytes_to_device : step_.bytes_to_host) += bytes;
  }

  void mark_step() {
    const std::scoped_lock lock(mutex_);
    total_.add(step_);
    steps_.push_back(step_.as_json());
    step_ = {};
  }

  [[nodiscard]] std::uint64_t counted(Count what) {
    const std::scoped_lock lock(mutex_);
    const auto at = static_cast<std::size_t>(what);
    return total_.counts.at(at) + step_.counts.at(at);
  }

  void reset() {
    const std::scoped_lock lock(mutex_);
    step_ = {};
    total_ = {};
    steps_.clear();
  }

  [[nodiscard]] std::string as_json() {
    const std::scoped_lock lock(mutex_);
    Tally all = total_;
    all.add(step_);
    return nlohmann::json{{"total", all.as_json()}, {"steps", steps_}, {"after", step_.as_json()}}.dump(1);
  }

 private:
  static bool can_be_captured(Count what) {
    return what == Count::launches || what == Count::recorded || what == Count::to_device || what == Count::to_host ||
           what == Count::late_copies || what == Count::allocations;
  }

  std::mutex mutex_;
  std::atomic<bool> capturing_ = false;
  std::string path_;
  bool is_timed_ = false;
  Tally step_;
  Tally total_;
  std::vector<nlohmann::json> steps_;
};

Accounts& accounts() {
  static Accounts kept;
  return kept;
}

}  // namespace

void count(Count what, const std::string& name) { accounts().count(what, name); }
void count_bytes(bool to_device, std::size_t bytes) { accounts().count_bytes(to_device, bytes); }
void capture(bool on) { accounts().capture(on); }
void mark_step() { accounts().mark_step(); }
std::uint64_t counted(Count what) { return accounts().counted(what); }
void reset_accounts() { accounts().reset(); }
std::string accounts_as_json() { return accounts().as_json(); }

}  // namespace millrace::standin
