#include "weights/pickle.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/utf8.h"
#include "weights/tensor.h"

namespace continuo {

namespace {

constexpr const char* pickle_advice =
    " The file is damaged or holds more than tensors: save the model's state_dict again.";

enum class Is : uint8_t {
  none,
  boolean,
  whole,
  real,
  text,
  tuple,
  list,
  dict,
  mark,
  rebuild_tensor,
  rebuild_parameter,
  ordered_dict,
  storage_type,
  storage,
  tensor
};

constexpr const char* name_of(Is is) {
  switch (is) {
    case Is::none: return "None";
    case Is::boolean: return "a boolean";
    case Is::whole: return "a whole number";
    case Is::real: return "a number";
    case Is::text: return "a text";
    case Is::tuple: return "a tuple";
    case Is::list: return "a list";
    case Is::dict: return "a dict";
    case Is::mark: return "a mark";
    case Is::rebuild_tensor:
    case Is::rebuild_parameter:
    case Is::ordered_dict: return "a function";
    case Is::storage_type: return "a type";
    case Is::storage: return "a storage";
    case Is::tensor: return "a tensor";
  }
  return "a value";
}

struct StorageType {
  std::string_view global;
  const char* dtype;
  size_t bytes;
};
// Whole numbers and booleans are no weights; older packages have them as buffers, such as masks of attention, which a
// family passes over.
constexpr std::array<StorageType, 10> storage_types{{{"torch BFloat16Storage", "BF16", 2},
                                                     {"torch HalfStorage", "F16", 2},
                                                     {"torch FloatStorage", "F32", 4},
                                                     {"torch DoubleStorage", "F64", 8},
                                                     {"torch LongStorage", "I64", 8},
                                                     {"torch IntStorage", "I32", 4},
                                                     {"torch ShortStorage", "I16", 2},
                                                     {"torch CharStorage", "I8", 1},
                                                     {"torch ByteStorage", "U8", 1},
                                                     {"torch BoolStorage", "BOOL", 1}}};

using Id = uint32_t;  // of a value

// Values refer to others by id, so a value that stands in many places takes its memory once.
struct Value {
  Is is;
  uint32_t at = 0;     // lists, dicts: in `open_`; storages, tensors: in theirs; storage types: in storage_types
  int64_t number = 0;  // whole, boolean; tuples: their length
  std::string_view text;
};

struct StorageRef {
  std::string_view key;
  uint32_t type;
  uint64_t elements;
};

struct TensorRef {
  uint32_t storage;
  uint64_t offset;
  std::vector<uint64_t> shape;
};

class Machine {
 public:
  Machine(std::span<const std::byte> bytes, std::string_view file) : bytes_(bytes), file_(file) {}

  Result<std::vector<PickledTensor>> run() {
    if (bytes_.size() > max_pickle_bytes)
      return bad("has a data.pkl of ", bytes_.size(), " bytes, expected at most ", max_pickle_bytes, ".");
    for (;;) {
      if (at_ == bytes_.size()) return bad("has a data.pkl without an end.");
      const auto op = std::to_integer<uint8_t>(bytes_[at_++]);
      if (op == '.') return result();
      if (auto good = apply(op); !good) return good.error();
      if (values_.size() > max_pickle_values) return bad("has a data.pkl of more than ", max_pickle_values, " values.");
    }
  }

 private:
  template <class... Parts> Error bad(const Parts&... parts) const {
    return invalid(file_, " ", parts..., pickle_advice);
  }
  Error cut() const { return bad("has a data.pkl that ends inside an instruction."); }
  Error misplaced(const char* what) const {
    return bad("has a data.pkl that uses ", what, " where it does not belong, at byte ", at_, ".");
  }

  bool has(size_t n) const { return bytes_.size() - at_ >= n; }
  // A little-endian number of n ≤ 8 bytes, which must be there.
  uint64_t number(size_t n) {
    uint64_t out = 0;
    std::memcpy(&out, bytes_.data() + at_, n);
    at_ += n;
    return out;
  }

  Status push(Value value) {
    stack_.push_back(static_cast<Id>(values_.size()));
    values_.push_back(value);
    return Done{};
  }
  Value& value(Id id) { return values_[id]; }
  Value& top() { return values_[stack_.back()]; }

  // Takes what lies above the newest mark, and the mark. None without a mark.
  std::optional<std::vector<Id>> above_mark() {
    size_t from = stack_.size();
    while (from > 0 && value(stack_[from - 1]).is != Is::mark) --from;
    if (from == 0) return std::nullopt;
    std::vector<Id> out(stack_.begin() + static_cast<std::ptrdiff_t>(from), stack_.end());
    stack_.resize(from - 1);
    return out;
  }
  // Takes the n values on top. None where they are not there, or a mark is among them.
  std::optional<std::vector<Id>> take(size_t n) {
    if (stack_.size() < n) return std::nullopt;
    std::vector<Id> out(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end());
    if (std::any_of(out.begin(), out.end(), [&](Id id) { return value(id).is == Is::mark; })) return std::nullopt;
    stack_.resize(stack_.size() - n);
    return out;
  }

  Status push_tuple(std::optional<std::vector<Id>> items) {
    if (!items) return misplaced("a tuple");
    const auto at = static_cast<uint32_t>(items_.size());
    items_.insert(items_.end(), items->begin(), items->end());
    return push({Is::tuple, at, static_cast<int64_t>(items->size()), {}});
  }
  std::span<const Id> items_of(const Value& tuple) const {
    return std::span(items_).subspan(tuple.at, static_cast<size_t>(tuple.number));
  }
  Status push_open(Is is) {
    open_.emplace_back();
    return push({is, static_cast<uint32_t>(open_.size() - 1), 0, {}});
  }

  // Adds items to the list or dict that is now on top.
  Status add(Is is, std::optional<std::vector<Id>> items, const char* what) {
    if (!items || stack_.empty() || top().is != is || (is == Is::dict && items->size() % 2 != 0))
      return misplaced(what);
    auto& into = open_[top().at];
    into.insert(into.end(), items->begin(), items->end());
    return Done{};
  }

  Status remember(uint64_t slot) {
    if (stack_.empty() || top().is == Is::mark) return misplaced("a memo");
    memo_[slot] = stack_.back();
    return Done{};
  }
  Status recall(uint64_t slot) {
    const auto found = memo_.find(slot);
    if (found == memo_.end()) return misplaced("a memo that is not there");
    stack_.push_back(found->second);
    if (stack_.size() > max_pickle_values) return bad("has a data.pkl that piles up too many values.");
    return Done{};
  }

  Status apply(uint8_t op) {
    const auto need = [&](size_t n) { return has(n); };
    switch (op) {
      case 0x80:
        if (!need(1)) return cut();
        if (const auto version = number(1); version < 2 || version > 5)
          return bad("has a data.pkl of pickle protocol ", version, ", expected 2.");
        return Done{};
      case '}': return push_open(Is::dict);
      case ']': return push_open(Is::list);
      case ')': return push_tuple(std::vector<Id>{});
      case 'N': return push({Is::none, 0, 0, {}});
      case 0x88: return push({Is::boolean, 0, 1, {}});
      case 0x89: return push({Is::boolean, 0, 0, {}});
      case 'J':
        if (!need(4)) return cut();
        return push({Is::whole, 0, static_cast<int32_t>(number(4)), {}});
      case 'K':
        if (!need(1)) return cut();
        return push({Is::whole, 0, static_cast<int64_t>(number(1)), {}});
      case 'M':
        if (!need(2)) return cut();
        return push({Is::whole, 0, static_cast<int64_t>(number(2)), {}});
      case 0x8a: return push_long();
      case 'G':
        if (!need(8)) return cut();
        at_ += 8;  // no tensor needs one
        return push({Is::real, 0, 0, {}});
      case 'X': return push_text();
      case '(': return push({Is::mark, 0, 0, {}});
      case 't': return push_tuple(above_mark());
      case 0x85:
      case 0x86:
      case 0x87: return push_tuple(take(op - 0x84u));
      case 's': return add(Is::dict, take(2), "SETITEM");
      case 'u': return add(Is::dict, above_mark(), "SETITEMS");
      case 'a': return add(Is::list, take(1), "APPEND");
      case 'e': return add(Is::list, above_mark(), "APPENDS");
      case 'q':
      case 'h':
        if (!need(1)) return cut();
        return op == 'q' ? remember(number(1)) : recall(number(1));
      case 'r':
      case 'j':
        if (!need(4)) return cut();
        return op == 'r' ? remember(number(4)) : recall(number(4));
      case 'c': return push_global();
      case 'Q': return push_storage();
      case 'R': return reduce();
      case 'b': return take(1) && !stack_.empty() && top().is != Is::mark ? Status(Done{}) : misplaced("BUILD");
      default: break;
    }
    return bad("has a data.pkl with the pickle opcode ", static_cast<int>(op), " at byte ", at_ - 1,
               ", which no file of tensors needs; nothing of it was run.");
  }

  Status push_long() {
    if (!has(1)) return cut();
    const size_t n = number(1);
    if (!has(n)) return cut();
    if (n > 8) return bad("has a data.pkl with a number of ", n, " bytes, expected at most 8.");
    uint64_t bits = number(n);
    if (n > 0 && n < 8 && (bits >> (8 * n - 1) & 1) != 0) bits |= ~uint64_t{0} << 8 * n;
    return push({Is::whole, 0, static_cast<int64_t>(bits), {}});
  }

  Status push_text() {
    if (!has(4)) return cut();
    const size_t n = number(4);
    if (!has(n)) return cut();
    const std::string_view found(reinterpret_cast<const char*>(bytes_.data()) + at_, n);
    if (!is_utf8(found)) return bad("has a data.pkl with a text that is not UTF-8.");
    at_ += n;
    return push({Is::text, 0, 0, found});
  }

  // Two lines: module and name.
  Status push_global() {
    const auto next_line = [&]() -> std::optional<std::string_view> {
      const auto* from = reinterpret_cast<const char*>(bytes_.data()) + at_;
      const size_t most = std::min<size_t>(bytes_.size() - at_, 256);
      const auto* end = static_cast<const char*>(std::memchr(from, '\n', most));
      if (!end) return std::nullopt;
      at_ += static_cast<size_t>(end - from) + 1;
      return std::string_view(from, static_cast<size_t>(end - from));
    };
    const auto module = next_line();
    const auto name = module ? next_line() : std::nullopt;
    if (!name) return bad("has a data.pkl with a GLOBAL that names nothing.");
    const std::string full = std::string(*module) + " " + std::string(*name);
    if (full == "torch._utils _rebuild_tensor_v2") return push({Is::rebuild_tensor, 0, 0, {}});
    if (full == "torch._utils _rebuild_parameter") return push({Is::rebuild_parameter, 0, 0, {}});
    if (full == "collections OrderedDict") return push({Is::ordered_dict, 0, 0, {}});
    for (uint32_t i = 0; i < storage_types.size(); ++i) {
      if (full == storage_types[i].global) return push({Is::storage_type, i, 0, {}});
    }
    if (!is_utf8(full)) return bad("has a data.pkl with a GLOBAL that is not UTF-8.");
    if (module == "torch" && name->ends_with("Storage"))
      return invalid(file_, " has tensors of ", *name,
                     ", expected BFloat16Storage, HalfStorage, FloatStorage or DoubleStorage for weights, and whole "
                     "numbers or booleans for buffers: save the model with tensors of these alone.");
    return invalid(file_, " wants to run the Python code ", *module, ".", *name,
                   " when it is loaded, expected tensors and nothing else. Nothing was run. Do not load the file with "
                   "other tools unless you trust who made it; save the model's state_dict as safetensors.");
  }

  // ('storage', type, key, device, elements)
  Status push_storage() {
    const auto id = take(1);
    if (!id || value((*id)[0]).is != Is::tuple) return misplaced("BINPERSID");
    const auto items = items_of(value((*id)[0]));
    if (items.size() != 5 || value(items[0]).is != Is::text || value(items[0]).text != "storage" ||
        value(items[1]).is != Is::storage_type || value(items[2]).is != Is::text || value(items[3]).is != Is::text ||
        value(items[4]).is != Is::whole || value(items[4]).number < 0)
      return misplaced("BINPERSID");
    storages_.push_back({value(items[2]).text, value(items[1]).at, static_cast<uint64_t>(value(items[4]).number)});
    return push({Is::storage, static_cast<uint32_t>(storages_.size() - 1), 0, {}});
  }

  Status reduce() {
    const auto call = take(2);
    if (!call || value((*call)[1]).is != Is::tuple) return misplaced("REDUCE");
    const auto arguments = items_of(value((*call)[1]));
    switch (value((*call)[0]).is) {
      case Is::ordered_dict:
        if (!arguments.empty()) return misplaced("OrderedDict");
        return push_open(Is::dict);
      case Is::rebuild_parameter:
        if (arguments.size() != 3 || value(arguments[0]).is != Is::tensor) return misplaced("_rebuild_parameter");
        stack_.push_back(arguments[0]);
        return Done{};
      case Is::rebuild_tensor: return rebuild(arguments);
      default: return misplaced("REDUCE");
    }
  }

  // A tuple of whole numbers from 0, at most as many as a tensor has axes.
  std::optional<std::vector<uint64_t>> extents(Id id) {
    const auto& tuple = value(id);
    if (tuple.is != Is::tuple || static_cast<size_t>(tuple.number) > max_tensor_axes) return std::nullopt;
    std::vector<uint64_t> out;
    for (const Id item : items_of(tuple)) {
      if (value(item).is != Is::whole || value(item).number < 0) return std::nullopt;
      out.push_back(static_cast<uint64_t>(value(item).number));
    }
    return out;
  }

  // (storage, offset, shape, strides, requires_grad, hooks)
  Status rebuild(std::span<const Id> arguments) {
    if (arguments.size() != 6 || value(arguments[0]).is != Is::storage || value(arguments[1]).is != Is::whole ||
        value(arguments[1]).number < 0)
      return misplaced("_rebuild_tensor_v2");
    const auto shape = extents(arguments[2]), strides = extents(arguments[3]);
    if (!shape || !strides || shape->size() != strides->size()) return misplaced("_rebuild_tensor_v2");
    const auto elements = elements_of(*shape);
    const auto offset = static_cast<uint64_t>(value(arguments[1]).number);
    const auto& storage = storages_[value(arguments[0]).at];
    const auto shown = [&] { return text("a tensor of shape ", shape_text(*shape)); };
    if (!elements || offset > storage.elements || *elements > storage.elements - offset)
      return bad("has ", shown(), " from number ", offset, " of a storage of ", storage.elements, " numbers.");
    uint64_t stride = 1;
    for (size_t axis = shape->size(); *elements > 0 && axis-- > 0; stride *= (*shape)[axis]) {
      if ((*shape)[axis] == 1 || (*strides)[axis] == stride) continue;
      return invalid(file_, " has ", shown(), " with the strides ", shape_text(*strides),
                     ", expected a dense row-major tensor: save the model with its tensors made contiguous.");
    }
    tensors_.push_back({value(arguments[0]).at, offset, *shape});
    return push({Is::tensor, static_cast<uint32_t>(tensors_.size() - 1), 0, {}});
  }

  Result<std::vector<PickledTensor>> result() {
    if (at_ != bytes_.size()) return bad("has ", bytes_.size() - at_, " bytes behind the end of its data.pkl.");
    if (stack_.size() != 1 || top().is != Is::dict)
      return bad("holds ", stack_.size() == 1 ? name_of(top().is) : "several values",
                 ", expected a dict of names and tensors.");
    std::vector<PickledTensor> out;
    std::unordered_set<std::string_view> names;
    const auto& members = open_[top().at];
    for (size_t i = 0; i < members.size(); i += 2) {
      const auto &name = value(members[i]), &found = value(members[i + 1]);
      if (name.is != Is::text || name.text.empty() || name.text.size() > max_tensor_name)
        return bad("has ", name_of(name.is), " for the name of a tensor, expected a text of 1 to ", max_tensor_name,
                   " bytes.");
      if (found.is != Is::tensor)
        return bad("holds ", name_of(found.is), " under \"", name.text,
                   "\", expected a flat dict of names and tensors.");
      if (!names.insert(name.text).second) return bad("holds the tensor \"", name.text, "\" twice.");
      const auto& tensor = tensors_[found.at];
      const auto& storage = storages_[tensor.storage];
      const auto& type = storage_types[storage.type];
      out.push_back({std::string(name.text), type.dtype, type.bytes, std::string(storage.key), storage.elements,
                     tensor.offset, tensor.shape});
    }
    return out;
  }

  std::span<const std::byte> bytes_;
  std::string_view file_;
  size_t at_ = 0;
  std::vector<Id> stack_;
  std::vector<Value> values_;
  std::vector<Id> items_;              // of all tuples, one after the other
  std::vector<std::vector<Id>> open_;  // items of lists; names and values of dicts, in turn
  std::unordered_map<uint64_t, Id> memo_;
  std::vector<StorageRef> storages_;
  std::vector<TensorRef> tensors_;
};

}  // namespace

Result<std::vector<PickledTensor>> read_pickle(std::span<const std::byte> bytes, std::string_view file) {
  return Machine(bytes, file).run();
}

}  // namespace continuo
