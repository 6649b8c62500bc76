#include "millrace/format/csv.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>

#include "tests/support/fault_fs.h"

namespace millrace::format {
namespace {

namespace stdfs = std::filesystem;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

class FileTest : public testing::Test {
 protected:
  FileTest() : folder_(stdfs::temp_directory_path() / ("millrace-csv-" + std::to_string(::getpid()))), path_(folder_ / "h.csv") {
    stdfs::create_directories(folder_);
  }
  ~FileTest() override { stdfs::remove_all(folder_); }
  [[nodiscard]] static std::string text(const stdfs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  CsvWriter writer(std::optional<std::int64_t> keep_through = std::nullopt) {
    return {Fs::real(), path_, {"step", "loss"}, warn(), keep_through};
  }
  Warn warn() {
    return [this](const std::string& line) { warnings_.push_back(line); };
  }
  stdfs::path folder_;
  stdfs::path path_;
  std::vector<std::string> warnings_;
};

using CsvTest = FileTest;
using LogFileTest = FileTest;

TEST(Csv, NumbersReadBackTheSame) {
  for (const double value : {0.1, 1e-300, 1.0 / 3, -0.0, 12345678901234567.0, std::numeric_limits<double>::denorm_min()}) {
    EXPECT_EQ(std::strtod(csv_number(value).c_str(), nullptr), value);
  }
  EXPECT_EQ(csv_number(0.1), "0.1");
  EXPECT_EQ(csv_number(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(csv_number(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(Csv, CellsOfAnyKindComeBack) {
  const std::vector<std::string> cells = {"", "a,b", "say \"x\"", "two\nlines", "\r", "plain", "\"", ""};
  const CsvTable table = parse_csv(csv_line(cells) + "\n" + csv_line(cells) + "\r\n");
  EXPECT_TRUE(table.complete);
  EXPECT_THAT(table.rows, ElementsAre(cells, cells));
  EXPECT_THAT(parse_csv("").rows, ElementsAre());
  EXPECT_FALSE(parse_csv("a,b").complete);
  EXPECT_FALSE(parse_csv("\"a\n").complete);
  EXPECT_THAT(parse_csv("a,").rows, ElementsAre(std::vector<std::string>{"a", ""}));
}

TEST_F(CsvTest, GoesOnWhereItWasWithoutRowsOfTheFuture) {
  {
    CsvWriter csv = writer();
    for (const int step : {1, 2, 3}) csv.row(step, std::vector<std::string>{csv_number(step * 0.5)});
  }
  EXPECT_EQ(text(path_), "step,loss\n1,0.5\n2,1\n3,1.5\n");
  std::ofstream(path_, std::ios::app) << "4,2.7";  // a kill cut the row, so some of its digits may be missing
  {
    CsvWriter csv = writer(2);
    csv.row(3, std::vector<std::string>{"9"});
  }
  EXPECT_EQ(text(path_), "step,loss\n1,0.5\n2,1\n3,9\n");
  writer();
  EXPECT_EQ(text(path_), "step,loss\n1,0.5\n2,1\n3,9\n");
  EXPECT_THAT(warnings_, ElementsAre());
}

TEST_F(CsvTest, OtherColumnsAreKeptAside) {
  std::ofstream(path_) << "step,other\n1,2\n";
  CsvWriter csv = writer();
  csv.row(1, std::vector<std::string>{"x"});
  EXPECT_EQ(text(path_), "step,loss\n1,x\n");
  EXPECT_EQ(text(path_.string() + ".old"), "step,other\n1,2\n");
}

TEST_F(CsvTest, ColumnsKeptAsideEarlierStay) {
  std::ofstream(path_.string() + ".old") << "step,first\n1,2\n";
  std::ofstream(path_) << "step,other\n3,4\n";
  writer();
  EXPECT_EQ(text(path_.string() + ".old"), "step,first\n1,2\n");
  EXPECT_EQ(text(path_.string() + ".old.2"), "step,other\n3,4\n");
}

TEST_F(CsvTest, AHeadCutByAKillIsWrittenAgain) {
  std::ofstream(path_) << "step,lo";
  CsvWriter csv = writer();
  csv.row(1, std::vector<std::string>{"x"});
  EXPECT_EQ(text(path_), "step,loss\n1,x\n");
}

TEST_F(CsvTest, NoFailureEscapes) {
  const auto run = [&](FaultFs& fs) {
    stdfs::remove(path_);
    std::ofstream(path_) << "step,loss\n1,0.5\n2,cut";
    warnings_.clear();
    CsvWriter csv(fs, path_, {"step", "loss"}, warn(), 1);
    for (const int step : {2, 3, 4}) csv.row(step, std::vector<std::string>{"7"});
  };
  FaultFs counting(Fs::real());
  run(counting);
  EXPECT_EQ(text(path_), "step,loss\n1,0.5\n2,7\n3,7\n4,7\n");
  ASSERT_GT(counting.calls(), 5);
  for (std::int64_t k = 0; k < counting.calls(); ++k) {
    FaultFs fs(Fs::real(), {.fail_at = k, .tears_write = true});
    run(fs);
    if (fs.log().size() > static_cast<std::size_t>(k) && !fs.log()[static_cast<std::size_t>(k)].starts_with("close")) {
      EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the run continues"))) << fs.log()[static_cast<std::size_t>(k)];
    }
    // The last call closes the file, and the call before it writes the last row.
    if (k + 2 < counting.calls()) {
      EXPECT_THAT(text(path_), EndsWith("4,7\n")) << "writing must go on after call " << k << " failed";
    }
  }
}

TEST_F(LogFileTest, EndsACutLineAndReportsOnce) {
  const stdfs::path path = folder_ / "log";
  std::ofstream(path) << "half";
  {
    FaultFs fs(Fs::real(), {.capacity = 12});
    LogFile file(fs, path, warn());
    EXPECT_TRUE(file.write_line("1234567"));
    EXPECT_FALSE(file.write_line("abcdef"));
    EXPECT_FALSE(file.write_line("ghi"));
    EXPECT_EQ(file.failures(), 2);
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("No space left on device")));
    EXPECT_THAT(warnings_.front(), HasSubstr(path.string()));
  }
  EXPECT_THAT(warnings_.back(), HasSubstr("2 writes to"));
  LogFile file(Fs::real(), path, warn());
  EXPECT_TRUE(file.write_line("after"));
  EXPECT_EQ(text(path).substr(0, 13), "half\n1234567\n");
  EXPECT_THAT(text(path), EndsWith("\nafter\n"));
}

}  // namespace
}  // namespace millrace::format
