// Runs Python code with the packages of the test environment.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::interop {

struct PythonResult {
  int status = 0;
  std::string output;  // of stdout and stderr
};

// The interpreter; empty if there is no Python.
inline std::string python() {
  const char* named = std::getenv("MILLRACE_PYTHON");
  const std::filesystem::path path = named != nullptr ? named : MILLRACE_SOURCE_DIR "/.deps/venv/bin/python";
  return std::filesystem::exists(path) ? path.string() : "";
}

inline std::string shell_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// Runs `code` with `arguments` as sys.argv[1:].
inline PythonResult run_python(const std::string& code, const std::vector<std::string>& arguments = {},
                               const std::string& interpreter = python()) {
  std::string command = shell_quoted(interpreter) + " -c " + shell_quoted(code);
  for (const std::string& argument : arguments) command += " " + shell_quoted(argument);
  PythonResult result;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {-1, "can't start " + command};
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) result.output += static_cast<char>(c);
  result.status = ::pclose(pipe);
  return result;
}

// The interpreter in which `import torch` works without a GPU's libraries; empty if there is no such Python.
inline std::string torch_python() {
  const char* named = std::getenv("MILLRACE_PYTHON");
  const std::filesystem::path path = named != nullptr ? named : MILLRACE_SOURCE_DIR "/tools/python-peer";
  return python().empty() ? "" : path.string();
}

// The reason why a test can't run here; empty if `packages` can be imported.
inline std::string missing(const std::string& packages) {
  if (python().empty()) return "no Python: set MILLRACE_PYTHON, or run ./dev test once, which makes .deps/venv";
  const PythonResult result = run_python("import " + packages);
  return result.status == 0 ? "" : "Python lacks one of " + packages + ": " + result.output;
}

// A folder of this process, removed with the object.
class ScratchFolder {
 public:
  explicit ScratchFolder(const std::string& name)
      : path_(std::filesystem::temp_directory_path() / ("millrace-" + name + "-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace millrace::interop
