// Errors as values. Functions of native/ return them; only memory that runs out and a device that fails are thrown
// (runtime/model/device.h). The binding turns an Error into a JavaScript error with the same code and message. A
// message says what was expected, what arrived and what to do.
#pragma once

#include <sstream>
#include <string>
#include <utility>
#include <variant>

namespace continuo {

// The codes of src/errors.ts that the engine uses.
enum class Code { invalid, misuse, refused, unavailable, internal };

const char* name_of(Code code);

struct Error {
  Code code;
  std::string message;
};

// Joins its arguments into a string. GCC 12, the oldest compiler that we support, has no std::format.
template <class... Parts> std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <class... Parts> Error invalid(const Parts&... parts) { return {Code::invalid, text(parts...)}; }

template <class... Parts> Error internal(const Parts&... parts) { return {Code::internal, text(parts...)}; }

template <class T> class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}

  explicit operator bool() const { return held_.index() == 0; }
  T& value() { return std::get<0>(held_); }
  const T& value() const { return std::get<0>(held_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(held_); }

 private:
  std::variant<T, Error> held_;
};

struct Done {};
using Status = Result<Done>;

}  // namespace continuo
