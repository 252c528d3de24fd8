// A strict JSON reader (RFC 8259) for two untrusted inputs: the safetensors header and the serialised graph.
// Stricter than most readers: a member named twice, invalid UTF-8, nesting beyond the limit and text after the end are
// errors. Numbers keep their text, so that 64-bit offsets stay exact.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace continuo::json {

class Value {
 public:
  enum class Kind { null, boolean, number, string, array, object };
  using Member = std::pair<std::string, Value>;

  Kind kind = Kind::null;
  bool boolean = false;
  std::string text;             // a string's content, or a number's literal
  std::vector<Value> items;     // array
  std::vector<Member> members;  // object, in the order of the file

  bool is_object() const { return kind == Kind::object; }
  bool is_array() const { return kind == Kind::array; }
  bool is_string() const { return kind == Kind::string; }

  // The member of that name. Null where it is missing, or where this is not an object.
  const Value* find(std::string_view name) const;
  // The text or the items of the member. Null where it is missing, or where it is no string or no array.
  const std::string* text_of(std::string_view name) const;
  const std::vector<Value>* list_of(std::string_view name) const;
  // A whole number 0 … 2⁶⁴−1 written without fraction or exponent.
  std::optional<uint64_t> as_u64() const;
  std::optional<double> as_double() const;
};

constexpr int max_depth = 32;

Result<Value> parse(std::string_view source);

// The name of a JSON kind, for messages.
const char* name_of(Value::Kind kind);

}  // namespace continuo::json
