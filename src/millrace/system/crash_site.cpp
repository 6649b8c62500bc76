#include "millrace/system/crash_site.h"

#include <fcntl.h>
#include <link.h>
#include <spawn.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

struct Module {
  std::uintptr_t bias = 0, first = 0, last = 0;
  std::array<char, 48> name{};
};

// The program and its libraries. Libraries that are loaded later are not in the list, because the handler would need a lock to
// list them.
struct Modules {
  std::array<Module, 128> all{};  // the first one is the program
  std::size_t count = 0;
  std::array<char, 4096> program{};
  std::size_t program_size = 0;
  posix_spawn_file_actions_t silent{};  // file actions for addr2line, made before a crash, because this allocates memory
  bool ready = false;
};
constinit Modules modules;

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }

int note_module(dl_phdr_info* object, std::size_t, void*) {
  if (modules.count == modules.all.size()) return 1;
  Module& module = modules.all[modules.count++];
  module.bias = object->dlpi_addr;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    module.first = module.last == 0 ? begin : std::min(module.first, begin);
    module.last = std::max(module.last, begin + part.p_memsz);
  }
  const std::string_view name = last_part(object->dlpi_name == nullptr ? "" : object->dlpi_name);
  std::memcpy(module.name.data(), name.data(), std::min(name.size(), module.name.size() - 1));
  return 0;
}

const Module* module_of(std::uintptr_t address) {
  for (std::size_t i = 0; i < modules.count; ++i) {
    if (address >= modules.all[i].first && address < modules.all[i].last) return &modules.all[i];
  }
  return nullptr;
}

std::uintptr_t fault_address([[maybe_unused]] const void* context) {
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.pc);
#else
  return 0;
#endif
}

}  // namespace

std::uintptr_t stack_pointer([[maybe_unused]] const void* context) noexcept {
  if (context == nullptr) return 0;
#if defined(__x86_64__)
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RSP]);
#elif defined(__aarch64__)
  return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.sp);
#else
  return 0;
#endif
}

namespace {

struct Walk {
  std::uintptr_t fault;
  bool below_handler = false;  // true: the walk has passed the frames of the handler itself
  CrashSite* site;
};

_Unwind_Reason_Code note_frame(_Unwind_Context* context, void* of) {
  Walk& walk = *static_cast<Walk*>(of);
  int before = 0;
  const std::uintptr_t address = _Unwind_GetIPInfo(context, &before);
  walk.below_handler = walk.below_handler || address == walk.fault;
  const Module* module = walk.below_handler ? module_of(address) : nullptr;
  if (module != &modules.all.front()) return _URC_NO_REASON;
  CrashSite& site = *walk.site;
  site.calls[site.count++] = address - module->bias - (before == 0 ? 1 : 0);
  return site.count == site.calls.size() ? _URC_END_OF_STACK : _URC_NO_REASON;
}

bool is_authors(std::string_view file) {
  if (file.empty() || file.front() == '?') return false;
  return file.find("/include/") == std::string_view::npos && file.find("/src/millrace/") == std::string_view::npos;
}

// Returns the path without "folder/..", written into `room`.
std::string_view collapsed(std::string_view path, std::span<char> room) {
  std::size_t used = 0;
  for (std::size_t i = 0; i < path.size() && used < room.size();) {
    if (path.substr(i).starts_with("/../") && used > 0) {
      while (used > 0 && room[--used] != '/') continue;
      i += 3;
    } else {
      room[used++] = path[i++];
    }
  }
  return {room.data(), used};
}

// Returns "/there/recipe.cpp:92" from addr2line's "/there/recipe.cpp:92 (discriminator 3)"; "" if the line is not in the
// author's source.
std::string_view place_in(std::string_view line) {
  line = line.substr(0, line.find(' '));
  const std::size_t colon = line.rfind(':');
  if (colon == std::string_view::npos || !is_authors(line.substr(0, colon))) return "";
  const std::string_view number = line.substr(colon + 1);
  return number.empty() || number == "0" || number == "?" ? std::string_view() : line;
}

// Returns the standard output of addr2line. The child inherits the pipe as standard output: the process is about to end, so its
// own standard output may become the pipe. A list of descriptors for the child could be made only with an allocation.
std::string_view printed_by_addr2line(const CrashSite& site, std::span<char> room) {
  static std::array<std::array<char, 24>, std::tuple_size_v<decltype(site.calls)>> numbers;
  static char name[] = "addr2line", inlined[] = "-i", of[] = "-e";
  std::array<char*, numbers.size() + 5> words{name, inlined, of, modules.program.data()};
  for (std::size_t i = 0; i < site.count; ++i) {
    numbers[i] = {};
    HandlerText({numbers[i].data(), numbers[i].size() - 1}).add_hex(site.calls[i]);
    words[4 + i] = numbers[i].data();
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return "";
  ::dup2(ends[1], STDOUT_FILENO);
  ::close(ends[1]);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, name, &modules.silent, nullptr, words.data(), environ);
  const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nothing, STDOUT_FILENO);  // closes this process's last writing end of the pipe, so that reading can end
  std::size_t used = 0;
  for (ssize_t got = 1; failure == 0 && got > 0 && used < room.size();
       used += static_cast<std::size_t>(std::max<ssize_t>(got, 0)))
    got = ::read(ends[0], room.data() + used, room.size() - used);
  ::close(ends[0]);
  if (failure == 0) ::waitpid(child, nullptr, 0);
  return {room.data(), used};
}

}  // namespace

void prepare_crash_sites() noexcept {
  if (modules.ready) return;
  ::dl_iterate_phdr(note_module, nullptr);
  const ssize_t size = ::readlink("/proc/self/exe", modules.program.data(), modules.program.size() - 1);
  modules.program_size = static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  ::posix_spawn_file_actions_init(&modules.silent);
  ::posix_spawn_file_actions_addopen(&modules.silent, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  modules.ready = true;
}

CrashSite crash_site(const void* context) noexcept {
  CrashSite site;
  if (!modules.ready || context == nullptr) return site;
  Walk walk{.fault = fault_address(context), .site = &site};
  if (const Module* module = module_of(walk.fault)) {
    site.in_program = module == &modules.all.front();
    site.library = site.in_program ? program_name() : std::string_view(module->name.data());
  }
  _Unwind_Backtrace(note_frame, &walk);
  return site;
}

std::string_view program_path() noexcept { return {modules.program.data(), modules.program_size}; }
std::string_view program_name() noexcept { return last_part(program_path()); }

bool add_author_line(const CrashSite& site, HandlerText& text) noexcept {
  if (site.count == 0 || modules.program_size == 0) return false;
  static std::array<char, 16384> room;
  static std::array<char, 4096> folder, short_path;
  std::string_view rest = printed_by_addr2line(site, room);
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view place = place_in(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (place.empty()) continue;
    place = collapsed(place, short_path);
    const char* here = ::getcwd(folder.data(), folder.size() - 1);
    const std::string_view current = here == nullptr ? "" : here;
    const bool below = !current.empty() && place.starts_with(current) && place.substr(current.size()).starts_with('/');
    text.add(below ? place.substr(current.size() + 1) : place);
    return true;
  }
  return false;
}

}  // namespace millrace
