// Copies the output of a rank, line by line, to the rank's log and to the screen. On the screen, each line begins with the
// rank's number.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::cli {

class RankOutput {
 public:
  // `plain`: stdout is passed on without the rank's number, so that a program can parse JSON from it.
  RankOutput(int rank, const std::filesystem::path& log, bool plain);
  ~RankOutput();
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // The child's ends of the pipes. The caller closes them by close_child_ends() when the child has inherited them.
  [[nodiscard]] int child_out() const noexcept { return out_.write; }
  [[nodiscard]] int child_err() const noexcept { return err_.write; }
  void close_child_ends();
  [[nodiscard]] int out() const noexcept { return out_.read; }  // -1 after the child has closed its end
  [[nodiscard]] int err() const noexcept { return err_.read; }
  void take();  // copies the output that is available; never blocks
  // the first line of the rank's latest error message; "" = the rank printed no error
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] const std::filesystem::path& log() const noexcept { return log_path_; }

 private:
  struct Pipe {
    int read = -1, write = -1, screen = 1;
    std::string rest;  // a line that is not complete yet
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
