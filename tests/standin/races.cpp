#include "races.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace millrace::standin {
namespace {

struct Use {
  std::size_t line = 0;
  std::uint32_t sequence = 0;
  std::string name;
};

struct Part {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  Use write;
  std::vector<Use> reads;  // one of each stream, since the write
};

struct WatchedBlock {
  const std::byte* end = nullptr;
  std::size_t line = 0;  // whose work it was made for
  std::set<std::size_t> kept_for;
  std::vector<Part> parts;
};

bool is_after(const Use& use, const Clock& clock) { return use.sequence <= clock.at(use.line); }

std::string words(const std::string& name, std::size_t line, bool written, const Use& other, bool other_wrote) {
  return name + " on " + name_of_stream(line) + (written ? " writes" : " reads") + " memory that " + other.name + " on " +
         name_of_stream(other.line) + (other_wrote ? " writes" : " reads") + ", and no event orders the two";
}

// What of `parts` lies between two addresses.
std::vector<Part> within(const std::vector<Part>& parts, const std::byte* begin, const std::byte* end) {
  std::vector<Part> found;
  for (const Part& part : parts)
    if (part.begin < end && begin < part.end)
      found.push_back({std::max(part.begin, begin), std::min(part.end, end), part.write, part.reads});
  return found;
}

class Memory {
 public:
  std::string find(const Access& access, const Clock& clock, const std::string& name) {
    const std::scoped_lock lock(mutex_);
    const auto after = live_.upper_bound(access.begin);
    if (after == live_.begin() || access.begin >= std::prev(after)->second.end) return {};
    std::vector<Part>& parts = std::prev(after)->second.parts;
    std::string wrong;
    for (const Part& part : parts)
      if (part.begin < access.end && access.begin < part.end && wrong.empty()) wrong = problem(part, access, clock, name);
    const Use use{access.line, clock.at(access.line), name};
    if (access.written) {
      std::erase_if(parts, [&](const Part& part) { return access.begin <= part.begin && part.end <= access.end; });
      parts.push_back({access.begin, access.end, use, {}});
      return wrong;
    }
    const auto same = std::find_if(parts.begin(), parts.end(),
                                   [&](const Part& part) { return part.begin == access.begin && part.end == access.end; });
    if (same == parts.end()) {
      parts.push_back({access.begin, access.end, {}, {use}});
      return wrong;
    }
    const auto read =
        std::find_if(same->reads.begin(), same->reads.end(), [&](const Use& each) { return each.line == use.line; });
    if (read == same->reads.end()) {
      same->reads.push_back(use);
    } else {
      *read = use;
    }
    return wrong;
  }

  void begins(const std::byte* begin, const std::byte* end, std::size_t line) {
    const std::scoped_lock lock(mutex_);
    WatchedBlock block{.end = end, .line = line};
    auto old = freed_.upper_bound(begin);
    if (old != freed_.begin() && std::prev(old)->second.end > begin) --old;
    while (old != freed_.end() && old->first < end) {
      WatchedBlock rest = std::move(old->second);
      const std::byte* const from = old->first;
      old = freed_.erase(old);
      if (rest.line == line)
        for (const Part& part : within(rest.parts, begin, end)) block.parts.push_back(part);
      if (from < begin) freed_[from] = {begin, rest.line, {}, within(rest.parts, from, begin)};
      if (rest.end > end)
        old = freed_.insert_or_assign(end, WatchedBlock{rest.end, rest.line, {}, within(rest.parts, end, rest.end)}).first;
    }
    live_[begin] = std::move(block);
  }

  void keep_for(const std::byte* address, std::size_t line) {
    const std::scoped_lock lock(mutex_);
    const auto after = live_.upper_bound(address);
    if (after != live_.begin()) std::prev(after)->second.kept_for.insert(line);
  }

  void ends(const std::byte* begin) {
    const std::scoped_lock lock(mutex_);
    const auto at = live_.find(begin);
    if (at == live_.end()) return;
    WatchedBlock block = std::move(at->second);
    live_.erase(at);
    for (Part& part : block.parts) {
      std::erase_if(part.reads, [&](const Use& use) { return block.kept_for.contains(use.line); });
      if (block.kept_for.contains(part.write.line)) part.write = {};
    }
    freed_[begin] = std::move(block);
  }

 private:
  static std::string problem(const Part& part, const Access& access, const Clock& clock, const std::string& name) {
    if (!is_after(part.write, clock)) return words(name, access.line, access.written, part.write, true);
    if (!access.written) return {};
    for (const Use& read : part.reads)
      if (!is_after(read, clock)) return words(name, access.line, true, read, false);
    return {};
  }

  std::mutex mutex_;
  std::map<const std::byte*, WatchedBlock> live_;   // by their first byte
  std::map<const std::byte*, WatchedBlock> freed_;  // what was in them, until the memory is given away again
};

Memory& memory() {
  static auto* const kept = new Memory;
  return *kept;
}

}  // namespace

std::string find_race(const Access& access, const Clock& clock, const std::string& name) {
  return memory().find(access, clock, name);
}
void block_begins(const std::byte* begin, const std::byte* end, std::size_t line) { memory().begins(begin, end, line); }
void keep_for(const std::byte* address, std::size_t line) { memory().keep_for(address, line); }
void block_ends(const std::byte* begin) { memory().ends(begin); }

std::string name_of_stream(std::size_t line) {
  constexpr std::size_t kPerDevice = kStreams + 1;
  return "stream " + std::to_string(line % kPerDevice) + " of cuda:" + std::to_string(line / kPerDevice);
}

}  // namespace millrace::standin
