#include "millrace/data/files/text_tokens.h"

#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/error.h"
#include "millrace/base/format.h"
#include "millrace/base/hash.h"
#include "millrace/base/utf8.h"
#include "millrace/data/files/detail/text_signs.h"
#include "millrace/data/files/detail/text_source.h"

namespace millrace::data {
namespace {

using detail::SourceStamp;
using detail::TextSource;

const std::string kWhole = "sha256:";  // beginning of a digest that covers the whole text

constexpr std::int64_t kFirstCharacters = 50'000;

constexpr int kSigns = 1;  // version of the signs that notices report; a token file with another version is made again

// The resolution of file times, in ns. If a file changes twice within this time, its file time may change only once.
constexpr std::int64_t kClockTick = 2'000'000'000;

std::vector<TextSource> labelled(const std::vector<std::filesystem::path>& paths) {
  std::vector<TextSource> sources;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    sources.push_back(
        {paths[i], "source " + std::to_string(i + 1) + " of " + std::to_string(paths.size()) + ": " + quoted(paths[i].string())});
  }
  return sources;
}

// The result of the first reading: the characters, and the stamps of the files.
struct Survey {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<SourceStamp> stamps;
  std::vector<detail::TextRead> reads;
  std::vector<detail::TextSigns> signs;
};

Survey survey(const TextOptions& options, const std::vector<TextSource>& sources) {
  Survey result;
  std::vector<bool> seen(0x110000, false);
  const bool collects = !options.tokenizer && options.kind == TokenizerKind::basic;
  const bool first_only = options.vocabulary_from == VocabularyFrom::first_50000;
  std::int64_t left = first_only ? kFirstCharacters : std::numeric_limits<std::int64_t>::max();
  for (const TextSource& source : sources) {
    detail::TextSigns& signs = result.signs.emplace_back();
    const detail::TextRead read = detail::read_text(source, [&](std::string_view text) {
      signs.add(text);
      for (std::size_t at = 0; collects && left > 0 && at < text.size(); --left) {
        const Utf8Step step = decode_utf8(text, at);
        seen[to_lower(step.code_point)] = true;
        at += step.size;
      }
    });
    if (first_only) left = 0;
    result.stamps.push_back(read.stamp);
    result.reads.push_back(read);
  }
  std::u32string characters;
  for (std::size_t c = 0; c < seen.size(); ++c) {
    if (seen[c]) characters += static_cast<char32_t>(c);
  }
  if (options.tokenizer) {
    result.tokenizer = options.tokenizer;
  } else {
    result.tokenizer = collects ? Tokenizer::basic(std::move(characters)) : Tokenizer::bytes();
  }
  return result;
}

// Receives the tokens when the files are read a second time, after their vocabulary is known.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void begin_document() = 0;
  virtual void append(std::span<const std::uint32_t> tokens) = 0;
};

class FileSink final : public Sink {
 public:
  FileSink(Fs& fs, const std::filesystem::path& path, std::int64_t vocab_size)
      : writer(fs, path, static_cast<std::uint64_t>(vocab_size)) {}
  void begin_document() override { writer.begin_document(); }
  void append(std::span<const std::uint32_t> tokens) override { writer.append(tokens); }
  TokenFileWriter writer;
};

class MemorySink final : public Sink {
 public:
  explicit MemorySink(std::int64_t vocab_size) : vocab_size_(static_cast<std::uint64_t>(vocab_size)) {}
  void begin_document() override { documents_.push_back(static_cast<std::int64_t>(narrow_.size() + wide_.size())); }
  void append(std::span<const std::uint32_t> tokens) override {
    if (vocab_size_ <= 65536) {
      narrow_.insert(narrow_.end(), tokens.begin(), tokens.end());
    } else {
      wide_.insert(wide_.end(), tokens.begin(), tokens.end());
    }
  }
  std::shared_ptr<const TokenArray> finish(std::string fingerprint) {
    if (vocab_size_ <= 65536) {
      return TokenArray::in_memory(std::move(narrow_), vocab_size_, std::move(documents_), std::move(fingerprint));
    }
    return TokenArray::in_memory(std::move(wide_), vocab_size_, std::move(documents_), std::move(fingerprint));
  }

 private:
  std::uint64_t vocab_size_;
  std::vector<std::uint16_t> narrow_;
  std::vector<std::uint32_t> wide_;
  std::vector<std::int64_t> documents_;
};

struct Counts {
  std::int64_t characters = 0;
  std::int64_t unknown = 0;
  std::set<char32_t> unknown_characters;  // the first characters that are unknown, at most kNamed
};
constexpr std::size_t kNamed = 10;

void encode(std::string_view text, const Tokenizer& tokenizer, std::vector<std::uint32_t>& tokens, Counts& counts) {
  tokens.clear();
  if (tokenizer.kind() == TokenizerKind::bytes) {
    for (const char c : text) tokens.push_back(Tokenizer::kSpecials + static_cast<unsigned char>(c));
  }
  for (std::size_t at = 0; tokenizer.kind() == TokenizerKind::basic && at < text.size();) {
    const Utf8Step step = decode_utf8(text, at);
    const char32_t character = to_lower(step.code_point);
    const std::uint32_t id = tokenizer.id_of(character);
    if (id == Tokenizer::kUnknown) {
      ++counts.unknown;
      if (counts.unknown_characters.size() < kNamed) counts.unknown_characters.insert(character);
    }
    tokens.push_back(id);
    at += step.size;
  }
  counts.characters += static_cast<std::int64_t>(tokens.size());
}

// Encodes the sources, in the second reading. Checks that the files have not changed since the first reading, because the result
// is stored under a hash of the content that was read first.
Counts encode_all(const std::vector<TextSource>& sources, const Survey& found, bool end_between, Sink& sink) {
  Counts counts;
  std::vector<std::uint32_t> tokens;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (i > 0 && end_between) sink.append(std::span(&Tokenizer::kEnd, 1));
    sink.begin_document();
    const detail::TextRead read = detail::read_text(sources[i], [&](std::string_view text) {
      encode(text, *found.tokenizer, tokens, counts);
      sink.append(tokens);
    });
    if (read.stamp.sha256 != found.stamps[i].sha256) {
      throw DataError(
          {.what = sources[i].label + " changed while it was read", .where = "", .next = "start again when it is finished"});
    }
  }
  return counts;
}

std::vector<std::string> notices_of(const std::vector<TextSource>& sources, const Survey& found, const Counts& counts) {
  std::vector<std::string> notices;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const detail::TextRead& read = found.reads[i];
    if (read.had_mark) notices.push_back(sources[i].label + " began with a byte-order mark, which was removed");
    if (read.marks_inside > 0)
      notices.push_back(sources[i].label + " holds byte-order marks inside the text, which are learned as characters: " +
                        with_commas(read.marks_inside));
    if (read.lone_returns > 0)
      notices.push_back(sources[i].label + " holds carriage returns without a line feed, which are learned as characters: " +
                        with_commas(read.lone_returns));
  }
  std::vector<std::string> labels;
  labels.reserve(sources.size());
  for (const TextSource& source : sources) labels.push_back(source.label);
  for (std::string& line : detail::notices_of_signs(found.signs, labels)) notices.push_back(std::move(line));
  if (counts.unknown == 0) return notices;
  std::string line = with_commas(counts.unknown) + " of " + with_commas(counts.characters) + " characters unknown (";
  bool first = true;
  for (const char32_t character : counts.unknown_characters) {
    if (!std::exchange(first, false)) line += ',';
    std::string text;
    append_utf8(text, character);
    line += '\'' + text + '\'';
  }
  notices.push_back(line + (counts.unknown_characters.size() == kNamed ? ", ...)" : ")"));
  return notices;
}

void add(TextSeen& seen, const detail::TextRead& read) {
  ++seen.files;
  seen.marks += read.had_mark ? 1 : 0;
  seen.line_feeds += read.line_feeds;
  seen.both += read.both;
  seen.lone_returns += read.lone_returns;
  seen.characters += read.characters;
}

std::string read_as_of(const Survey& found) {
  TextSeen seen;
  for (const detail::TextRead& read : found.reads) add(seen, read);
  return read_as(seen);
}

// Returns a text that identifies the tokens: by tokenizer and content, not by the place of the files.
std::string content_fingerprint(const Tokenizer& tokenizer, const std::vector<SourceStamp>& stamps, bool end_between) {
  Sha256 hash;
  for (const SourceStamp& stamp : stamps) hash.update(stamp.sha256);
  return "text " + hash.hex().substr(0, 16) + (end_between ? " with ends" : "") + ", tokenizer " + tokenizer.fingerprint();
}

std::filesystem::path cache_file(const TextOptions& options, const std::vector<TextSource>& sources) {
  Sha256 hash;
  hash.update(options.tokenizer ? options.tokenizer->fingerprint()
                                : std::to_string(static_cast<int>(options.kind)) + ' ' +
                                      std::to_string(static_cast<int>(options.vocabulary_from)));
  hash.update(options.end_between_sources ? " ends" : " plain");
  for (const TextSource& source : sources) hash.update('\n' + std::filesystem::absolute(source.path).lexically_normal().string());
  return options.cache_folder / (hash.hex().substr(0, 24) + ".tokens");
}

Json notes_of(const Survey& found, const Counts& counts, const std::vector<std::string>& notices, std::string fingerprint,
              std::int64_t made) {
  Json stamps = Json::array();
  for (const SourceStamp& stamp : found.stamps) {
    stamps.push_back({{"size", stamp.size}, {"changed", stamp.changed}, {"sha256", stamp.sha256}});
  }
  return {{"fingerprint", std::move(fingerprint)},
          {"made", made},
          {"sources", std::move(stamps)},
          {"tokenizer", found.tokenizer->to_json()},
          {"characters", counts.characters},
          {"unknown", counts.unknown},
          {"signs", kSigns},
          {"read_as", read_as_of(found)},
          {"notices", notices}};
}

// Returns true if the file on disk is still the one from which the token file was made.
bool still_same(const TextSource& source, const Json& saved, std::int64_t made) {
  const SourceStamp now = detail::stamp_of(source);
  if (now.size != saved.at("size").get<std::uint64_t>()) return false;
  const auto changed = saved.at("changed").get<std::int64_t>();
  if (now.changed == changed && changed < made - kClockTick) return true;
  return detail::sha256_of(source) == saved.at("sha256").get<std::string>();
}

// Returns the tokens of these sources from the cache; nullopt if there is no token file, or if the sources have changed.
std::optional<TextTokens> from_cache(const std::filesystem::path& file, const TextOptions& options,
                                     const std::vector<TextSource>& sources, std::vector<std::string>& notices) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  try {
    TextTokens result;
    result.tokens = TokenArray::open(file);
    const Json& notes = result.tokens->notes();
    const Json& stamps = notes.at("sources");
    if (stamps.size() != sources.size() || notes.value("signs", 0) != kSigns) return std::nullopt;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      if (!still_same(sources[i], stamps.at(i), notes.at("made").get<std::int64_t>())) return std::nullopt;
    }
    result.tokenizer = options.tokenizer ? options.tokenizer : Tokenizer::from_json(notes.at("tokenizer"));
    if (static_cast<std::uint64_t>(result.tokenizer->vocab_size()) != result.tokens->vocab_size()) return std::nullopt;
    const bool has_nul = result.tokenizer->characters().find(U'\0') != std::u32string::npos;
    if (!options.tokenizer && has_nul) return std::nullopt;  // made from a file that is not text; such files are refused now
    result.characters = notes.at("characters").get<std::int64_t>();
    result.unknown = notes.at("unknown").get<std::int64_t>();
    result.notices = notes.at("notices").get<std::vector<std::string>>();
    result.read_as = notes.value("read_as", "UTF-8");  // older token files do not have the details
    for (const Json& stamp : stamps) {
      result.files.push_back({"", stamp.at("size").get<std::uint64_t>(), kWhole + stamp.at("sha256").get<std::string>()});
    }
    result.from_cache = true;
    return result;
  } catch (const Json::exception&) {
    notices.push_back(quoted(file.string()) + " is made again: its metadata was not written by this program");
  } catch (const SnapshotError&) {
    notices.push_back(quoted(file.string()) + " is made again: its tokenizer was not written by this program");
  } catch (const DataError& error) {
    notices.push_back(quoted(file.string()) + " is made again: " + error.message().what);
  }
  return std::nullopt;
}

TextTokens find_or_make(const TextOptions& options) {
  const std::vector<TextSource> sources = labelled(options.sources);
  if (sources.empty()) throw DataError({.what = "there are no text files", .where = "sources", .next = "name at least one"});
  for (const TextSource& source : sources) (void)detail::stamp_of(source);  // a missing file is reported before any work is done
  std::vector<std::string> trouble;
  const bool caches = !options.cache_folder.empty();
  const std::filesystem::path file = caches ? cache_file(options, sources) : std::filesystem::path();
  if (caches) {
    if (auto found = from_cache(file, options, sources, trouble)) return *std::move(found);
  }
  const auto made = static_cast<std::int64_t>(unix_seconds() * 1e9);
  const Survey found = survey(options, sources);
  const std::string fingerprint = content_fingerprint(*found.tokenizer, found.stamps, options.end_between_sources);
  TextTokens result{.tokenizer = found.tokenizer};
  for (const SourceStamp& stamp : found.stamps) result.files.push_back({"", stamp.size, kWhole + stamp.sha256});
  Counts counts;
  if (caches && options.writes_cache) {
    try {
      Fs& fs = options.fs ? *options.fs : Fs::real();
      fs.create_directories(options.cache_folder);
      FileSink sink(fs, file, found.tokenizer->vocab_size());
      counts = encode_all(sources, found, options.end_between_sources, sink);
      sink.writer.finish(notes_of(found, counts, notices_of(sources, found, counts), fingerprint, made));
      result.tokens = TokenArray::open(file);
    } catch (const FsError& error) {
      trouble.push_back("tokens are kept in memory, because the token file can't be written: " + std::string(error.what()));
    }
  }
  if (!result.tokens) {
    MemorySink sink(found.tokenizer->vocab_size());
    counts = encode_all(sources, found, options.end_between_sources, sink);
    result.tokens = sink.finish(fingerprint);
  }
  result.characters = counts.characters;
  result.unknown = counts.unknown;
  result.notices = notices_of(sources, found, counts);
  result.read_as = read_as_of(found);
  result.notices.insert(result.notices.end(), trouble.begin(), trouble.end());
  return result;
}

}  // namespace

TextSeen look_at_text(const std::filesystem::path& file) {
  TextSeen seen;
  add(seen, detail::read_text({.path = file, .label = quoted(file.filename().string())}, [](std::string_view) {}));
  return seen;
}

std::string read_as(const TextSeen& seen) {
  std::vector<std::string> ends;
  const std::int64_t all = seen.line_feeds + seen.lone_returns;
  for (const auto& [count, name] :
       {std::pair{seen.line_feeds - seen.both, "LF"}, {seen.both, "CR LF"}, {seen.lone_returns, "CR"}})
    if (count > 0) ends.push_back(count == all ? name : with_commas(count) + " in " + name);
  std::string text = "UTF-8" + (seen.files == 1 ? "" : ", " + with_commas(seen.files) + " files");
  if (!ends.empty()) text += ", lines end in " + (ends.size() == 1 ? ends[0] : "different ways: " + joined(ends, ", "));
  if (seen.marks > 0)
    text += seen.files == 1 ? ", a byte-order mark is removed" : ", byte-order marks are removed: " + with_commas(seen.marks);
  return text + "; " + with_commas(all) + (all == 1 ? " line, " : " lines, ") + with_commas(seen.characters) + " characters";
}

TextTokens tokens_of_text(const TextOptions& options) {
  TextTokens result = find_or_make(options);
  const std::vector<std::string> names = relative_names(options.sources);
  for (std::size_t i = 0; i < names.size(); ++i) result.files[i].name = names[i];
  return result;
}

}  // namespace millrace::data
