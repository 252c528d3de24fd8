// Number formats of a graph's dynamics, volatiles and persistents. (Formats of stored weights: dtype.h, weights.h.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace continuo {

// Arithmetic is done in f32 and i32. The other types are only stored, copied and cast. i64 is the type of counters.
enum class Type : uint8_t { f32, f16, bf16, f8, i8, u8, i32, i64, boolean };

struct TypeRule {
  Type type;
  std::string_view name;
  size_t bytes;
};

constexpr std::array<TypeRule, 9> type_rules{{{Type::f32, "f32", 4},
                                              {Type::f16, "f16", 2},
                                              {Type::bf16, "bf16", 2},
                                              {Type::f8, "f8", 1},
                                              {Type::i8, "i8", 1},
                                              {Type::u8, "u8", 1},
                                              {Type::i32, "i32", 4},
                                              {Type::i64, "i64", 8},
                                              {Type::boolean, "bool", 1}}};

constexpr size_t size_of(Type type) { return type_rules[static_cast<size_t>(type)].bytes; }
constexpr std::string_view name_of(Type type) { return type_rules[static_cast<size_t>(type)].name; }

constexpr bool is_float(Type type) {
  return type == Type::f32 || type == Type::f16 || type == Type::bf16 || type == Type::f8;
}

constexpr std::optional<Type> type_named(std::string_view name) {
  for (const auto& rule : type_rules) {
    if (rule.name == name) return rule.type;
  }
  return std::nullopt;
}

}  // namespace continuo
