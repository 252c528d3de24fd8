#include "base/json.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"

namespace continuo::json {

const char* name_of(Value::Kind kind) {
  switch (kind) {
    case Value::Kind::null: return "null";
    case Value::Kind::boolean: return "a boolean";
    case Value::Kind::number: return "a number";
    case Value::Kind::string: return "a string";
    case Value::Kind::array: return "an array";
    case Value::Kind::object: return "an object";
  }
  return "a value";
}

const Value* Value::find(std::string_view name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

const std::string* Value::text_of(std::string_view name) const {
  const auto* value = find(name);
  return value && value->is_string() ? &value->text : nullptr;
}

const std::vector<Value>* Value::list_of(std::string_view name) const {
  const auto* value = find(name);
  return value && value->is_array() ? &value->items : nullptr;
}

std::optional<uint64_t> Value::as_u64() const {
  if (kind != Kind::number) return std::nullopt;
  uint64_t out = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

std::optional<double> Value::as_double() const {
  if (kind != Kind::number) return std::nullopt;
  double out = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return out;
}

namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  Result<Value> document() {
    Value value;
    if (!read(value, 0)) return invalid(problem_, " at byte ", at_, ".");
    skip_space();
    if (at_ != source_.size()) return invalid("text after the end of the JSON value at byte ", at_, ".");
    return value;
  }

 private:
  bool fail(const char* problem) {
    problem_ = problem;
    return false;
  }

  bool more() const { return at_ < source_.size(); }
  char peek() const { return more() ? source_[at_] : '\0'; }

  void skip_space() {
    while (more() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }

  bool word(std::string_view expected) {
    if (source_.substr(at_, expected.size()) != expected) return fail("expected a JSON value");
    at_ += expected.size();
    return true;
  }

  bool read(Value& out, int depth) {
    if (depth > max_depth) return fail("JSON nested deeper than 32 levels");
    skip_space();
    if (!more()) return fail("JSON ends too early");
    switch (peek()) {
      case '{': return object(out, depth);
      case '[': return array(out, depth);
      case '"': out.kind = Value::Kind::string; return string(out.text);
      case 't':
        out.kind = Value::Kind::boolean;
        out.boolean = true;
        return word("true");
      case 'f': out.kind = Value::Kind::boolean; return word("false");
      case 'n': return word("null");
      default: return number(out);
    }
  }

  bool object(Value& out, int depth) {
    out.kind = Value::Kind::object;
    ++at_;
    skip_space();
    if (peek() == '}') return ++at_, true;
    for (;;) {
      skip_space();
      if (peek() != '"') return fail("expected a name in double quotes");
      Value::Member member;
      if (!string(member.first)) return false;
      skip_space();
      if (peek() != ':') return fail("expected ':'");
      ++at_;
      if (!read(member.second, depth + 1)) return false;
      out.members.push_back(std::move(member));
      skip_space();
      if (peek() == ',') {
        ++at_;
        continue;
      }
      if (peek() == '}') break;
      return fail("expected ',' or '}'");
    }
    ++at_;
    return names_unique(out);
  }

  bool names_unique(const Value& object) {
    std::vector<std::string_view> names;
    names.reserve(object.members.size());
    for (const auto& member : object.members) names.push_back(member.first);
    std::sort(names.begin(), names.end());
    if (std::adjacent_find(names.begin(), names.end()) != names.end()) return fail("the same name twice in one object");
    return true;
  }

  bool array(Value& out, int depth) {
    out.kind = Value::Kind::array;
    ++at_;
    skip_space();
    if (peek() == ']') return ++at_, true;
    for (;;) {
      Value item;
      if (!read(item, depth + 1)) return false;
      out.items.push_back(std::move(item));
      skip_space();
      if (peek() == ',') {
        ++at_;
        continue;
      }
      if (peek() == ']') return ++at_, true;
      return fail("expected ',' or ']'");
    }
  }

  static bool digit(char c) { return c >= '0' && c <= '9'; }

  bool digits() {
    if (!digit(peek())) return fail("expected a JSON value");
    while (digit(peek())) ++at_;
    return true;
  }

  bool number(Value& out) {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0')
      ++at_;
    else if (!digits())
      return false;
    if (peek() == '.') {
      ++at_;
      if (!digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return false;
    }
    out.kind = Value::Kind::number;
    out.text = source_.substr(start, at_ - start);
    return true;
  }

  bool hex4(uint32_t& out) {
    out = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      const int v = digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (v < 0) return fail("expected four hex digits after \\u");
      out = out * 16 + static_cast<uint32_t>(v);
    }
    return true;
  }

  static void put_utf8(std::string& out, uint32_t c) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xC0 | c >> 6);
      out += static_cast<char>(0x80 | (c & 63));
    } else if (c < 0x10000) {
      out += static_cast<char>(0xE0 | c >> 12);
      out += static_cast<char>(0x80 | (c >> 6 & 63));
      out += static_cast<char>(0x80 | (c & 63));
    } else {
      out += static_cast<char>(0xF0 | c >> 18);
      out += static_cast<char>(0x80 | (c >> 12 & 63));
      out += static_cast<char>(0x80 | (c >> 6 & 63));
      out += static_cast<char>(0x80 | (c & 63));
    }
  }

  bool escape(std::string& out) {
    ++at_;
    const char c = peek();
    ++at_;
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return true;
      case 'b': out += '\b'; return true;
      case 'f': out += '\f'; return true;
      case 'n': out += '\n'; return true;
      case 'r': out += '\r'; return true;
      case 't': out += '\t'; return true;
      case 'u': break;
      default: return fail("unknown escape in a string");
    }
    uint32_t code = 0;
    if (!hex4(code)) return false;
    if (code >= 0xDC00 && code < 0xE000) return fail("half a surrogate pair in a string");
    if (code >= 0xD800 && code < 0xDC00) {
      uint32_t low = 0;
      if (source_.substr(at_, 2) != "\\u") return fail("half a surrogate pair in a string");
      at_ += 2;
      if (!hex4(low)) return false;
      if (low < 0xDC00 || low > 0xDFFF) return fail("half a surrogate pair in a string");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    put_utf8(out, code);
    return true;
  }

  bool utf8(std::string& out) {
    const size_t length = utf8_length(source_, at_);
    if (length == 0) return fail("invalid UTF-8 in a string");
    out.append(source_.substr(at_, length));
    at_ += length;
    return true;
  }

  bool string(std::string& out) {
    ++at_;
    for (;;) {
      if (!more()) return fail("a string without end");
      const auto c = static_cast<uint8_t>(peek());
      if (c == '"') return ++at_, true;
      if (c < 0x20) return fail("a control character in a string");
      if (c == '\\') {
        if (!escape(out)) return false;
      } else if (c < 0x80) {
        out += static_cast<char>(c);
        ++at_;
      } else if (!utf8(out)) {
        return false;
      }
    }
  }

  std::string_view source_;
  size_t at_ = 0;
  const char* problem_ = "";
};

}  // namespace

Result<Value> parse(std::string_view source) { return Parser(source).document(); }

}  // namespace continuo::json
