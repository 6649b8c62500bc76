// Tests of token files, of windows over tokens, and of turning text into tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/base/hash.h"
#include "millrace/base/philox.h"
#include "millrace/data/files/text_tokens.h"
#include "millrace/data/files/token_array.h"
#include "millrace/data/loader/loader.h"
#include "millrace/data/sources/token_source.h"
#include "tests/support/fault_fs.h"
#include "tests/support/refusal.h"

namespace millrace::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TokenTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("millrace_tokens_" + std::to_string(::getpid()) + "_" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder_ / name, std::ios::binary) << bytes;
    return folder_ / name;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path token_file(const std::vector<std::uint32_t>& tokens, std::uint64_t vocab_size) const {
    TokenFileWriter writer(Fs::real(), folder_ / "a.tokens", vocab_size);
    writer.begin_document();
    writer.append(std::span(tokens).first(tokens.size() / 2));
    writer.begin_document();
    writer.append(std::span(tokens).subspan(tokens.size() / 2));
    writer.finish({{"fingerprint", "made by a test"}});
    return folder_ / "a.tokens";
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }

  std::filesystem::path folder_;
};

template <class T>
std::vector<T> tokens_of(const TokenArray& array) {
  std::vector<T> tokens(static_cast<std::size_t>(array.size()));
  array.read(0, array.size(), reinterpret_cast<std::byte*>(tokens.data()));
  return tokens;
}

TEST_F(TokenTest, files_give_back_what_was_written) {
  const auto narrow = TokenArray::open(token_file({5, 6, 7, 8, 65535}, 65536));
  EXPECT_EQ(narrow->token_bytes(), 2U);
  EXPECT_EQ(narrow->vocab_size(), 65536U);
  EXPECT_THAT(tokens_of<std::uint16_t>(*narrow), ElementsAre(5, 6, 7, 8, 65535));
  EXPECT_THAT(narrow->documents(), ElementsAre(0, 2));
  EXPECT_EQ(narrow->fingerprint(), "made by a test");
  const auto wide = TokenArray::open(token_file({5, 70'000, 7}, 70'001));
  EXPECT_EQ(wide->token_bytes(), 4U);
  EXPECT_THAT(tokens_of<std::uint32_t>(*wide), ElementsAre(5, 70'000, 7));
  EXPECT_THAT(TokenArray::open(token_file({}, 10))->documents(), ElementsAre(0, 0));
}

TEST_F(TokenTest, ids_outside_the_vocabulary_are_named_before_any_use) {
  std::vector<std::uint32_t> tokens(1'000'000, 3);
  tokens[700'001] = 10;
  tokens[800'000] = 11;
  const Message error = refusal_message<DataError>([&] { (void)TokenArray::open(token_file(tokens, 10)); });
  EXPECT_EQ(error.what, "token 700,001 of \"" + (folder_ / "a.tokens").string() + "\" is 10, but the vocabulary has 10 entries");
  EXPECT_EQ(error.where, "byte 1400002 of the tokens");
  EXPECT_THAT(refusal_message<DataError>([] {
                (void)TokenArray::in_memory(std::vector<std::uint16_t>{1, 9}, 9, {}, "x");
              }).what,
              HasSubstr("token 1 of tokens in memory is 9"));
}

TEST_F(TokenTest, bare_files_are_read_when_the_caller_says_how) {
  const std::string bytes("\x01\x00\x02\x00\x03\x01", 6);
  const auto tokens = TokenArray::open_bare(write("bare.bin", bytes), 2, 300);
  EXPECT_THAT(tokens_of<std::uint16_t>(*tokens), ElementsAre(1, 2, 259));
  EXPECT_THAT(refusal_message<DataError>([&] { (void)TokenArray::open_bare(write("odd.bin", bytes + "x"), 2, 300); }).what,
              HasSubstr("has 7 bytes, but each token takes 2"));
  EXPECT_THAT(refusal_message<DataError>([&] { (void)TokenArray::open_bare(write("bare.bin", bytes), 2, 259); }).what,
              HasSubstr("token 2 of"));
  EXPECT_THAT(refusal_message<DataError>([&] { (void)TokenArray::open_bare(write("none.bin", ""), 2, 259); }).what,
              HasSubstr("is empty"));
}

// Each of these was learned without a word: the header as ids, and every second id as 0.
TEST_F(TokenTest, files_that_do_not_hold_bare_ids_of_this_size_are_refused) {
  const auto refused = [&](const std::filesystem::path& path, std::size_t bytes) {
    return refusal_message<DataError>([&] { (void)TokenArray::open_bare(path, bytes, 50'257); }).what;
  };
  EXPECT_THAT(refused(write("a.npy", "\x93NUMPY\x01" + std::string(121, ' ')), 2), HasSubstr("is a .npy file, not bare ids"));
  EXPECT_THAT(refused(token_file({5, 6, 7, 8}, 50'257), 2), HasSubstr("is a token file of Millrace, not bare ids"));
  std::string wide;
  std::string sparse;
  for (int i = 0; i < 256; ++i) {
    wide += std::string(1, static_cast<char>(i)) + std::string(3, '\0');
    sparse += std::string(1, static_cast<char>(i)) + std::string(1, '\0') +
              (i == 9 ? std::string(1, '\1') : std::string(1, '\0')) + std::string(1, '\0');
  }
  EXPECT_THAT(refused(write("wide.bin", wide), 2), HasSubstr("seems to hold ids of more than 2 bytes: every second id"));
  EXPECT_EQ(TokenArray::open_bare(write("wide.bin", wide), 4, 256)->size(), 256);
  EXPECT_EQ(TokenArray::open_bare(write("sparse.bin", sparse), 2, 256)->size(), 512);
  EXPECT_EQ(TokenArray::open_bare(write("zeros.bin", std::string(1024, '\0')), 2, 256)->size(), 512);
}

TEST_F(TokenTest, things_that_are_no_files_are_refused) {
  EXPECT_THAT(refusal_message<DataError>([&] { (void)TokenArray::open(folder_); }).what, HasSubstr("is not a regular file"));
  EXPECT_THAT(refusal_message<DataError>([&] { (void)TokenArray::open(folder_ / "absent"); }).what,
              HasSubstr("can't be opened: No such file"));
  EXPECT_THAT(
      refusal_message<DataError>([&] {
        (void)TokenArray::open(write("text", "MRTOKEN but not really, only as long as the shortest one has to be ........."));
      }).what,
      HasSubstr("first bytes of another kind of file"));
}

// Changing any bit of the file must be noticed: in the header, tokens, padding, index, notes and footer.
TEST_F(TokenTest, every_flipped_bit_truncation_and_growth_is_noticed) {
  const std::string good = read(token_file({5, 6, 7, 8, 9}, 300));
  const auto path = folder_ / "mutant.tokens";
  write("mutant.tokens", good);
  const auto opens = [&](const std::string& bytes) {
    // The file is changed in place, because truncating and rewriting makes some file systems access the disk each time.
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
    std::filesystem::resize_file(path, bytes.size());
    return refusal_message<DataError>([&] { (void)TokenArray::open(path); }).what == "accepted";
  };
  ASSERT_TRUE(opens(good));
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string mutant = good;
    mutant[bit / 8] = static_cast<char>(mutant[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_FALSE(opens(mutant)) << "bit " << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size) ASSERT_FALSE(opens(good.substr(0, size))) << "cut to " << size;
  EXPECT_FALSE(opens(good + '\0'));
  Philox draw(7);
  for (int i = 0; i < 1000; ++i) {
    std::string mutant = good;
    for (std::uint64_t n = 1 + draw.below(8); n > 0; --n) mutant[draw.below(mutant.size())] = static_cast<char>(draw());
    if (mutant != good) {
      ASSERT_FALSE(opens(mutant));
    }
  }
}

// The footer has a false count and a correct checksum. The count must be compared with the file's size before anything is
// allocated.
TEST_F(TokenTest, counts_beyond_the_file_are_refused) {
  const std::string good = read(token_file({5, 6, 7, 8, 9}, 300));
  constexpr std::size_t kFooter = 48;
  for (std::size_t field = 0; field < 4; ++field) {
    for (const std::uint64_t lie : {std::uint64_t{0}, std::uint64_t{7}, std::uint64_t{1} << 32U, std::uint64_t{1} << 60U,
                                    std::uint64_t{1} << 61U, std::uint64_t{1} << 63U, ~std::uint64_t{0}}) {
      std::string mutant = good;
      std::string footer = mutant.substr(good.size() - kFooter);
      std::memcpy(footer.data() + field * 8, &lie, 8);
      const std::uint32_t crc = crc32c(std::as_bytes(std::span(footer).first(kFooter - 4)));
      std::memcpy(footer.data() + kFooter - 4, &crc, 4);
      mutant.replace(good.size() - kFooter, kFooter, footer);
      const auto path = write("mutant.tokens", mutant);
      const std::string what = refusal_message<DataError>([&] { (void)TokenArray::open(path); }).what;
      // Nothing else in the file contradicts a larger vocabulary.
      const bool larger_vocabulary = field == 2 && lie == std::uint64_t{1} << 32U;
      EXPECT_EQ(what == "accepted", larger_vocabulary) << "field " << field << " = " << lie << ": " << what;
    }
  }
}

TEST_F(TokenTest, large_files_are_read_where_they_lie_and_shrinking_is_noticed) {
  const std::size_t count = (std::size_t{33} << 20U);
  {
    TokenFileWriter writer(Fs::real(), folder_ / "large.tokens", 1000);
    std::vector<std::uint32_t> part(std::size_t{1} << 20U);
    for (std::size_t at = 0; at < count; at += part.size()) {
      for (std::size_t i = 0; i < part.size(); ++i) part[i] = static_cast<std::uint32_t>((at + i) % 997);
      writer.append(part);
    }
    writer.finish({{"fingerprint", "large"}});
  }
  const auto tokens = TokenArray::open(folder_ / "large.tokens");
  EXPECT_FALSE(tokens->in_memory());
  std::array<std::uint16_t, 3> some{};
  tokens->read(30'000'000, 3, reinterpret_cast<std::byte*>(some.data()));
  EXPECT_THAT(some, ElementsAre(30'000'000 % 997, 30'000'001 % 997, 30'000'002 % 997));
  std::filesystem::resize_file(folder_ / "large.tokens", 1'000'000);
  const Message error =
      refusal_message<DataError>([&] { tokens->read(30'000'000, 3, reinterpret_cast<std::byte*>(some.data())); });
  EXPECT_THAT(error.what, HasSubstr("has become shorter: 6 bytes are missing"));
}

std::shared_ptr<const TokenArray> counted(std::uint16_t count) {
  std::vector<std::uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), std::uint16_t{0});
  return TokenArray::in_memory(std::move(tokens), count, {}, "counting");
}

TEST_F(TokenTest, windows_start_where_the_page_says) {
  const TokenSource source(counted(100), {.seq_len = 17, .overlap = 1, .begin = 10, .end = 90});
  EXPECT_EQ(source.size(), 4);  // windows at 10, 26, 42 and 58; a window at 74 would end at 91
  EXPECT_EQ(source.tokens_left_out(), 15);
  EXPECT_EQ(source.fields()[0], (Field{"tokens", DType::u16, {17}}));
  std::vector<std::uint16_t> rows(34);
  auto* out = reinterpret_cast<std::byte*>(rows.data());
  const std::vector<std::int64_t> indices = {3, 0};
  source.read(indices, Rows{{&out, 1}}, ReadRandom(0, 0, indices));
  EXPECT_EQ(rows[0], 58);
  EXPECT_EQ(rows[16], 74);
  EXPECT_EQ(rows[17], 10);
  EXPECT_EQ(source.fingerprint(), "counting [10,90) windows 17 overlap 1");
  EXPECT_EQ(TokenSource(counted(100), {.seq_len = 10}).size(), 10);
}

TEST_F(TokenTest, windows_that_do_not_fit_are_told_with_both_numbers) {
  const Message error = refusal_message<DataError>([] { TokenSource(counted(12'000), {.seq_len = 16'384}); });
  EXPECT_EQ(error.what, "12,000 tokens are fewer than one window of 16,384");
  EXPECT_EQ(error.next, "lower seq_len to <= 12000, or give more text");
  EXPECT_THROW(TokenSource(counted(100), {.seq_len = 8, .overlap = 8}), ConfigError);
}

TEST_F(TokenTest, text_becomes_lower_case_tokens_of_its_own_characters) {
  const auto a = write("a.txt", "Hi\r\n");
  const auto b = write("b.txt",
                       "\xEF\xBB\xBF"
                       "h\xC3\x84!");  // byte-order mark, then h, A with two dots, !
  const TextTokens text = tokens_of_text({.sources = {a, b}, .end_between_sources = true});
  EXPECT_EQ(text.tokenizer->characters(), U"\n\r!hiä");
  EXPECT_THAT(tokens_of<std::uint16_t>(*text.tokens), ElementsAre(7, 8, 5, 4, 3, 7, 9, 6));
  EXPECT_THAT(text.tokens->documents(), ElementsAre(0, 5));
  EXPECT_EQ(text.characters, 7);
  EXPECT_EQ(text.unknown, 0);
  EXPECT_THAT(text.notices, ElementsAre("source 2 of 2: \"" + b.string() + "\" began with a byte-order mark, which was removed"));
  EXPECT_FALSE(text.from_cache);
  const TextTokens bytes = tokens_of_text({.sources = {a}, .kind = TokenizerKind::bytes});
  EXPECT_THAT(tokens_of<std::uint16_t>(*bytes.tokens), ElementsAre(4 + 'H', 4 + 'i', 4 + '\r', 4 + '\n'));
}

TEST_F(TokenTest, a_vocabulary_from_the_first_characters_counts_the_others) {
  const auto path = write("long.txt", std::string(50'000, 'a') + "b$&$");
  const TextTokens text = tokens_of_text({.sources = {path}, .vocabulary_from = VocabularyFrom::first_50000});
  EXPECT_EQ(text.tokenizer->characters(), U"a");
  EXPECT_EQ(text.unknown, 4);
  EXPECT_THAT(text.notices, ElementsAre("4 of 50,004 characters unknown ('$','&','b')"));
}

TEST_F(TokenTest, code_points_across_pieces_of_the_file_are_whole) {
  std::string text = "x";
  while (text.size() < (std::size_t{2} << 20U) + 5) text += "\xE2\x82\xAC";  // three bytes, so each piece ends inside a sign
  const TextTokens tokens = tokens_of_text({.sources = {write("euro.txt", text)}});
  EXPECT_EQ(tokens.tokenizer->characters(), U"x€");
  EXPECT_EQ(tokens.tokens->size(), static_cast<std::int64_t>(1 + (text.size() - 1) / 3));
  const Message error =
      refusal_message<DataError>([&] { (void)tokens_of_text({.sources = {write("cut.txt", text.substr(0, text.size() - 1))}}); });
  EXPECT_THAT(error.what, HasSubstr("is not UTF-8"));
  EXPECT_EQ(error.where, "byte " + std::to_string(text.size() - 3) + " (0xE2)");
}

TEST_F(TokenTest, bad_sources_are_named) {
  const auto good = write("good.txt", "abc");
  EXPECT_EQ(refusal_message<DataError>([&] { (void)tokens_of_text({}); }).what, "there are no text files");
  const Message missing = refusal_message<DataError>([&] { (void)tokens_of_text({.sources = {good, folder_ / "letters.txt"}}); });
  EXPECT_THAT(missing.what, HasSubstr("can't be opened: No such file"));
  EXPECT_THAT(missing.where, HasSubstr("source 2 of 2: "));
  EXPECT_THAT(refusal_message<DataError>([&] { (void)tokens_of_text({.sources = {write("none.txt", "")}}); }).what,
              testing::MatchesRegex("source 1 of 1: \".*none.txt\" is empty"));
  const Message latin = refusal_message<DataError>([&] {
    (void)tokens_of_text({.sources = {good, write("latin.txt", "caf\xE9 noir")}});
  });
  EXPECT_THAT(latin.what, testing::MatchesRegex("source 2 of 2: \".*latin.txt\" is not UTF-8"));
  EXPECT_EQ(latin.where, "byte 3 (0xE9)");
}

TEST_F(TokenTest, the_cache_is_used_while_the_text_is_the_same) {
  const auto path = write("a.txt", "some text$");
  TextOptions options{.sources = {path}, .cache_folder = folder_ / "cache"};
  const TextTokens made = tokens_of_text(options);
  EXPECT_FALSE(made.from_cache);
  const TextTokens found = tokens_of_text(options);
  EXPECT_TRUE(found.from_cache);
  EXPECT_EQ(tokens_of<std::uint16_t>(*found.tokens), tokens_of<std::uint16_t>(*made.tokens));
  EXPECT_EQ(found.tokens->fingerprint(), made.tokens->fingerprint());
  EXPECT_EQ(found.tokenizer->characters(), made.tokenizer->characters());
  EXPECT_EQ(found.characters, 10);
  EXPECT_EQ(tokens_of_text({.sources = {path}}).tokens->fingerprint(), made.tokens->fingerprint()) << "with and without a cache";

  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(5));
  EXPECT_TRUE(tokens_of_text(options).from_cache) << "another time, the same content";
  const auto time = std::filesystem::last_write_time(path);
  write("a.txt", "same size!");
  std::filesystem::last_write_time(path, time + std::chrono::seconds(1));
  EXPECT_FALSE(tokens_of_text(options).from_cache) << "the same size, another content";
  write("a.txt", "longer than before");
  EXPECT_FALSE(tokens_of_text(options).from_cache);
  options.end_between_sources = true;
  EXPECT_FALSE(tokens_of_text(options).from_cache) << "other options, another file";
}

TEST_F(TokenTest, a_fresh_time_stamp_is_not_trusted) {
  const auto path = write("a.txt", "some text");
  const TextOptions options{.sources = {path}, .cache_folder = folder_ / "cache"};
  (void)tokens_of_text(options);
  const auto time = std::filesystem::last_write_time(path);
  write("a.txt", "same size");
  std::filesystem::last_write_time(path, time);  // as if the file was written a second time within the resolution of file times
  EXPECT_FALSE(tokens_of_text(options).from_cache);
}

TEST_F(TokenTest, a_tokenizer_of_a_snapshot_keeps_its_characters) {
  const auto path = write("a.txt", "abcd");
  const TextTokens text =
      tokens_of_text({.sources = {path}, .tokenizer = Tokenizer::basic(U"ab"), .cache_folder = folder_ / "cache"});
  EXPECT_THAT(tokens_of<std::uint16_t>(*text.tokens), ElementsAre(4, 5, 1, 1));
  EXPECT_THAT(text.notices, ElementsAre("2 of 4 characters unknown ('c','d')"));
}

TEST_F(TokenTest, a_damaged_cache_is_made_again_and_said) {
  const auto path = write("a.txt", "some text");
  const TextOptions options{.sources = {path}, .cache_folder = folder_ / "cache"};
  const TextTokens made = tokens_of_text(options);
  const std::filesystem::path file = std::filesystem::directory_iterator(folder_ / "cache")->path();
  std::string bytes = read(file);
  bytes[20] = static_cast<char>(bytes[20] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  const TextTokens again = tokens_of_text(options);
  EXPECT_FALSE(again.from_cache);
  ASSERT_EQ(again.notices.size(), 1U);
  EXPECT_THAT(again.notices[0], HasSubstr("is made again: "));
  EXPECT_THAT(again.notices[0], HasSubstr("wrong checksum"));
  EXPECT_EQ(tokens_of<std::uint16_t>(*again.tokens), tokens_of<std::uint16_t>(*made.tokens));
  EXPECT_TRUE(tokens_of_text(options).from_cache);
}

TEST_F(TokenTest, a_file_system_that_fails_anywhere_leaves_tokens_in_memory_and_no_file) {
  const auto path = write("a.txt", "some text");
  const TextTokens expected = tokens_of_text({.sources = {path}});
  int failed = 0;
  for (std::int64_t call = 0; call < 30; ++call) {
    const auto cache = folder_ / ("cache" + std::to_string(call));
    FaultFs fs(Fs::real(), {.fail_at = call});
    const TextTokens text = tokens_of_text({.sources = {path}, .cache_folder = cache, .fs = &fs});
    EXPECT_EQ(tokens_of<std::uint16_t>(*text.tokens), tokens_of<std::uint16_t>(*expected.tokens));
    if (text.notices.empty()) break;
    ++failed;
    EXPECT_THAT(text.notices, ElementsAre(HasSubstr("tokens are kept in memory, because the token file can't be written")));
    if (!std::filesystem::exists(cache)) continue;
    for (const auto& entry : std::filesystem::directory_iterator(cache)) {
      EXPECT_EQ(entry.path().extension(), ".tokens") << "call " << call;
    }
  }
  EXPECT_GE(failed, 6);
}

// Uses the real text if the sample data is present; the tests above check the same with their own text.
TEST_F(TokenTest, tinyshakespeare_has_the_numbers_of_the_recipe_page) {
  const std::filesystem::path path = std::filesystem::path(MILLRACE_SOURCE_DIR) / "../shared/data/text/tinyshakespeare.txt";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no sample data";
  const TextTokens all = tokens_of_text({.sources = {path}});
  EXPECT_EQ(all.tokens->size(), 1'115'394);
  EXPECT_EQ(all.tokenizer->vocab_size(), 43);
  EXPECT_EQ(TokenSource(all.tokens, {.seq_len = 128}).size(), 8714);
  const TextTokens first = tokens_of_text({.sources = {path}, .vocabulary_from = VocabularyFrom::first_50000});
  EXPECT_EQ(first.tokenizer->vocab_size(), 40);
  EXPECT_THAT(first.notices, ElementsAre("31 of 1,115,394 characters unknown ('$','&','3')"));
}

}  // namespace
}  // namespace millrace::data
