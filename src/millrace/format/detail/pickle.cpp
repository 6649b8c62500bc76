#include "millrace/format/detail/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <utility>

#include "millrace/base/format.h"
#include "millrace/base/utf8.h"

namespace millrace::format::detail {
namespace {

using Kind = PickleWordKind;

constexpr std::string_view kUtils = "torch._utils";

constexpr std::array kWords = {
    PickleWord{"collections", "OrderedDict", Kind::ordered_dict},
    PickleWord{"torch", "Size", Kind::size},
    PickleWord{"torch", "device", Kind::device},
    PickleWord{kUtils, "_rebuild_tensor", Kind::rebuild_tensor},
    PickleWord{kUtils, "_rebuild_tensor_v2", Kind::rebuild_tensor_v2},
    PickleWord{kUtils, "_rebuild_tensor_v3", Kind::rebuild_tensor_v3},
    PickleWord{kUtils, "_rebuild_parameter", Kind::rebuild_parameter},
    PickleWord{kUtils, "_rebuild_parameter_with_state", Kind::rebuild_parameter},
    PickleWord{"torch.storage", "UntypedStorage", Kind::untyped_storage},
    PickleWord{"torch", "BoolStorage", Kind::storage, DType::boolean},
    PickleWord{"torch", "ByteStorage", Kind::storage, DType::u8},
    PickleWord{"torch", "CharStorage", Kind::storage, DType::i8},
    PickleWord{"torch", "ShortStorage", Kind::storage, DType::i16},
    PickleWord{"torch", "IntStorage", Kind::storage, DType::i32},
    PickleWord{"torch", "LongStorage", Kind::storage, DType::i64},
    PickleWord{"torch", "HalfStorage", Kind::storage, DType::f16},
    PickleWord{"torch", "BFloat16Storage", Kind::storage, DType::bf16},
    PickleWord{"torch", "FloatStorage", Kind::storage, DType::f32},
    PickleWord{"torch", "DoubleStorage", Kind::storage, DType::f64},
    PickleWord{"torch", "ComplexFloatStorage", Kind::storage, DType::c64},
    PickleWord{"torch", "ComplexDoubleStorage", Kind::storage, DType::c128},
    PickleWord{"torch", "bool", Kind::dtype, DType::boolean},
    PickleWord{"torch", "uint8", Kind::dtype, DType::u8},
    PickleWord{"torch", "int8", Kind::dtype, DType::i8},
    PickleWord{"torch", "int16", Kind::dtype, DType::i16},
    PickleWord{"torch", "uint16", Kind::dtype, DType::u16},
    PickleWord{"torch", "int32", Kind::dtype, DType::i32},
    PickleWord{"torch", "uint32", Kind::dtype, DType::u32},
    PickleWord{"torch", "int64", Kind::dtype, DType::i64},
    PickleWord{"torch", "uint64", Kind::dtype, DType::u64},
    PickleWord{"torch", "float16", Kind::dtype, DType::f16},
    PickleWord{"torch", "bfloat16", Kind::dtype, DType::bf16},
    PickleWord{"torch", "float32", Kind::dtype, DType::f32},
    PickleWord{"torch", "float64", Kind::dtype, DType::f64},
    PickleWord{"torch", "complex64", Kind::dtype, DType::c64},
    PickleWord{"torch", "complex128", Kind::dtype, DType::c128},
};

// Python's names of the rejected opcodes, so that a message can say what a file tried to do.
struct OpcodeName {
  unsigned char code;
  std::string_view name;
};
constexpr std::array kRefused = {
    OpcodeName{'i', "INST"},
    OpcodeName{'o', "OBJ"},
    OpcodeName{0x92, "NEWOBJ_EX"},
    OpcodeName{0x93, "STACK_GLOBAL"},
    OpcodeName{0x82, "EXT1"},
    OpcodeName{0x83, "EXT2"},
    OpcodeName{0x84, "EXT4"},
    OpcodeName{'P', "PERSID"},
    OpcodeName{0x95, "FRAME"},
    OpcodeName{0x94, "MEMOIZE"},
    OpcodeName{0x8c, "SHORT_BINUNICODE"},
    OpcodeName{0x8d, "BINUNICODE8"},
    OpcodeName{'B', "BINBYTES"},
    OpcodeName{'C', "SHORT_BINBYTES"},
    OpcodeName{0x8e, "BINBYTES8"},
    OpcodeName{0x96, "BYTEARRAY8"},
    OpcodeName{0x97, "NEXT_BUFFER"},
    OpcodeName{0x98, "READONLY_BUFFER"},
    OpcodeName{0x8f, "EMPTY_SET"},
    OpcodeName{0x90, "ADDITEMS"},
    OpcodeName{0x91, "FROZENSET"},
    OpcodeName{0x8b, "LONG4"},
    OpcodeName{'L', "LONG"},
    OpcodeName{'I', "INT"},
    OpcodeName{'F', "FLOAT"},
    OpcodeName{'S', "STRING"},
    OpcodeName{'T', "BINSTRING"},
    OpcodeName{'U', "SHORT_BINSTRING"},
    OpcodeName{'V', "UNICODE"},
    OpcodeName{'d', "DICT"},
    OpcodeName{'l', "LIST"},
    OpcodeName{'p', "PUT"},
    OpcodeName{'g', "GET"},
    OpcodeName{'2', "DUP"},
    OpcodeName{'1', "POP_MARK"},
};

// Thrown only inside this file, for a pickle that is refused.
struct Refused {
  std::string why;
  bool is_unread = false;
};

class Machine {
 public:
  explicit Machine(std::string_view bytes) : bytes_(bytes) {}

  Pickled run() {
    try {
      while (step()) {
      }
      if (at_ != bytes_.size()) throw Refused{std::to_string(bytes_.size() - at_) + " bytes follow the opcode STOP"};
    } catch (Refused& refused) {
      result_.is_unread = refused.is_unread;
      result_.problem = std::move(refused.why) + " (byte " + std::to_string(opcode_at_) + ")";
    }
    return std::move(result_);
  }

 private:
  std::uint64_t number(std::size_t width) {
    const std::string_view digits = take(width);
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) value = value << 8U | static_cast<unsigned char>(digits[i]);
    return value;
  }
  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size() - at_) throw Refused{"it is cut off"};
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  std::string_view line() {
    const std::size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw Refused{"it is cut off inside the name of a global"};
    const std::string_view taken = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return taken;
  }

  PickleNode& make(PickleKind kind) {
    if (result_.nodes.size() == kMostPickleNodes) {
      throw Refused{"it holds more than " + with_commas(static_cast<std::int64_t>(kMostPickleNodes)) + " values"};
    }
    stack_.push_back(static_cast<std::uint32_t>(result_.nodes.size()));
    PickleNode& node = result_.nodes.emplace_back();
    node.kind = kind;
    return node;
  }
  void push(std::uint32_t node) {
    if (stack_.size() == kMostPickleNodes) throw Refused{"it nests too deeply"};
    stack_.push_back(node);
  }
  // Returns the number of values at the bottom of the stack that an opcode may not take: those below the innermost mark, or 0 if
  // there is no mark.
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  std::uint32_t pop() {
    if (stack_.size() <= floor()) throw Refused{"an opcode takes more values than the stack holds"};
    const std::uint32_t node = stack_.back();
    stack_.pop_back();
    return node;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    if (marks_.empty()) throw Refused{"an opcode needs a mark, but there is none"};
    std::vector<std::uint32_t> taken(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return taken;
  }
  PickleNode& node(std::uint32_t index) { return result_.nodes[index]; }
  PickleNode& top() {
    if (stack_.size() <= floor()) throw Refused{"an opcode takes more values than the stack holds"};
    return node(stack_.back());
  }

  // Runs one opcode. Returns false after STOP.
  bool step() {
    opcode_at_ = at_;
    const auto opcode = static_cast<unsigned char>(take(1)[0]);
    if (opcode == '.') {
      result_.root = pop();
      if (!stack_.empty() || !marks_.empty()) throw Refused{"values are left on the stack at the opcode STOP"};
      return false;
    }
    if (constant(opcode) || container(opcode) || memory(opcode)) return true;
    switch (opcode) {
      case 0x80: {  // PROTO
        const std::uint64_t protocol = number(1);
        if (opcode_at_ != 0 || protocol < 2 || protocol > 5) throw Refused{"opcode PROTO is out of place"};
        return true;
      }
      case 'c':
        global();
        return true;
      case 'R':
        reduce();
        return true;
      case 0x81:
        new_object();
        return true;
      case 'b':
        build();
        return true;
      case 'Q': {  // BINPERSID
        std::vector<std::uint32_t> id = short_tuple(pop(), "a persistent id");
        make(PickleKind::persistent).items = std::move(id);
        return true;
      }
      default:
        refuse_opcode(opcode);
    }
  }

  [[noreturn]] static void refuse_opcode(unsigned char opcode) {
    const auto* found =
        std::find_if(kRefused.begin(), kRefused.end(), [&](const OpcodeName& name) { return name.code == opcode; });
    constexpr std::string_view kDigits = "0123456789abcdef";
    const std::string hex = std::string("0x") + kDigits[opcode >> 4U] + kDigits[opcode & 0xFU];
    if (found == kRefused.end()) throw Refused{"there is no pickle opcode " + hex};
    throw Refused{"opcode " + std::string(found->name) + " (" + hex + ") is not allowed", true};
  }

  bool constant(unsigned char opcode) {
    switch (opcode) {
      case 'N':
        make(PickleKind::none);
        return true;
      case 0x88:  // NEWTRUE
      case 0x89:  // NEWFALSE
        make(PickleKind::boolean).integer = opcode == 0x88 ? 1 : 0;
        return true;
      case 'K':  // BININT1
        integer(static_cast<std::int64_t>(number(1)));
        return true;
      case 'M':  // BININT2
        integer(static_cast<std::int64_t>(number(2)));
        return true;
      case 'J':  // BININT
        integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(number(4))));
        return true;
      case 0x8a:  // LONG1
        long_integer(take(number(1)));
        return true;
      case 'G': {  // BINFLOAT, the only number whose most significant byte comes first
        std::uint64_t bits = 0;
        for (const char c : take(8)) bits = bits << 8U | static_cast<unsigned char>(c);
        make(PickleKind::real).real = std::bit_cast<double>(bits);
        return true;
      }
      case 'X': {  // BINUNICODE
        const std::string_view text = take(number(4));
        if (first_invalid_utf8(text)) throw Refused{"a text is not UTF-8", true};
        make(PickleKind::text).text = text;
        return true;
      }
      default:
        return false;
    }
  }
  void integer(std::int64_t value) { make(PickleKind::integer).integer = value; }
  // Reads a whole number in two's complement, least significant byte first.
  void long_integer(std::string_view bytes) {
    const bool negative = !bytes.empty() && static_cast<signed char>(bytes.back()) < 0;
    const bool unsigned_fits = bytes.size() == 9 && bytes.back() == 0;
    if (bytes.size() > 8 && !unsigned_fits) throw Refused{"a whole number has more than 64 bits", true};
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = std::min<std::size_t>(bytes.size(), 8); i-- > 0;)
      value = value << 8U | static_cast<unsigned char>(bytes[i]);
    if (unsigned_fits && value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      make(PickleKind::unsigned_integer).unsigned_integer = value;
    } else {
      integer(static_cast<std::int64_t>(value));
    }
  }

  bool container(unsigned char opcode) {
    switch (opcode) {
      case '(':  // MARK
        if (marks_.size() == kMostPickleNodes) throw Refused{"it nests too deeply"};
        marks_.push_back(stack_.size());
        return true;
      case ')':
        make(PickleKind::tuple);
        return true;
      case ']':
        make(PickleKind::list);
        return true;
      case '}':
        make(PickleKind::dict);
        return true;
      case 't': {  // TUPLE
        std::vector<std::uint32_t> items = pop_to_mark();
        make(PickleKind::tuple).items = std::move(items);
        return true;
      }
      case 0x85:  // TUPLE1
      case 0x86:  // TUPLE2
      case 0x87:  // TUPLE3
      {
        std::vector<std::uint32_t> items(opcode - 0x84U);
        for (std::size_t i = items.size(); i-- > 0;) items[i] = pop();
        make(PickleKind::tuple).items = std::move(items);
        return true;
      }
      case 'a':  // APPEND
        extend(PickleKind::list, "APPEND", {pop()});
        return true;
      case 'e':  // APPENDS
        extend(PickleKind::list, "APPENDS", pop_to_mark());
        return true;
      case 's': {  // SETITEM
        const std::uint32_t value = pop();
        extend(PickleKind::dict, "SETITEM", {pop(), value});
        return true;
      }
      case 'u': {  // SETITEMS
        const std::vector<std::uint32_t> items = pop_to_mark();
        if (items.size() % 2 != 0) throw Refused{"opcode SETITEMS has a key without a value"};
        extend(PickleKind::dict, "SETITEMS", items);
        return true;
      }
      default:
        return false;
    }
  }
  void extend(PickleKind kind, const char* opcode, const std::vector<std::uint32_t>& items) {
    PickleNode& target = top();
    if (target.kind != kind) throw Refused{std::string("opcode ") + opcode + " on " + describe(target)};
    target.items.insert(target.items.end(), items.begin(), items.end());
  }

  bool memory(unsigned char opcode) {
    switch (opcode) {
      case 'q':  // BINPUT
      case 'r':  // LONG_BINPUT
        top();   // called because it throws if the stack is empty
        memo_[static_cast<std::uint32_t>(number(opcode == 'q' ? 1 : 4))] = stack_.back();
        if (memo_.size() > kMostPickleNodes) throw Refused{"its memo has too many entries"};
        return true;
      case 'h':  // BINGET
      case 'j':  // LONG_BINGET
      {
        const auto found = memo_.find(static_cast<std::uint32_t>(number(opcode == 'h' ? 1 : 4)));
        if (found == memo_.end()) throw Refused{"it reads a memo entry that was never written"};
        push(found->second);
        return true;
      }
      case '0':  // POP
        pop();
        return true;
      default:
        return false;
    }
  }

  void global() {
    const std::size_t begin = at_;
    const std::string_view module = line();
    const std::string_view name = line();
    const auto* found = std::find_if(kWords.begin(), kWords.end(),
                                     [&](const PickleWord& word) { return word.module == module && word.name == name; });
    if (found == kWords.end()) {
      make(PickleKind::foreign).text = bytes_.substr(begin, at_ - begin - 1);
    } else {
      make(PickleKind::word).word = found;
    }
  }

  // Makes an object of a class outside the list. The class must get no arguments; the object's attributes may follow.
  void new_object() {
    const std::uint32_t arguments = pop();
    const std::uint32_t made = pop();
    if (node(made).kind != PickleKind::foreign)
      throw Refused{"opcode NEWOBJ (0x81) of " + describe(node(made)) + " is not allowed", true};
    if (node(made).text.starts_with("torch"))  // a pickled module, whose weights would not be found under their names
      throw Refused{"global " + class_name(node(made)) + " is not allowed", true};
    if (node(arguments).kind != PickleKind::tuple || !node(arguments).items.empty())
      throw Refused{"an object of class " + class_name(node(made)) + " is made with arguments", true};
    const std::string_view name = node(made).text;
    make(PickleKind::object).text = name;
  }

  // Returns a copy of a tuple's elements. The tuple must be short, because a file could demand a copy of a long tuple with every
  // three bytes.
  std::vector<std::uint32_t> short_tuple(std::uint32_t index, const char* role) {
    constexpr std::size_t kMost = 64;
    const PickleNode& tuple = node(index);
    if (tuple.kind != PickleKind::tuple) throw Refused{std::string(role) + " is " + describe(tuple) + ", not a tuple"};
    if (tuple.items.size() > kMost) throw Refused{std::string(role) + " has more than 64 elements"};
    return tuple.items;
  }

  // Makes a node for a call that Python would make here.
  void reduce() {
    const std::uint32_t arguments = pop();
    const std::uint32_t callee = pop();
    if (node(callee).kind == PickleKind::foreign) throw Refused{"global " + class_name(node(callee)) + " is not allowed", true};
    if (node(callee).kind != PickleKind::word) throw Refused{"opcode REDUCE calls " + describe(node(callee))};
    const PickleWord* const word = node(callee).word;
    std::vector<std::uint32_t> items = short_tuple(arguments, "the argument list of opcode REDUCE");
    switch (word->kind) {
      case Kind::ordered_dict:
        if (!items.empty()) throw Refused{"collections.OrderedDict is called with arguments"};
        make(PickleKind::dict);
        return;
      case Kind::size: {
        if (items.size() != 1) throw Refused{"torch.Size is called without a tuple"};
        items = short_tuple(items[0], "the argument of torch.Size");
        make(PickleKind::tuple).items = std::move(items);
        return;
      }
      case Kind::storage:
      case Kind::untyped_storage:
      case Kind::dtype:
        throw Refused{"opcode REDUCE calls " + describe(node(callee))};
      default: {
        PickleNode& call = make(PickleKind::call);
        call.word = word;
        call.items = std::move(items);
      }
    }
  }

  // Takes the attributes of an object, which are kept if the object's class is outside the list. The attributes of a dict, such
  // as the versions of modules in a state_dict, are dropped, because they are not entries of the dict.
  void build() {
    const std::uint32_t state = pop();
    PickleNode& target = top();
    if (target.kind == PickleKind::object && target.items.empty()) {
      if (node(state).kind != PickleKind::dict)
        throw Refused{"an object of class " + class_name(target) + " keeps its attributes in " + describe(node(state)), true};
      target.items = {state};
      return;
    }
    if (target.kind != PickleKind::dict || node(state).kind != PickleKind::dict) {
      throw Refused{"opcode BUILD of " + describe(target) + " with " + describe(node(state))};
    }
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
  std::size_t opcode_at_ = 0;
  std::vector<std::uint32_t> stack_;
  std::vector<std::size_t> marks_;
  std::map<std::uint32_t, std::uint32_t> memo_;  // a map, because a file could provoke the worst case of a hash table
  Pickled result_;
};

}  // namespace

std::span<const PickleWord> pickle_words() noexcept { return kWords; }

Pickled unpickle(std::string_view bytes) { return Machine(bytes).run(); }

std::string class_name(const PickleNode& node) {
  constexpr std::size_t kShown = 200;
  const std::size_t end = node.text.find('\n');
  return quoted(std::string(node.text.substr(0, std::min(end, kShown))) + "." + std::string(node.text.substr(end + 1, kShown)));
}

std::string describe(const PickleNode& node) {
  switch (node.kind) {
    case PickleKind::none:
      return "None";
    case PickleKind::boolean:
      return "a truth value";
    case PickleKind::integer:
    case PickleKind::unsigned_integer:
      return "a whole number";
    case PickleKind::real:
      return "a number";
    case PickleKind::text:
      return "a text";
    case PickleKind::list:
      return "a list";
    case PickleKind::tuple:
      return "a tuple";
    case PickleKind::dict:
      return "a dict";
    case PickleKind::word:
    case PickleKind::call:
      return std::string(node.word->module) + "." + std::string(node.word->name);
    case PickleKind::persistent:
      return "a storage";
    case PickleKind::foreign:
      return "class " + class_name(node);
    case PickleKind::object:
      return "an object of class " + class_name(node);
  }
  return "";
}

}  // namespace millrace::format::detail
