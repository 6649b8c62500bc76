#include "millrace/format/pt.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <numeric>

#include "millrace/base/error.h"
#include "millrace/format/detail/pickle.h"
#include "millrace/format/detail/test_bytes.h"
#include "millrace/format/detail/zip.h"
#include "tests/support/refusal.h"

namespace millrace::format {
namespace {

namespace stdfs = std::filesystem;
using detail::bytes_of;
using detail::raw;
using testing::ElementsAre;
using testing::HasSubstr;
using namespace std::string_literals;

// Opcodes as Python's pickler writes them.
std::string text(const std::string& value) {
  std::string length(4, '\0');
  for (std::size_t i = 0; i < 4; ++i) length[i] = static_cast<char>(value.size() >> (8 * i) & 0xFFU);
  return "X" + length + value;
}
std::string number(int value) { return "K"s + static_cast<char>(value); }
std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
std::string tuple(const std::vector<std::string>& items) { return "(" + std::accumulate(items.begin(), items.end(), ""s) + "t"; }
std::string storage(const std::string& type, const std::string& key, const std::string& elements) {
  return tuple({text("storage"), global("torch", type), text(key), text("cpu"), elements}) + "Q";
}
const std::string kNoHooks = global("collections", "OrderedDict") + ")R";
std::string tensor(const std::string& where, const std::string& first, const std::string& sizes, const std::string& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") + tuple({where, first, sizes, strides, "\x89", kNoHooks}) + "R";
}
std::string dict(const std::vector<std::string>& items) { return "}(" + std::accumulate(items.begin(), items.end(), ""s) + "u"; }
std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }
// Pickle of six floats, row-major, under the name "w".
std::string six_floats() {
  return text("w") +
         tensor(storage("FloatStorage", "0", number(6)), number(0), tuple({number(2), number(3)}), tuple({number(3), number(1)}));
}

class PtTest : public testing::Test {
 protected:
  PtTest() : folder_(stdfs::temp_directory_path() / ("millrace-pt-" + std::to_string(::getpid()))), path_(folder_ / "a.pt") {
    stdfs::create_directories(folder_);
  }
  ~PtTest() override { stdfs::remove_all(folder_); }

  struct Member {
    std::string name, bytes;
    bool deflated = false;
  };
  void put_members(const std::vector<Member>& members) {
    const auto file = Fs::real().create(path_);
    detail::ZipWriter zip(*file);
    for (const Member& member : members) zip.add(member.name, bytes_of(member.bytes), member.deflated);
    zip.finish();
    file->close();
  }
  // Writes a file with this pickle and one storage of six floats.
  void put(const std::string& data_pkl, const std::string& elements = raw<float>({0, 1, 2, 3, 4, 5})) {
    put_members({{"a/data.pkl", data_pkl}, {"a/byteorder", "little"}, {"a/data/0", elements}, {"a/version", "3\n"}});
  }
  std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string read(const std::string& name) const {
    PtFile file(path_);
    const PtTensor* const found = file.find(name);
    if (found == nullptr) return "no such tensor";
    std::string into(found->bytes, '\0');
    file.read(*found, std::as_writable_bytes(std::span(into)));
    return into;
  }
  std::string refusal() const {
    return refusal_reason<DataError>(
        [&] {
          PtFile file(path_);
          for (const PtTensor& each : file.tensors()) {
            std::vector<std::byte> into(each.bytes);
            file.read(each, into);
          }
        },
        path_.string());
  }
  // The reason why a file with this pickle is rejected.
  std::string refused(const std::string& body) {
    put(pickle(body));
    return refusal();
  }

  stdfs::path folder_;
  stdfs::path path_;
};

TEST_F(PtTest, EveryDtypeComesBackWithItsBytes) {
  std::vector<Field> fields = {{"scalar", DType::f32, {}}, {"empty", DType::f32, {0, 3}}, {"\xC3\xA9", DType::u8, {300}}};
  for (int i = 0; i <= static_cast<int>(DType::c128); ++i) {
    const auto dtype = static_cast<DType>(i);
    fields.push_back({std::string(name_of(dtype)), dtype, {3, 1, 2}});
  }
  std::vector<std::string> bytes;
  for (const Field& field : fields) {
    bytes.emplace_back(field.bytes(), '\0');
    std::iota(bytes.back().begin(), bytes.back().end(), '\1');
  }
  const auto file = Fs::real().create(path_);
  write_pt(*file, fields, [&](std::size_t i) { return bytes_of(bytes[i]); });
  file->close();
  EXPECT_TRUE(looks_like_pt(path_));
  const PtFile back(path_);
  ASSERT_EQ(back.tensors().size(), fields.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const PtTensor* const found = back.find(fields[i].name);
    ASSERT_NE(found, nullptr) << fields[i].name;
    EXPECT_EQ(found->dtype, fields[i].dtype);
    EXPECT_EQ(found->shape, fields[i].shape);
    EXPECT_EQ(read(fields[i].name), bytes[i]) << fields[i].name;
  }
}

TEST_F(PtTest, ElementsBeginAtMultiplesOf64Bytes) {
  const std::vector<Field> fields = {{"a", DType::u8, {1}}, {"a name of another length", DType::u8, {1}}, {"b", DType::u8, {65}}};
  const std::vector<std::string> bytes = {"\xA1", "\xA2", std::string(65, '\xA3')};
  const auto file = Fs::real().create(path_);
  write_pt(*file, fields, [&](std::size_t i) { return bytes_of(bytes[i]); });
  file->close();
  for (const std::string& data : bytes) EXPECT_EQ(contents().find(data) % 64, 0U);
}

TEST_F(PtTest, WhatCannotBeStoredIsNamed) {
  const auto why = [&](const std::vector<Field>& fields) -> std::string {
    const auto file = Fs::real().create(path_);
    try {
      write_pt(*file, fields, [](std::size_t) { return std::span<const std::byte>(); });
    } catch (const DataError& error) {
      return error.message().what;
    }
    return "stored";
  };
  const Field empty{"a", DType::f32, {0}};
  EXPECT_EQ(why({empty, empty}), "tensor \"a\" can't be stored in a .pt file: the name occurs twice");
  EXPECT_THAT(why({{"\xFF", DType::f32, {0}}}), HasSubstr("its name is not UTF-8"));
  EXPECT_THAT(why({{std::string(1001, 'a'), DType::f32, {0}}}), HasSubstr("more than 1000 bytes"));
  EXPECT_THAT(why({{"a", DType::f32, {-1}}}), HasSubstr("shape [-1] is not possible"));
  EXPECT_THAT(why({{"a", DType::f32, {0, std::int64_t{1} << 40, std::int64_t{1} << 40}}}), HasSubstr("is not possible"));
}

TEST_F(PtTest, ViewsAreReadInRowMajorOrder) {
  put(pickle(
      dict({text("t") + tensor(storage("FloatStorage", "0", number(6)), number(0), tuple({number(3), number(2)}),
                               tuple({number(1), number(3)})),
            text("column") + tensor(storage("FloatStorage", "0", number(6)), number(1), tuple({number(2)}), tuple({number(3)})),
            text("part") + tensor(storage("FloatStorage", "0", number(6)), number(4), tuple({number(2)}), tuple({number(1)})),
            text("same") + tensor(storage("FloatStorage", "0", number(6)), number(2), tuple({number(2), number(2)}),
                                  tuple({number(0), number(1)}))})));
  EXPECT_EQ(read("t"), raw<float>({0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read("column"), raw<float>({1, 4}));
  EXPECT_EQ(read("part"), raw<float>({4, 5}));
  EXPECT_EQ(read("same"), raw<float>({2, 3, 2, 3}));
}

TEST_F(PtTest, NestedContainersGiveDottedNamesAndValuesStandBeside) {
  put(pickle(dict(
      {text("model") + kNoHooks + "(" + six_floats() + "u" + dict({text("_metadata") + "}"}) + "b", text("epoch") + number(7),
       text("rate") + "G\x3f\xf0\0\0\0\0\0\0"s, text("groups") + "](" + dict({text("lr") + "\x8a\1\xff"}) + "N" + "\x88" + "e",
       text("device") + global("torch", "device") + tuple({text("cuda"), number(1)}) + "R",
       text("dtype") + global("torch", "float16"), text("shape") + global("torch", "Size") + tuple({tuple({number(2)})}) + "R",
       text("seed") + "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\0"s, text("word") + text("adam")})));
  const PtFile file(path_);
  ASSERT_EQ(file.tensors().size(), 1U);
  EXPECT_EQ(file.tensors()[0].name, "model.w");
  std::vector<std::string> all;
  for (const PtValue& value : file.values()) all.push_back(value.name + "=" + value.value.dump());
  EXPECT_THAT(all, ElementsAre("device=\"cuda:1\"", "dtype=\"torch.float16\"", "epoch=7", "groups.0.lr=-1", "groups.1=null",
                               "groups.2=true", "rate=1.0", "seed=18446744073709551615", "shape.0=2", "word=\"adam\""));
}

TEST_F(PtTest, OneTensorAndAParameterAreReadToo) {
  const std::string made = tensor(storage("FloatStorage", "0", number(6)), number(0), tuple({number(6)}), tuple({number(1)}));
  put(pickle(made));
  EXPECT_EQ(read("tensor"), raw<float>({0, 1, 2, 3, 4, 5}));
  put(pickle(dict({text("p") + global("torch._utils", "_rebuild_parameter") + tuple({made, "\x88", kNoHooks}) + "R"})));
  EXPECT_EQ(read("p"), raw<float>({0, 1, 2, 3, 4, 5}));
}

// Pickle of a tensor of six floats or three complex numbers; `said` is its last argument.
std::string lazy(const std::string& type, int count, const std::string& said) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple(
             {storage(type, "0", number(count)), number(0), tuple({number(count)}), tuple({number(1)}), "\x89", kNoHooks, said}) +
         "R";
}

TEST_F(PtTest, WhatTorchLeftForLaterIsDone) {
  const std::string conj = text("conj") + "\x88", neg = text("neg") + "\x88";
  put(pickle(dict({text("w") + lazy("ComplexFloatStorage", 3, dict({conj}))})));
  EXPECT_EQ(read("w"), raw<float>({0, -1, 2, -3, 4, -5}));
  PtFile file(path_);
  std::string part(8, '\0');
  file.read_part(*file.find("w"), 8, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, raw<float>({2, -3}));
  put(pickle(dict({text("w") + lazy("ComplexFloatStorage", 3, dict({neg}))})));
  EXPECT_EQ(read("w"), raw<float>({-0.0F, -1, -2, -3, -4, -5}));
  put(pickle(dict({text("w") + lazy("ComplexFloatStorage", 3, dict({conj, neg}))})));
  EXPECT_EQ(read("w"), raw<float>({-0.0F, 1, -2, 3, -4, 5}));
  put(pickle(dict({text("w") + lazy("FloatStorage", 6, dict({neg}))})));
  EXPECT_EQ(read("w"), raw<float>({-0.0F, -1, -2, -3, -4, -5}));
  put(pickle(dict({text("w") + lazy("ByteStorage", 3, dict({neg}))})), "\x01\x02\xff");
  EXPECT_EQ(read("w"), "\xff\xfe\x01");
  for (const std::string& none : {"N"s, dict({})}) {
    put(pickle(dict({text("w") + lazy("FloatStorage", 6, none)})));
    EXPECT_EQ(read("w"), raw<float>({0, 1, 2, 3, 4, 5}));
  }
}

TEST_F(PtTest, WhatMayChangeValuesAndIsUnknownIsRefused) {
  const auto with = [&](const std::string& type, int count, const std::string& said) {
    return refused(dict({text("w") + lazy(type, count, said)}));
  };
  EXPECT_EQ(with("FloatStorage", 6, dict({text("scale") + number(2)})),
            "data.pkl: tensor \"w\" has \"scale\" as an attribute that may change its values");
  EXPECT_THAT(with("FloatStorage", 6, dict({text("conj") + "\x88"})), HasSubstr("has \"conj\" as an attribute"));
  EXPECT_THAT(with("ComplexFloatStorage", 3, dict({text("conj") + "\x89"})), HasSubstr("has \"conj\" as an attribute"));
  EXPECT_THAT(with("FloatStorage", 6, number(1)), HasSubstr("has a whole number as an attribute"));
  EXPECT_THAT(with("FloatStorage", 6, "NN"), HasSubstr("is not described as torch describes a tensor")) << "an argument more";
}

TEST_F(PtTest, GlobalsAreRefusedByNameWhateverTheyAreUsedFor) {
  struct Case {
    const char* module;
    const char* name;
  };
  for (const Case& c : std::initializer_list<Case>{{"os", "system"},
                                                   {"posix", "system"},
                                                   {"nt", "system"},
                                                   {"builtins", "eval"},
                                                   {"builtins", "exec"},
                                                   {"__builtin__", "eval"},
                                                   {"builtins", "getattr"},
                                                   {"builtins", "__import__"},
                                                   {"builtins", "open"},
                                                   {"subprocess", "Popen"},
                                                   {"operator", "attrgetter"},
                                                   {"functools", "partial"},
                                                   {"importlib", "import_module"},
                                                   {"torch", "load"},
                                                   {"torch.jit", "load"},
                                                   {"torch.storage", "_load_from_bytes"},
                                                   {"torch.serialization", "load"},
                                                   {"torch._utils", "_rebuild_sparse_tensor"},
                                                   {"torch.nn.modules.linear", "Linear"},
                                                   {"numpy.core.multiarray", "_reconstruct"},
                                                   {"collections", "defaultdict"},
                                                   {"collections", "OrderedDict.__class__"},
                                                   {"torch", "Size.__init__"},
                                                   {"__main__", "Config"},
                                                   {"", ""}}) {
    const std::string expected = "data.pkl: global \"" + std::string(c.module) + "." + c.name + "\" is not allowed";
    EXPECT_THAT(refused(global(c.module, c.name) + tuple({text("touch sentinel")}) + "R"), HasSubstr(expected));
    EXPECT_THAT(refused(dict({six_floats(), text("x") + global(c.module, c.name)})), HasSubstr(expected))
        << "only named, never called";
  }
  // A chain of calls that would reach a forbidden global through an allowed one.
  EXPECT_THAT(refused(global("builtins", "getattr") + tuple({global("collections", "OrderedDict"), text("__class__")}) + "R"),
              HasSubstr("builtins.getattr"));
  EXPECT_THAT(refused(global("a\"b\x01", "c")), HasSubstr("global \"a\\\"b\\x01.c\" is not allowed"));
}

// A checkpoint's other objects, next to its weights: a config, a tokenizer.
TEST_F(PtTest, ObjectsOfOtherClassesAreTheirAttributes) {
  const std::string config = global("own.config", "Config");
  const std::string made = config + "q\1)\x81" + dict({text("width") + number(8), text("name") + text("a")}) + "b";
  put(pickle(dict({six_floats(), text("config") + made, text("other") + "h\1)\x81"})));
  const PtFile file(path_);
  EXPECT_EQ(file.tensors().size(), 1U);
  std::vector<std::string> all;
  for (const PtValue& value : file.values()) all.push_back(value.name + "=" + value.value.dump());
  EXPECT_THAT(all, ElementsAre("config=\"an object of class \\\"own.config.Config\\\"\"", "config.name=\"a\"", "config.width=8",
                               "other=\"an object of class \\\"own.config.Config\\\"\""));
  const std::string object = config + ")\x81";
  EXPECT_THAT(refused(config + tuple({number(1)}) + "\x81"), HasSubstr("\"own.config.Config\" is made with arguments"));
  EXPECT_THAT(refused(object + number(1) + "b"), HasSubstr("keeps its attributes in a whole number"));
  EXPECT_THAT(refused(object + "}b}b"), HasSubstr("opcode BUILD of an object of class"));
  EXPECT_THAT(refused(object + ")R"), HasSubstr("opcode REDUCE calls an object of class"));
  EXPECT_THAT(refused(object + "q\2}" + text("self") + "h\2sb"), HasSubstr("holds itself"));
  EXPECT_THAT(refused(global("torch.nn.modules.linear", "Linear") + ")\x81}b"), HasSubstr("\"torch.nn.modules.linear.Linear\""));
}

TEST_F(PtTest, OpcodesThatMakeObjectsAreRefusedByName) {
  const auto is_refused = [&](const std::string& body, const std::string& name) {
    EXPECT_THAT(refused(body), HasSubstr("data.pkl: opcode " + name + " (0x")) << name;
    EXPECT_THAT(refusal(), HasSubstr("is not allowed (byte "));
  };
  is_refused("(" + text("touch sentinel") + "ios\nsystem\n", "INST");
  is_refused("(" + global("collections", "OrderedDict") + "o", "OBJ");
  is_refused(text("os") + text("system") + "\x93", "STACK_GLOBAL");
  is_refused(global("collections", "OrderedDict") + ")\x81", "NEWOBJ");
  is_refused(global("collections", "OrderedDict") + ")}\x92", "NEWOBJ_EX");
  is_refused("\x82\x01", "EXT1");
  is_refused("\x83\x01\x01", "EXT2");
  is_refused("\x84\x01\x01\x01\x01", "EXT4");
  is_refused("Pkey\n", "PERSID");
  is_refused("\x95\0\0\0\0\0\0\0\0"s, "FRAME");
  is_refused("\x8c\x02os", "SHORT_BINUNICODE");
  is_refused("\x94", "MEMOIZE");
  is_refused("B\1\0\0\0a"s, "BINBYTES");
  is_refused("C\1a", "SHORT_BINBYTES");
  is_refused("\x8e\xff\xff\xff\xff\xff\xff\xff\xff", "BINBYTES8");
  is_refused("\x96\xff\xff\xff\xff\xff\xff\xff\xff", "BYTEARRAY8");
  is_refused("\x97", "NEXT_BUFFER");
  is_refused("\x8f", "EMPTY_SET");
  is_refused("\x8b\xff\xff\xff\x7f", "LONG4");
  is_refused("I01\n", "INT");
  is_refused("S'a'\n", "STRING");
  is_refused("Vos\n", "UNICODE");
  is_refused("U\2os", "SHORT_BINSTRING");
  is_refused("(d", "DICT");
  is_refused("N2", "DUP");
  EXPECT_THAT(refused("\xfe"), HasSubstr("there is no pickle opcode 0xfe"));
}

TEST_F(PtTest, AllowedOpcodesInWrongPlacesAreRefused) {
  EXPECT_THAT(refused(kNoHooks + dict({text("a") + number(1)}) + "b" + "R"), HasSubstr("opcode"));
  EXPECT_THAT(refused("]" + dict({text("__class__") + text("x")}) + "b"), HasSubstr("opcode BUILD of a list with a dict"));
  EXPECT_THAT(refused("}" + tuple({"N", dict({})}) + "b"), HasSubstr("opcode BUILD of a dict with a tuple"));
  EXPECT_THAT(refused("]" + text("a") + number(1) + "s"), HasSubstr("opcode SETITEM on a list"));
  EXPECT_THAT(refused(")(" + text("a") + number(1) + "u"), HasSubstr("opcode SETITEMS on a tuple"));
  EXPECT_THAT(refused("}(" + text("a") + "u"), HasSubstr("opcode SETITEMS has a key without a value"));
  EXPECT_THAT(refused("}" + number(1) + "a"), HasSubstr("opcode APPEND on a dict"));
  EXPECT_THAT(refused("N(" + number(1) + "e"), HasSubstr("opcode APPENDS on None"));
  EXPECT_THAT(refused(text("a") + ")R"), HasSubstr("opcode REDUCE calls a text"));
  EXPECT_THAT(refused(global("torch", "FloatStorage") + ")R"), HasSubstr("opcode REDUCE calls torch.FloatStorage"));
  EXPECT_THAT(refused(global("torch", "float32") + ")R"), HasSubstr("opcode REDUCE calls torch.float32"));
  EXPECT_THAT(refused(global("collections", "OrderedDict") + "]R"), HasSubstr("is a list, not a tuple"));
  EXPECT_THAT(refused(global("collections", "OrderedDict") + tuple({"]"}) + "R"), HasSubstr("is called with arguments"));
  EXPECT_THAT(refused(text("0") + "Q"), HasSubstr("a persistent id is a text, not a tuple"));
  EXPECT_THAT(refused("h\5"), HasSubstr("reads a memo entry that was never written"));
  EXPECT_THAT(refused("R"), HasSubstr("takes more values than the stack holds"));
  EXPECT_THAT(refused("N(0"), HasSubstr("takes more values than the stack holds"));
  EXPECT_THAT(refused("t"), HasSubstr("needs a mark"));
  EXPECT_THAT(refused("(N"), HasSubstr("values are left on the stack"));
  EXPECT_THAT(refused("NN"), HasSubstr("values are left on the stack"));
  EXPECT_THAT(refused("N.N"), HasSubstr("2 bytes follow the opcode STOP"));
  EXPECT_THAT(refused("N\x80\x02"), HasSubstr("opcode PROTO is out of place"));
  EXPECT_THAT(refused("X\xff\xff\xff\xff"), HasSubstr("it is cut off"));
  EXPECT_THAT(refused("X\1\0\0\0\xff"s), HasSubstr("a text is not UTF-8"));
  EXPECT_THAT(refused("\x8a\x20"s + std::string(32, '\1')), HasSubstr("more than 64 bits"));
  EXPECT_THAT(refused("cos"), HasSubstr("cut off inside the name of a global"));
  put("");
  EXPECT_THAT(refusal(), HasSubstr("it is cut off"));
}

TEST_F(PtTest, TensorsThatLieAboutTheirStorageAreRefused) {
  const auto with = [&](const std::string& where, const std::string& first, const std::string& sizes,
                        const std::string& strides) { return refused(dict({text("w") + tensor(where, first, sizes, strides)})); };
  const std::string six = storage("FloatStorage", "0", number(6));
  const std::string huge = "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
  const std::string minus = "\x8a\x01\xff";
  const std::string one = tuple({number(1)});
  EXPECT_THAT(with(storage("FloatStorage", "0", number(7)), number(0), one, one),
              HasSubstr("member \"a/data/0\" has 24 bytes, but data.pkl says 28"));
  EXPECT_THAT(with(storage("FloatStorage", "0", huge), number(0), one, one), HasSubstr("storage of impossible size"));
  EXPECT_THAT(with(storage("FloatStorage", "0", minus), number(0), one, one),
              HasSubstr("not described as torch describes a storage"));
  EXPECT_THAT(with(storage("FloatStorage", "1", number(6)), number(0), one, one), HasSubstr("member \"a/data/1\" is missing"));
  EXPECT_THAT(with(storage("FloatStorage", "../data/0", number(6)), number(0), one, one), HasSubstr("is missing"));
  EXPECT_THAT(with(storage("DoubleStorage", "0", number(6)), number(0), one, one), HasSubstr("data.pkl says 48"));
  EXPECT_EQ(with(six, number(5), tuple({number(2)}), one),
            "data.pkl: tensor \"w\" of shape [2] and strides [1] from element 5 on does not fit its storage of 6 elements");
  EXPECT_THAT(with(six, number(6), one, one), HasSubstr("does not fit"));
  EXPECT_THAT(with(six, huge, one, one), HasSubstr("does not fit"));
  EXPECT_THAT(with(six, minus, one, one), HasSubstr("does not begin at an element of its storage"));
  EXPECT_THAT(with(six, number(0), tuple({huge}), one), HasSubstr("does not fit"));
  EXPECT_THAT(with(six, number(0), tuple({huge, huge}), tuple({number(0), number(0)})), HasSubstr("does not fit"));
  EXPECT_THAT(with(six, number(0), tuple({number(7)}), tuple({number(0)})), HasSubstr("repeats elements of its storage"))
      << "expanded beyond its storage";
  EXPECT_THAT(with(six, number(0), tuple({number(2)}), tuple({huge})), HasSubstr("does not fit"));
  EXPECT_THAT(with(six, number(0), tuple({number(0), huge, huge}), tuple({number(0), number(0), number(0)})),
              HasSubstr("does not fit"));
  EXPECT_THAT(with(six, number(0), tuple({minus}), one),
              HasSubstr("sizes that are invalid: they must be at most 64 whole numbers, each 0 or more"));
  EXPECT_THAT(with(six, number(0), one, tuple({minus})), HasSubstr("strides that are invalid"));
  EXPECT_THAT(with(six, number(0), one, tuple({})), HasSubstr("has 1 sizes and 0 strides"));
  EXPECT_THAT(with(six, number(0), tuple(std::vector<std::string>(65, number(1))), one), HasSubstr("at most 64"));
  EXPECT_THAT(with("N", number(0), one, one), HasSubstr("not described as torch describes a storage"));
  EXPECT_THAT(with(tuple({text("module"), global("torch", "FloatStorage"), text("0"), text("cpu"), number(6)}) + "Q", number(0),
                   one, one),
              HasSubstr("not described as torch describes a storage"));
  EXPECT_THAT(refused(dict({text("a") + tensor(six, number(0), one, one),
                            text("b") + tensor(storage("FloatStorage", "0", number(5)), number(0), one, one)})),
              HasSubstr("storage \"0\" has two sizes: 24 and 20 bytes"));
  EXPECT_THAT(refused(dict({text("a") + six})), HasSubstr("\"a\" is a storage without a tensor"));
  EXPECT_THAT(refused(dict({text("a") + global("torch._utils", "_rebuild_tensor_v2") + ")R"})),
              HasSubstr("not described as torch"));
  EXPECT_THAT(refused(dict({text("a") + global("torch._utils", "_rebuild_parameter") + ")R"})),
              HasSubstr("is a parameter without a tensor"));
  EXPECT_THAT(refused(dict({"N" + number(1)})), HasSubstr("a key of a dict is None"));
  EXPECT_THAT(refused(dict({six_floats(), six_floats()})), HasSubstr("the name \"w\" occurs twice"));
  EXPECT_THAT(refused(dict({text("a.w") + number(1), text("a") + dict({text("w") + number(2)})})), HasSubstr("occurs twice"));
}

TEST_F(PtTest, BombsAreRefusedBeforeTheyGrow) {
  // A list of two lists of two lists ...: 40 levels, built only from the memo.
  std::string levels;
  for (int i = 0; i < 40; ++i) {
    const std::string below = i == 0 ? "N" : "h"s + static_cast<char>(i - 1);
    levels += "](" + below + below + "eq" + static_cast<char>(i) + (i == 39 ? "" : "0");
  }
  EXPECT_THAT(refused(levels), HasSubstr("its containers are shared so often"));
  EXPECT_THAT(refused("]q\0h\0a"s), HasSubstr("or holds itself"));
  EXPECT_THAT(refused("}q\0"s + text("a") + "h\0s"s), HasSubstr("or holds itself"));
  EXPECT_THAT(refused(std::string(100000, ']') + std::string(99999, 'a')), HasSubstr("nested more than 64 levels"));
  EXPECT_THAT(refused(std::string(3'000'000, '(')), HasSubstr("it nests too deeply"));
  EXPECT_THAT(refused(std::string(3'000'000, ']')), HasSubstr("more than 2,000,000 values"));
  EXPECT_THAT(refused(dict({text(std::string(2000, 'a')) + "N"})), HasSubstr("a name has more than 1000 bytes"));
  // A long name that many entries would repeat.
  EXPECT_THAT(refused(dict({text(std::string(900, 'a')) + "](" + std::string(100000, 'N') + "e"})),
              HasSubstr("the list of all entries would be too long"));
  // Many tensors that share one storage.
  std::string many =
      tensor(storage("FloatStorage", "0", number(200)), number(0), tuple({number(200)}), tuple({number(1)})) + "q\2" + "0](";
  for (int i = 0; i < 2000; ++i) many += "h\2";
  put(pickle(many + "e"), std::string(800, '\1'));
  EXPECT_THAT(refusal(), HasSubstr("over 16 times the file's size"));
  // A short tuple that would be copied once for every few bytes of the file.
  EXPECT_THAT(refused("(" + std::string(70, 'N') + "tq\0"s + "Q"), HasSubstr("more than 64 elements"));
}

TEST_F(PtTest, ArchivesThatAreNotTorchSavesAreRefused) {
  const std::string good = pickle(dict({six_floats()}));
  const std::string elements = raw<float>({0, 1, 2, 3, 4, 5});
  const auto refused_members = [&](const std::vector<Member>& members) {
    put_members(members);
    return refusal();
  };
  EXPECT_EQ(refused_members({{"a/data.pkl", good}, {"a/data/0", elements}}), "accepted") << "older files have no byteorder";
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"a/data/0", elements}, {"a/byteorder", "big"}}),
              HasSubstr("byte order \"big\""));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"a/data.pkl", good}, {"a/data/0", elements}}), HasSubstr("occurs twice"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"b/data.pkl", good}, {"a/data/0", elements}}),
              HasSubstr("there are two pickles"));
  EXPECT_THAT(refused_members({{"a/data/0", elements}}), HasSubstr("has no data.pkl"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"a/code/__torch__.py", "import os"}}),
              HasSubstr("TorchScript archive: it holds code"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"a/constants.pkl", ""}}), HasSubstr("TorchScript archive"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"../../etc/passwd", ""}}), HasSubstr("leads out of the archive"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"/etc/passwd", ""}}), HasSubstr("leads out of the archive"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good, true}, {"a/data/0", elements}}), HasSubstr("is compressed"));
  EXPECT_THAT(refused_members({{"a/data.pkl", good}, {"a/data/0", elements, true}}), HasSubstr("is compressed"));
  EXPECT_THAT(refused_members({{"a/data.pkl", std::string(100'000'000, 'N'), true}}), HasSubstr("data.pkl has 100 MB"));
  std::ofstream(path_, std::ios::binary) << "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  EXPECT_THAT(refusal(), HasSubstr("the format of torch before 1.6"));
  for (const char* const other : {"", "PK", "GIF89a", "{\"a\": 1}"}) {
    std::ofstream(path_, std::ios::binary) << other;
    EXPECT_THAT(refusal(), HasSubstr("not a zip archive, or it was cut off")) << other;
  }
  for (const char* const plain : {"\x80\x04\x95.", "(dp0\n."}) {
    std::ofstream(path_, std::ios::binary) << plain;
    EXPECT_THAT(refusal(), HasSubstr("this is a plain Python pickle"));
  }
}

TEST_F(PtTest, ADamagedElementIsFound) {
  put(pickle(dict({six_floats(), text("part") + tensor(storage("FloatStorage", "0", number(6)), number(1), tuple({number(2)}),
                                                       tuple({number(2)}))})));
  EXPECT_EQ(refusal(), "accepted");
  std::string bytes = contents();
  bytes[bytes.find(raw<float>({3}))] ^= 1;
  std::ofstream(path_, std::ios::binary) << bytes;
  EXPECT_EQ(refusal(), "member \"a/data/0\" is damaged: its CRC-32 differs");
  EXPECT_THROW((void)read("part"), DataError) << "also where the view does not touch the damage";
}

}  // namespace
}  // namespace millrace::format
