#include "millrace/system/child.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <system_error>
#include <utility>

#include "millrace/base/format.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// Returns the file that contains this code: the running program, or a library of Millrace's in another program.
fs::path own_file() {
  Dl_info info{};
  link_map* object = nullptr;
  const bool known =
      ::dladdr1(reinterpret_cast<void*>(&own_file), &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) != 0;
  if (known && object->l_name != nullptr && *object->l_name != '\0') return object->l_name;
  std::error_code error;  // the linker's list has no name for the program itself
  return fs::read_symlink("/proc/self/exe", error);
}

}  // namespace

std::string find_beside(std::string_view name, const fs::path& built, const fs::path& installed) {
  const fs::path own = own_file();  // without /proc the name is "", and a program in the current folder is then not ours
  for (const fs::path& candidate : {own.empty() ? own : own.parent_path() / name, built, installed}) {
    if (::access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  return "";
}

std::string looked_for_beside(const fs::path& installed) {
  return "searched next to " + quoted(own_file().string()) + " and in " + quoted(installed.string());
}

SpawnActions::SpawnActions() {
  ::posix_spawn_file_actions_init(&files_);
  ::posix_spawnattr_init(&attributes_);
  ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t set;
  sigemptyset(&set);
  ::posix_spawnattr_setsigmask(&attributes_, &set);
  sigfillset(&set);
  ::posix_spawnattr_setsigdefault(&attributes_, &set);
}

SpawnActions::~SpawnActions() {
  ::posix_spawn_file_actions_destroy(&files_);
  ::posix_spawnattr_destroy(&attributes_);
}

Descriptor::~Descriptor() {
  if (value_ >= 0) ::close(value_);
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (value_ >= 0) ::close(value_);
    value_ = other.release();
  }
  return *this;
}

int Descriptor::release() noexcept { return std::exchange(value_, -1); }

std::string ending(int signal, int status) {
  if (signal == 0) return "exit status " + std::to_string(status);
  return "ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ")";
}

}  // namespace millrace
