// Tests of tables in CSV files, and of the files of a folder.
#include "millrace/data/sources/csv_source.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "millrace/base/error.h"
#include "millrace/data/files/folder.h"
#include "millrace/data/sources/image_source.h"
#include "millrace/format/png.h"
#include "tests/support/mutants.h"
#include "tests/support/refusal.h"
#include "tests/support/test_sources.h"
#include "tests/support/test_support.h"

namespace millrace::data {
namespace {

namespace stdfs = std::filesystem;
using test::rows_of;
using testing::ElementsAre;
using testing::HasSubstr;
using Fields = std::vector<CsvField>;

class CsvSourceTest : public testing::Test {
 protected:
  CsvSourceTest() : folder_(stdfs::temp_directory_path() / ("millrace-csv-source-" + std::to_string(::getpid()))) {
    stdfs::create_directories(folder_);
  }
  ~CsvSourceTest() override { stdfs::remove_all(folder_); }
  [[nodiscard]] stdfs::path put(const std::string& name, const std::string& text) const {
    stdfs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  // The message of the error about a table.
  template <class E = DataError>
  [[nodiscard]] Message refusal(const std::string& text, const Fields& fields) const {
    const stdfs::path path = put("t.csv", text);
    Message message = refusal_message<E>([&] { const CsvSource source(path, fields); });
    EXPECT_EQ(message.next.empty(), message.what == "accepted");
    const std::size_t at = message.where.find(folder_.string());
    if (at == 0) message.where.erase(0, folder_.string().size() + 1);
    return message;
  }
  stdfs::path folder_;
};

TEST_F(CsvSourceTest, ColumnsBecomeFields) {
  const CsvSource source(put("t.csv", "\xEF\xBB\xBFname, a ,\"b, c\",label\r\n\"x\n1\",1.5,-2e3,7\r\n\r\ny,\" +0.25 \",nan,-1"),
                         Fields{{"x", {"b, c", "a"}}, {"a", {"a"}}, {.name = "label", .dtype = DType::i64}});
  EXPECT_EQ(source.size(), 2);
  EXPECT_THAT(source.fields(),
              ElementsAre(Field{"x", DType::f32, {2}}, Field{"a", DType::f32, {1}}, Field{"label", DType::i64, {}}));
  const std::vector<float> x = rows_of<float>(source, {1, 0});
  EXPECT_TRUE(std::isnan(x[0]));
  EXPECT_THAT(std::vector<float>(x.begin() + 1, x.end()), ElementsAre(0.25F, -2000.0F, 1.5F));
  EXPECT_THAT(rows_of<float>(source, {1, 0}, 0, 1), ElementsAre(0.25F, 1.5F));
  EXPECT_THAT(rows_of<std::int64_t>(source, {1, 0}, 0, 2), ElementsAre(-1, 7));
  EXPECT_EQ(source.describe(0), (folder_ / "t.csv").string() + " line 2");
  EXPECT_EQ(source.describe(1), (folder_ / "t.csv").string() + " line 5") << "a cell and an empty line are lines too";
  EXPECT_EQ(source.stamps().size(), 1U);
  EXPECT_EQ(source.fingerprint(), "csv 2 rows x f32[2] of \"b, c\",\"a\" a f32[1] of \"a\" label i64[] of \"label\"");
}

TEST_F(CsvSourceTest, MistakesNameFileLineAndColumn) {
  const Fields ab = {{"x", {"a", "b"}}};
  const Message word = refusal("a,b\n1,2\n3,high\n", ab);
  EXPECT_EQ(word.what, "column \"b\" holds \"high\", which is not a number");
  EXPECT_EQ(word.where, "t.csv line 3");
  EXPECT_EQ(refusal("a,b\n1, \n", ab).what, "column \"b\" is empty, which is not a number");
  EXPECT_EQ(refusal("a,b\n1,2 m\n", ab).what, "column \"b\" holds \"2 m\", which is not a number");
  EXPECT_EQ(refusal("a\n1.0\n", {{.name = "a", .dtype = DType::i64}}).what,
            "column \"a\" holds \"1.0\", which is not a whole number");
  EXPECT_EQ(refusal("a\n99999999999999999999\n", {{.name = "a", .dtype = DType::i64}}).what,
            "column \"a\" holds \"99999999999999999999\", which is not a whole number");
  EXPECT_EQ(refusal("a,b\n1,2\n3\n", ab).what, "the row has 1 cells, the header has 2");
  EXPECT_EQ(refusal("a,b\n1,\"2\n3,4\n", ab).what, "a quoted cell has no end");
  const Message absent = refusal("speed,angle\n1,2\n", {{"x", {"speeds"}}});
  EXPECT_EQ(absent.what, "the table has no column \"speeds\"");
  EXPECT_EQ(absent.next, "did you mean \"speed\"? columns, separated by commas: \"speed\", \"angle\"");
  EXPECT_EQ(refusal("a,b,a\n1,2,3\n", ab).what, "the table has two columns \"a\"");
  EXPECT_EQ(refusal("a,b\n", ab).what, "the table has no rows");
  EXPECT_EQ(refusal("", ab).what, "the table is empty");
  EXPECT_EQ(refusal<ConfigError>("a\n1\n", {{.name = "a", .dtype = DType::f64}}).what,
            "field \"a\" is asked for as f64, which a table can't give");
  EXPECT_LT(refusal("a\n" + std::string(100'000, 'z') + "\n", {{"x", {"a"}}}).what.size(), 200U);
}

TEST_F(CsvSourceTest, AnyBytesAreATableOrADataError) {
  std::string table = "a,b,\"c\"\n";
  for (int i = 0; i < 20; ++i) table += std::to_string(i) + ".5,\"1\",text\n";
  const stdfs::path path = folder_ / "mutant.csv";
  for (std::uint64_t k = 0; k < 500; ++k) {
    std::ofstream(path, std::ios::binary) << test::mutant(table, 8, k).bytes;
    try {
      const CsvSource source(path, {{"x", {"a", "b"}}});
      EXPECT_GE(source.size(), 1);
    } catch (const DataError&) {
    }
  }
}

TEST_F(CsvSourceTest, TablesOfSpreadsheetsAreRead) {
  const auto semicolons = put("semicolons.csv", "\xEF\xBB\xBF;x;n\r\n0;\"1,5\";1\r\n1;-0,125;2\r\n");
  const CsvSource source(semicolons, {{"x"}, {"n", {}, DType::i64}});
  EXPECT_THAT(rows_of<float>(source, {0, 1}, 0, 0), ElementsAre(1.5F, -0.125F));
  EXPECT_THAT(rows_of<std::int64_t>(source, {0, 1}, 0, 1), ElementsAre(1, 2));
  EXPECT_THAT(rows_of<float>(CsvSource(put("tabs.tsv", "x\tn\n2.5\t1\n"), {{"x"}}), {0}, 0, 0), ElementsAre(2.5F));
  const auto refused = [&](const std::string& table) {
    return refusal_message<DataError>([&] { const CsvSource read(put("bad.csv", table), {{"x"}}); }).what;
  };
  EXPECT_EQ(refused("n;x\n1;1,500\n"), "column \"x\" holds \"1,500\", which is not a number") << "1.5 or 1500";
  EXPECT_EQ(refused("n;x\n1;12,5\n2;1.500\n"),
            "the table holds \"12,5\" and \"1.500\", a decimal comma and a point; the point may mark decimals or thousands");
  EXPECT_EQ(refused("n;x\n1;2.5\n2;12,5\n").substr(0, 34), "the table holds \"12,5\" and \"2.5\", ");
  EXPECT_EQ(refused("n;x\n1;1e3\n2;12,5\n"), "accepted");
  EXPECT_EQ(refused("n,x\n1,\"1,5\"\n"), "column \"x\" holds \"1,5\", which is not a number");
  EXPECT_EQ(refused(std::string("\xFF\xFEx\0\n\0", 6)), "the table is UTF-16 text with a byte-order mark, not UTF-8");
}

// Infinity and the number of another row: both came out of a table without a word.
TEST_F(CsvSourceTest, NumbersThatFloatsDoNotHoldAreSaid) {
  const Message large = refusal("x\n1\n-1e39\n", {{"x"}});
  EXPECT_EQ(large.what, "column \"x\" holds \"-1e39\", which is too large for a 32-bit float");
  EXPECT_EQ(large.where, "t.csv line 3");
  EXPECT_EQ(refusal("x\n-inf\n3.4028234663852886e38\n", {{"x"}}).what, "accepted");
  const auto words = [&](const std::string& table, DType dtype) {
    return CsvSource(put("t.csv", table), {{.name = "x", .dtype = dtype}}).read_as();
  };
  EXPECT_EQ(words("x\n16777216\n16777217\n16777219\n", DType::f32),
            "3 rows of 1 column; column \"x\" is rounded to 32-bit floats: 16777217 becomes 16777216; a field of whole numbers "
            "would keep the number exactly");
  EXPECT_EQ(words("x\n16777217\n", DType::i64), "1 row of 1 column");
  EXPECT_EQ(words("x\n0.1\n6.02e23\nnan\n", DType::f32), "3 rows of 1 column");
}

TEST_F(CsvSourceTest, TablesWithoutNamesOrLineFeedsSayWhatToDo) {
  EXPECT_EQ(refusal("x,y\r1,2\r", {{"x"}}).what, "the table's lines end in carriage returns alone");
  const std::string next = refusal("1.5,2\n3,4\n", {{"x"}}).next;
  EXPECT_EQ(next, "the first row must name the columns, but it holds numbers; columns, separated by commas: \"1.5\", \"2\"");
  EXPECT_EQ(read_as(look_at_table(put("t.csv", "1.5,2\n3,4\n"))),
            "1 row of 2 columns, separated by commas; the first row, which names the columns, holds numbers");
  EXPECT_THAT(refusal("n;x\n1;1,500\n", {{"x"}}).next, HasSubstr("a comma may mark decimals or thousands"));
}

TEST_F(CsvSourceTest, FoldersAreClasses) {
  const std::vector<std::byte> pixels(4, std::byte{9});
  const std::string png = test::text_of(format::encode_png({2, 2, format::Pixels::gray}, pixels));
  for (const char* name :
       {"photos/dog/1.png", "photos/cat/b.png", "photos/cat/a.png", "photos/cat/.hidden.png", "photos/notes.txt"})
    static_cast<void>(put(name, png));
  const LabelledFiles photos = labelled_files_in(folder_ / "photos");
  EXPECT_THAT(photos.classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(photos.files,
              ElementsAre(folder_ / "photos/cat/a.png", folder_ / "photos/cat/b.png", folder_ / "photos/dog/1.png"));
  const ImageSource source(photos, {.height = 2, .width = 2, .pixels = Pixels::gray, .random_crop = false});
  EXPECT_THAT(source.fields(), ElementsAre(Field{"image", DType::f32, {1, 2, 2}}, Field{"label", DType::i64, {}}));
  EXPECT_THAT(rows_of<std::int64_t>(source, {2, 0, 1}, 0, 1), ElementsAre(1, 0, 0));
  EXPECT_NE(source.fingerprint(), ImageSource(photos.files, {.height = 2, .width = 2}).fingerprint());
  EXPECT_THAT(photos.notices,
              ElementsAre("1 of 3 names in " + (folder_ / "photos/cat").string() + " is left out: \".hidden.png\""));
  EXPECT_THAT(files_in(folder_ / "photos", {".txt"}), ElementsAre(folder_ / "photos/notes.txt"));
  static_cast<void>(put("mixed/B.PNG", png));
  static_cast<void>(put("mixed/a.png", png));
  static_cast<void>(put("mixed/._a.png", png));
  static_cast<void>(put("mixed/.DS_Store", png));
  static_cast<void>(put("mixed/__MACOSX/a.png", png));
  static_cast<void>(put("mixed/c.png/inside.txt", png));
  std::filesystem::create_symlink("../mixed", folder_ / "mixed/loop");
  std::filesystem::create_symlink("a.png", folder_ / "mixed/z.png");
  const FilesFound mixed = find_files(folder_ / "mixed", {".png"});
  EXPECT_THAT(mixed.files, ElementsAre(folder_ / "mixed/B.PNG", folder_ / "mixed/a.png", folder_ / "mixed/z.png"));
  EXPECT_EQ(mixed.left_out,
            "3 of 6 names in " + (folder_ / "mixed").string() + " are left out: \"._a.png\", \"c.png/\", \"loop/\"");
  const auto refused = [](const auto& act) { return refusal_message<DataError>([&] { static_cast<void>(act()); }).what; };
  EXPECT_EQ(refused([&] {
              return files_in(folder_ / "photos", {".nii", ".nii.gz"});
            }),
            "the folder holds no file *.nii, no file *.nii.gz");
  EXPECT_THAT(refused([&] { return files_in(folder_ / "none", {".nii"}); }), HasSubstr("can't be read"));
  EXPECT_EQ(refused([&] { return labelled_files_in(folder_ / "photos" / "cat"); }),
            "the folder holds no subfolder, but there must be at least two, one for each class");
}

}  // namespace
}  // namespace millrace::data
