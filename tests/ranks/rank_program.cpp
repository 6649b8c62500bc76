#include "rank_program.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>
#include <utility>

#include "small_runs.h"

namespace millrace::test {

namespace fs = std::filesystem;

namespace {

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

std::string value_in(const std::string& environment, const std::string& name) {
  std::size_t at = environment.find('\0' + name + "=");
  if (at == std::string::npos) return "";
  at += name.size() + 2;
  return environment.substr(at, environment.find('\0', at) - at);
}

}  // namespace

RankProgram::RankProgram(const std::string& recipe, fs::path program) : recipe_(recipe), program_(std::move(program)) {
  static int number = 0;
  folder_ = fs::temp_directory_path() / ("millrace-ranks-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  fs::create_directories(folder_);
  if (recipe == "grouped_regression") return;
  words_ = recipe == "cosmology" ? std::vector<std::string>{"--preset=smoke", "--recipe.ra_keep=32", "--log.images=false"}
                                 : small_run(recipe, folder_);
}

RankProgram::~RankProgram() { fs::remove_all(folder_); }

std::vector<std::string> RankProgram::words(const std::string& run, int ranks, int steps,
                                            const std::vector<std::string>& more) const {
  constexpr std::int64_t kGlobal = 8;
  std::vector<std::string> all = {"train",
                                  recipe_,
                                  "--run",
                                  (folder_ / run).string(),
                                  "--train.epochs=0",
                                  "--precision.dtype=fp32",
                                  "--device.layout=contiguous",
                                  "--device.kernels=ours",
                                  "--device.threads=1",
                                  "--train.validate_every=1000000",
                                  "--log.doctor=false"};
  all.insert(all.end(), words_.begin(), words_.end());
  all.push_back("--data.batch_size=" + std::to_string(kGlobal / ranks));
  all.push_back("--train.max_steps=" + std::to_string(steps));
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::vector<std::string> RankProgram::launched(int ranks, std::vector<std::string> words,
                                               const std::vector<std::string>& options) const {
  std::vector<std::string> all = {"launch", "--nproc", std::to_string(ranks), "--logs", (folder_ / "logs").string()};
  all.insert(all.end(), options.begin(), options.end());
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

pid_t RankProgram::start(const std::vector<std::string>& words, const Environment& environment, const std::string& output) {
  std::vector<std::string> all = {program_.string()};
  all.insert(all.end(), words.begin(), words.end());
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (::chdir(folder_.c_str()) != 0) ::_exit(126);
  const int out = ::open((folder_ / output).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0644);
  ::dup2(out, 1);
  ::dup2(out, 2);
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program_.c_str(), arguments.data());
  ::_exit(127);
}

int RankProgram::finish(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int RankProgram::run(const std::vector<std::string>& words, const Environment& environment) {
  return finish(start(words, environment));
}

std::string RankProgram::output(const std::string& name) const { return text_of(folder_ / name); }

std::string RankProgram::last_error() const {
  const std::string text = output();
  const std::size_t begin = text.rfind("warning");
  return begin == std::string::npos ? text : text.substr(begin);
}

pid_t RankProgram::rank_process(pid_t child, int rank) const {
  for (const pid_t process : processes_with(folder_.string())) {
    const std::string environment = '\0' + text_of("/proc/" + std::to_string(process) + "/environ");
    const std::string stat = text_of("/proc/" + std::to_string(process) + "/stat");
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos || std::atoi(stat.c_str() + end + 4) != child) continue;
    if (value_in(environment, "RANK") == std::to_string(rank)) return process;
  }
  return -1;
}

void RankProgram::wait_for_step(pid_t child, const std::string& run) const {
  constexpr int kEnough = 30;  // steps; what a rank does reaches the launcher twenty times a second
  const auto has_begun = [&] {
    const auto saved = snapshot::list(Fs::real(), folder_ / run);
    return std::ranges::any_of(saved, [](const auto& one) { return one.step >= kEnough; });
  };
  while (!has_begun() && ::kill(child, 0) == 0) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG | WNOWAIT) == child) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

snapshot::Content RankProgram::saved(const std::string& run) const {
  auto content = snapshot::load_newest(Fs::real(), folder_ / run, [](const fs::path&, const std::string&) {});
  if (!content) throw std::runtime_error("nothing was saved in " + run + ":\n" + output());
  return *std::move(content);
}

Json RankProgram::summary(const std::string& run) const { return Json::parse(text_of(folder_ / run / "summary.json")); }

double difference(const snapshot::Content& a, const snapshot::Content& b) {
  double largest = a.step == b.step && a.models.size() == b.models.size() ? 0 : 1e30;
  for (const auto& [model, tensors] : a.models) {
    for (const auto& [name, tensor] : tensors) {
      const at::Tensor other = b.models.at(model).at(name);
      if (tensor.numel() > 0) largest = std::max(largest, (tensor - other).abs().max().item().toDouble());
    }
  }
  return largest;
}

std::vector<pid_t> processes_with(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const int process = std::atoi(entry.path().filename().c_str());
    if (process <= 0 || process == ::getpid()) continue;
    if (text_of(entry.path() / "cmdline").find(text) != std::string::npos) found.push_back(process);
  }
  return found;
}

}  // namespace millrace::test
