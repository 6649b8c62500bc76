#include "millrace/base/text_encoding.h"

#include <algorithm>
#include <array>

#include "millrace/base/shell_word.h"
#include "millrace/base/utf8.h"

namespace millrace {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kLooked = std::size_t{1} << 16U;
constexpr std::size_t kLongestCharacter = 4;  // bytes of the longest character in UTF-8; a piece may end inside a character

unsigned char at(std::string_view bytes, std::size_t i) noexcept { return static_cast<unsigned char>(bytes[i]); }

// Returns a command that converts the file through `command` and keeps the original under its name with .orig appended.
std::string in_place(const std::string& command, const std::filesystem::path& path) {
  const std::string name = path.string().starts_with('-') ? "./" + path.string() : path.string();
  const std::string file = shell_word(name), kept = shell_word(name + ".orig");
  return "convert it in place: mv " + file + " " + kept + " && " + command + " < " + kept + " > " + file;
}

std::string by_iconv(const std::string& encoding, const std::filesystem::path& path) {
  return in_place("iconv -f " + encoding + " -t UTF-8", path);
}

bool is_control(char32_t c) noexcept {
  return (c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f') || (c >= 0x7F && c < 0xA0);
}

struct Start {
  // `command` converts from stdin to stdout; "" = no such command exists, and the advice is kSaveAsText
  std::string_view magic, is, command;
};
constexpr std::array kStarts = {
    Start{"\xFF\xFE\0\0"sv, "is UTF-32 text with a byte-order mark, not UTF-8", "iconv -f UTF-32 -t UTF-8"},
    Start{"\0\0\xFE\xFF"sv, "is UTF-32 text with a byte-order mark, not UTF-8", "iconv -f UTF-32 -t UTF-8"},
    Start{"\xFF\xFE"sv, "is UTF-16 text with a byte-order mark, not UTF-8", "iconv -f UTF-16 -t UTF-8"},
    Start{"\xFE\xFF"sv, "is UTF-16 text with a byte-order mark, not UTF-8", "iconv -f UTF-16 -t UTF-8"},
    Start{"\x1F\x8B"sv, "is gzip data, not text", "gzip -dc"},
    Start{"BZh91AY&SY"sv, "is bzip2 data, not text", "bzip2 -dc"},
    Start{"\xFD"
          "7zXZ\0"sv,
          "is xz data, not text", "xz -dc"},
    Start{"\x28\xB5\x2F\xFD"sv, "is Zstandard data, not text", "zstd -dc"},
    Start{"%PDF-"sv, "is a PDF document, not text", "pdftotext - -"},
    Start{"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1"sv, "is a document of an office program, not text", ""},
    Start{"{\\rtf"sv, "is a document in RTF, not text", ""},
};
const char* const kSaveAsText = "open it in the program that wrote it, save it as plain text in UTF-8, then name that file";

// Returns a score that says how much `bytes` look like text of `width` bytes per character, without a byte-order mark; 0 if they
// hold a control or private character. Ends of words and lines weigh most, because in the wrong byte order a common character
// may look like a letter.
std::size_t reads_as(std::string_view bytes, std::size_t width, bool little) noexcept {
  const auto unit = [&](std::size_t i) {
    char32_t value = 0;
    for (std::size_t k = 0; k < width; ++k) value = value << 8U | at(bytes, i + (little ? width - 1 - k : k));
    return value;
  };
  constexpr std::size_t kSpace = 100;
  std::size_t score = 0;
  for (std::size_t i = 0; i + width <= bytes.size(); i += width) {
    char32_t c = unit(i);
    if (width == 2 && c >= 0xD800 && c < 0xDC00) {
      if (i + 4 > bytes.size()) break;
      const char32_t low = unit(i += 2);
      if (low < 0xDC00 || low > 0xDFFF) return 0;
      c = 0x10000 + ((c - 0xD800) << 10U) + (low - 0xDC00);
    }
    const bool is_wrong = is_control(c) || (c >= 0xD800 && c < 0xF900) || (c & 0xFFFEU) == 0xFFFE || c > 0x10FFFF;
    if (is_wrong) return 0;
    const bool is_space = c == ' ' || c == '\n' || c == '\r' || (c >= 0x3000 && c <= 0x3002);
    score += is_space ? kSpace : c < 0x80 ? 1 : 0;
  }
  return score;
}

struct Account {
  std::size_t controls = 0;     // number of control characters that no text has
  std::size_t letters = 0;      // number of ASCII characters that are not controls
  std::size_t whole = 0;        // number of valid UTF-8 characters that have several bytes
  std::size_t broken = 0;       // number of bytes that are not valid UTF-8
  std::size_t longest_run = 0;  // length of the longest run of broken bytes
  bool is_latin = true;         // true: the broken bytes are letters and signs of Latin-1
  bool is_windows = true;       // true: the broken bytes are letters and signs of the Windows code page
};
Account account_of(std::string_view piece) noexcept {
  Account all;
  std::size_t run = 0;
  for (std::size_t i = 0; i < piece.size();) {
    const Utf8Step step = decode_utf8(piece, i);
    if (step.valid) run = 0;
    const unsigned char byte = at(piece, i);
    if (byte < 0x80) {
      ++(is_control(byte) ? all.controls : all.letters);
    } else if (step.valid) {
      ++all.whole;
    } else {
      ++all.broken;
      all.longest_run = std::max(all.longest_run, run += 1);
      all.is_latin = all.is_latin && byte >= 0xA0;
      all.is_windows = all.is_windows && byte != 0x81 && byte != 0x8D && byte != 0x8F && byte != 0x90 && byte != 0x9D;
    }
    i += step.size;
  }
  return all;
}

// Returns "UTF-16LE" or a similar name if the bytes are 16-bit or 32-bit text without a byte-order mark; "" otherwise.
std::string wide_text(std::string_view start) {
  const std::string_view looked = start.substr(0, start.size() <= kLooked ? start.size() / 4 * 4 : kLooked);
  const std::string_view pairs = start.substr(0, std::min(kLooked, start.size() / 2 * 2));
  const auto nuls = std::count(pairs.begin(), pairs.end(), '\0');
  if (nuls == 0) return "";
  if (looked.size() >= 8 && reads_as(looked, 4, true) > 0) return "UTF-32LE";
  if (looked.size() >= 8 && reads_as(looked, 4, false) > 0) return "UTF-32BE";
  // Excludes 8-bit text that holds a few NULs. If such text were read as 16-bit text, it would consist of rare characters.
  const Account all = account_of(pairs);
  const bool is_narrow = 5 * static_cast<std::size_t>(nuls) < pairs.size() &&
                         20 * (all.controls - static_cast<std::size_t>(nuls)) < pairs.size() && all.broken < kLongestCharacter;
  if (is_narrow) return "";
  const std::size_t little = reads_as(pairs, 2, true), big = reads_as(pairs, 2, false);
  return little == big ? "" : little > big ? "UTF-16LE" : "UTF-16BE";
}

}  // namespace

std::optional<NoText> other_than_text(std::string_view start, const std::filesystem::path& path) {
  for (const Start& kind : kStarts) {
    if (!start.starts_with(kind.magic)) continue;
    return NoText{std::string(kind.is), 0, kind.command.empty() ? kSaveAsText : in_place(std::string(kind.command), path)};
  }
  if (start.starts_with("PK\x03\x04")) {
    const std::string_view names = start.substr(0, 4096);
    for (const std::string_view mark : {"[Content_Types].xml"sv, "mimetype"sv, "word/"sv, "xl/"sv}) {
      if (names.find(mark) != std::string_view::npos)
        return NoText{"is a document of an office program, not text", 0, kSaveAsText};
    }
    return NoText{"is a zip archive, not text", 0,
                  "extract it and name the text files in it: python3 -m zipfile -e " + shell_word(path.string()) + " texts"};
  }
  const std::string wide = wide_text(start);
  if (wide.empty()) return std::nullopt;
  return NoText{"is " + wide.substr(0, 6) + " text without a byte-order mark, not UTF-8", start.find('\0'), by_iconv(wide, path)};
}

std::optional<std::size_t> first_byte_of_no_text(std::string_view piece) noexcept {
  const std::size_t nul = piece.find('\0');
  const std::optional<std::size_t> bad = first_invalid_utf8(piece.substr(0, nul));
  if (bad && nul == std::string_view::npos) return bad;
  return bad ? bad : nul == std::string_view::npos ? std::nullopt : std::optional(nul);
}

NoText broken_text(std::string_view piece, std::size_t bad, const std::filesystem::path& path) {
  const Account all = account_of(piece);
  const std::size_t nuls = static_cast<std::size_t>(std::count(piece.begin(), piece.end(), '\0'));
  if (20 * all.controls > piece.size() && all.controls > nuls)
    return {"is not text: it holds binary data", bad, "name only files that hold UTF-8 text"};
  if (at(piece, bad) == 0) return {"holds NUL characters, which no text has", bad, in_place("tr -d '\\000'", path)};
  if (all.whole > all.broken)
    return {"has bytes that are not valid UTF-8", bad,
            in_place("iconv -c -f UTF-8 -t UTF-8", path) + "; this leaves out the invalid bytes"};
  // Western text has few letters outside ASCII, and rarely three in a row. In other alphabets most letters are outside ASCII.
  constexpr std::size_t kLongestRun = 2;
  const bool is_western = all.whole == 0 && 4 * all.broken <= all.letters && all.longest_run <= kLongestRun && all.is_windows;
  if (is_western) return {"is not UTF-8", bad, by_iconv(all.is_latin ? "LATIN1" : "CP1252", path)};
  return {"is not UTF-8", bad,
          "convert it from the encoding that it was saved in (iconv -l lists the names of encodings): iconv -f NAME -t UTF-8"};
}

std::optional<NoText> problem_of_text(std::string_view text, const std::filesystem::path& path) {
  if (std::optional<NoText> other = other_than_text(text, path)) return other;
  const std::optional<std::size_t> bad = first_byte_of_no_text(text);
  return bad ? std::optional(broken_text(text, *bad, path)) : std::nullopt;
}

}  // namespace millrace
