#include "millrace/telemetry/run_log.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

#include "millrace/base/hash.h"
#include "tests/support/fault_fs.h"

namespace millrace::telemetry {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string text_of(const stdfs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class RunFilesTest : public testing::Test {
 protected:
  RunFilesTest() : folder_(stdfs::temp_directory_path() / ("millrace-telemetry-" + std::to_string(::getpid()))) {
    stdfs::create_directories(folder_);
  }
  ~RunFilesTest() override { stdfs::remove_all(folder_); }
  std::function<void(const std::string&)> warn() {
    return [this](const std::string& line) { warnings_.push_back(line); };
  }
  [[nodiscard]] std::vector<Json> lines() const {
    std::vector<Json> result;
    std::istringstream text(text_of(folder_ / "log.jsonl"));
    for (std::string line; std::getline(text, line);) result.push_back(Json::parse(line, nullptr, false));
    return result;
  }
  [[nodiscard]] std::vector<stdfs::path> files() const {
    std::vector<stdfs::path> result;
    for (const auto& entry : stdfs::directory_iterator(folder_)) result.push_back(entry.path());
    std::sort(result.begin(), result.end());
    return result;
  }
  stdfs::path folder_;
  std::vector<std::string> warnings_;
};

using RunLogTest = RunFilesTest;
using EventWriterTest = RunFilesTest;

TEST_F(RunLogTest, WritesOneObjectALineAndGoesOnAfterACrash) {
  {
    RunLog log(Fs::real(), folder_ / "log.jsonl", warn());
    log.write("start", {{"seed", 7}});
    log.write("step", {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"text", "\xFF"}});
  }
  std::ofstream(folder_ / "log.jsonl", std::ios::app) << R"({"kind":"st)";
  {
    RunLog log(Fs::real(), folder_ / "log.jsonl", warn());
    log.write("step", 5);
  }
  const std::vector<Json> all = lines();
  ASSERT_EQ(all.size(), 4U);
  EXPECT_EQ(all[0].at("kind"), "start");
  EXPECT_EQ(all[0].at("seed"), 7);
  EXPECT_GE(all[1].at("time").get<double>(), all[0].at("time").get<double>());
  EXPECT_TRUE(all[1].at("loss").is_null());
  EXPECT_TRUE(all[2].is_discarded());
  EXPECT_EQ(all[3].at("value"), 5);
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(RunLogTest, AFullDiskIsReportedOnceAndWritingResumes) {
  FaultFs fs(Fs::real(), {.fail_at = 2, .error_number = 28});
  RunLog log(fs, folder_ / "log.jsonl", warn());
  for (int i = 0; i < 5; ++i) log.write("step", {{"i", i}});
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("No space left on device")));
  EXPECT_EQ(lines().size(), 4U);
  EXPECT_EQ(lines().back().at("i"), 4);
}

// The disk reserves space for the end line, but the file's size does not include it. So after a kill the file contains only its
// lines.
TEST_F(RunLogTest, RoomForTheEndIsKeptBehindTheFile) {
  RunLog log(Fs::real(), folder_ / "log.jsonl", warn());
  for (int i = 0; i < 200; ++i) log.write("step", {{"text", std::string(300, 'x')}});
  struct stat before {};
  struct stat after {};
  ASSERT_EQ(::stat((folder_ / "log.jsonl").c_str(), &before), 0);
  EXPECT_EQ(static_cast<std::uintmax_t>(before.st_size), text_of(folder_ / "log.jsonl").size());
  EXPECT_EQ(lines().size(), 200U);
  if (before.st_blocks * 512 < before.st_size + 8192) GTEST_SKIP() << "this file system keeps no room for a file";
  log.write("end", {{"error", std::string(8000, 'x')}});
  ASSERT_EQ(::stat((folder_ / "log.jsonl").c_str(), &after), 0);
  EXPECT_LE(after.st_blocks, before.st_blocks + 8) << "of 512 bytes: it is in the room";
  EXPECT_EQ(lines().back().at("kind"), "end");
}

TEST_F(RunLogTest, LinesOfSeveralThreadsDoNotMix) {
  RunLog log(Fs::real(), folder_ / "log.jsonl", warn());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) log.write("step", {{"thread", t}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<Json> all = lines();
  EXPECT_EQ(all.size(), 200U);
  EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](const Json& line) { return line.is_discarded(); }));
}

std::uint64_t number_at(std::string_view text, std::size_t at, int bytes) {
  std::uint64_t value = 0;
  for (int i = bytes; i-- > 0;) value = value << 8U | static_cast<unsigned char>(text[at + static_cast<std::size_t>(i)]);
  return value;
}

// The records of a TFRecord file; checks both checksums of each.
std::vector<std::string> records_of(const stdfs::path& path) {
  const std::string text = text_of(path);
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
    return std::uint32_t{std::rotr(crc, 15) + 0xA282EAD8U};
  };
  std::vector<std::string> records;
  for (std::size_t at = 0; at < text.size();) {
    const std::uint64_t length = number_at(text, at, 8);
    EXPECT_EQ(number_at(text, at + 8, 4), masked(text.substr(at, 8)));
    records.push_back(text.substr(at + 12, length));
    EXPECT_EQ(number_at(text, at + 12 + length, 4), masked(records.back()));
    at += length + 16;
  }
  return records;
}

TEST_F(EventWriterTest, RecordsAreFramedProtocolBuffers) {
  {
    EventWriter events(Fs::real(), folder_, warn());
    events.scalar("loss", 300, 0.5);
  }
  ASSERT_EQ(files().size(), 1U);
  EXPECT_THAT(files()[0].filename().string(),
              testing::MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\.[A-Za-z0-9_.-]+\\.[0-9]+"));
  const std::vector<std::string> records = records_of(files()[0]);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].substr(9),
            "\x1A\x0D"
            "brain.Event:2");
  // After the time: step = 300 (varint AC 02), summary { value { tag "loss", simple_value 0.5f } }.
  EXPECT_EQ(records[1].substr(9), std::string("\x10\xAC\x02"
                                              "\x2A\x0D"
                                              "\x0A\x0B"
                                              "\x0A\x04loss"
                                              "\x15\x00\x00\x00\x3F",
                                              18));
}

TEST_F(EventWriterTest, AfterAFailureANewFileHoldsTheRest) {
  FaultFs fs(Fs::real(), {.fail_at = 2, .tears_write = true});  // the calls are append, write, write
  {
    EventWriter events(fs, folder_, warn());
    for (const int step : {1, 2, 3}) {
      events.scalar("loss", step, step);
      events.flush();
    }
  }
  ASSERT_EQ(files().size(), 2U);
  EXPECT_EQ(records_of(files()[1]).size(), 2U) << "the version and step 3";
  EXPECT_EQ(warnings_.size(), 1U);
}

TEST_F(EventWriterTest, AFolderThatIsGoneStopsNothing) {
  EventWriter events(Fs::real(), folder_ / "none", warn());
  for (int i = 0; i < 5000; ++i) events.scalar("loss", i, 1);
  events.text("sample", 1, "text");
  events.flush();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("No such file or directory")));
}

}  // namespace
}  // namespace millrace::telemetry
