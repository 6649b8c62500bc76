#include "millrace/base/throw_site.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <utility>
#include <vector>

namespace millrace {
namespace {

struct Noted {
  const ThrowWatch* watch = nullptr;  // this thread's innermost watch
  std::size_t count = 0;
  std::array<std::uintptr_t, 64> callers;
};
thread_local Noted noted;

// The stack grows down, so the frames of calls made after a watch began have lower addresses than the watch.
_Unwind_Reason_Code note_caller(_Unwind_Context* context, void*) {
  if (_Unwind_GetCFA(context) > reinterpret_cast<std::uintptr_t>(noted.watch) || noted.count == noted.callers.size())
    return _URC_END_OF_STACK;
  noted.callers[noted.count++] = _Unwind_GetIP(context);
  return _URC_NO_REASON;
}

// The address range of the program itself, without its libraries.
struct Span {
  std::uintptr_t bias = 0, first = 0, last = 0;
};

Span program_span() {
  Span span;
  ::dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* out) {  // the first object is the program
        auto& found = *static_cast<Span*>(out);
        found.bias = object->dlpi_addr;
        for (int i = 0; i < object->dlpi_phnum; ++i) {
          const auto& part = object->dlpi_phdr[i];
          if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
          const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
          found.first = found.last == 0 ? begin : std::min(found.first, begin);
          found.last = std::max(found.last, begin + part.p_memsz);
        }
        return 1;
      },
      &span);
  return span;
}

std::string printed_by(std::vector<std::string> words) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 1; failure == 0 && got > 0;) {
    got = ::read(ends[0], buffer.data(), buffer.size());
    if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  if (failure == 0) ::waitpid(child, nullptr, 0);
  return text;
}

bool is_of_program(std::string_view file, std::span<const std::string_view> others) {
  const bool unknown = file.empty() || file.starts_with("?");
  if (unknown || file.ends_with("/base/throw_site.cpp") || file.find("/include/") != std::string_view::npos) return false;
  return std::none_of(others.begin(), others.end(),
                      [&](std::string_view other) { return file.find(other) != std::string_view::npos; });
}

// Returns the path and line in a line of addr2line, such as "/there/recipe.cpp:92 (discriminator 3)". A path below the current
// folder is made relative to it. "" if no line is known or the source does not belong to the program.
std::string place_of(std::string_view line, std::span<const std::string_view> others) {
  line = line.substr(0, line.find(' '));
  const std::size_t colon = line.rfind(':');
  if (colon == std::string_view::npos || !is_of_program(line.substr(0, colon), others)) return "";
  const std::string_view number = line.substr(colon + 1);
  if (number.empty() || number == "0" || number == "?") return "";
  const std::filesystem::path file(line.substr(0, colon));
  std::error_code none;
  const std::filesystem::path near = std::filesystem::proximate(file, none);
  const bool below = !none && !near.empty() && *near.begin() != "..";
  return (below ? near : file.lexically_normal()).string() + ":" + std::string(number);
}

}  // namespace

ThrowWatch::ThrowWatch() noexcept : outer_(std::exchange(noted.watch, this)) {}
ThrowWatch::~ThrowWatch() { noted.watch = outer_; }

void ThrowWatch::note() noexcept {
  if (noted.watch == nullptr) return;
  noted.count = 0;
  _Unwind_Backtrace(note_caller, nullptr);
}

std::string throw_site(std::span<const std::string_view> others) {
  const Span program = program_span();
  std::error_code none;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", none).string();
  std::vector<std::string> words = {"addr2line", "-i", "-e", path};
  for (std::size_t i = 0; i < noted.count; ++i) {
    const std::uintptr_t address = noted.callers[i];
    if (address <= program.first || address > program.last) continue;
    std::array<char, 24> text{};
    // Passes an address inside the call: one byte before the return address.
    std::snprintf(text.data(), text.size(), "0x%jx", static_cast<std::uintmax_t>(address - program.bias - 1));
    words.emplace_back(text.data());
  }
  noted.count = 0;
  if (none || words.size() == 4) return "";
  const std::string printed = printed_by(std::move(words));
  for (std::size_t begin = 0; begin < printed.size();) {
    const std::size_t end = std::min(printed.find('\n', begin), printed.size());
    if (std::string place = place_of(std::string_view(printed).substr(begin, end - begin), others); !place.empty()) return place;
    begin = end + 1;
  }
  return "";
}

}  // namespace millrace

// NOLINTNEXTLINE(bugprone-reserved-identifier,readability-identifier-naming): the ABI's name
extern "C" [[noreturn]] void __cxa_throw(void* thrown, void* type, void (*destroy)(void*)) {
  using Throw = void (*)(void*, void*, void (*)(void*));
  static const auto next = reinterpret_cast<Throw>(::dlsym(RTLD_NEXT, "__cxa_throw"));
  millrace::ThrowWatch::note();
  next(thrown, type, destroy);
  __builtin_unreachable();
}
