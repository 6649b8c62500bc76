// Copies a rank's output, line by line, to its log and, prefixed with its number, to the screen.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::cli {

class RankOutput {
 public:
  // `plain`: stdout is not changed, so that a program can still parse JSON from it.
  RankOutput(int rank, const std::filesystem::path& log, bool plain);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // Pipe ends for the child; the caller closes them by close_child_ends() after the child has inherited them.
  [[nodiscard]] int child_out() const noexcept { return out_.write; }
  [[nodiscard]] int child_err() const noexcept { return err_.write; }
  void close_child_ends();
  [[nodiscard]] int out() const noexcept { return out_.read; }  // -1 after it has ended
  [[nodiscard]] int err() const noexcept { return err_.read; }
  void take();                                                                // copies available output; never waits
  [[nodiscard]] const std::string& error() const noexcept { return error_; }  // last line of an error's text; "" = none
  [[nodiscard]] const std::filesystem::path& log() const noexcept { return log_path_; }

 private:
  struct Pipe {
    int read = -1, write = -1, screen = 1;
    std::string rest;  // an incomplete line
  };
  void take(Pipe& pipe);
  void show(Pipe& pipe, const std::string& line);

  int rank_;
  bool plain_;
  std::filesystem::path log_path_;
  int log_ = -1;
  Pipe out_, err_;
  std::string error_;
};

}  // namespace millrace::cli
