// Finds Millrace's other programs, starts them as processes, and describes how the processes ended.
#pragma once

#include <spawn.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace millrace {

// Returns the path of the program `name`; "" if it is not found. Looks next to the running program (or next to the library that
// contains this code), then in the build folder, then in the install folder.
[[nodiscard]] std::string find_beside(std::string_view name, const std::filesystem::path& built,
                                      const std::filesystem::path& installed);
// Returns the text for the error message if the program was not found: "searched next to "/usr/bin/millrace" and in …".
[[nodiscard]] std::string looked_for_beside(const std::filesystem::path& installed);

// Settings for posix_spawn: default signals, all unblocked, and a separate process group. So an interrupt from the terminal
// reaches only the training program, which ends the child when it no longer needs the child. The caller adds descriptors to
// files().
class SpawnActions {
 public:
  SpawnActions();
  ~SpawnActions();
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  posix_spawn_file_actions_t* files() noexcept { return &files_; }
  posix_spawnattr_t* attributes() noexcept { return &attributes_; }

 private:
  posix_spawn_file_actions_t files_{};
  posix_spawnattr_t attributes_{};
};

// A descriptor that is closed when the object is destroyed.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) noexcept : value_(value) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : value_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return value_; }
  int release() noexcept;

 private:
  int value_;
};

// "ended by signal 11 (Segmentation fault)" or, if `signal` is 0, "exit status 3".
[[nodiscard]] std::string ending(int signal, int status);

}  // namespace millrace
