#include "binding/bulk.h"

#include <cmath>
#include <cstring>

#include "base/sha256.h"
#include "binding/handles.h"
#include "binding/job.h"

namespace continuo::binding {

using Napi::CallbackInfo;
using Napi::Value;

namespace {

// What a job leaves for its promise. Types of this file: the loader may give std::shared_ptr<std::string> the code that
// Node has for it, which is compiled without run-time types.
struct Digest {
  std::string hex;
};
struct Sums {
  std::vector<double> found;
};

std::vector<std::span<std::byte>> pieces_of(Job& job, const Value& list) {
  const auto array = list.As<Napi::Array>();
  std::vector<std::span<std::byte>> out;
  for (uint32_t i = 0; i < array.Length(); ++i) out.push_back(keep(job, array.Get(i)));
  return out;
}

// Of `count` f32 from `from` on, at any alignment: the sum of their squares, added one after the other in f64, and the
// largest magnitude. Either is NaN where a number is.
std::pair<double, double> measured(const std::byte* from, size_t count) {
  double sum = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    sum += static_cast<double>(value) * value;
    const double size = std::fabs(value);
    // Keeps NaN.
    if (!(size <= largest)) largest = std::isnan(largest) ? largest : size;
  }
  return {sum, largest};
}

}  // namespace

// digest(pieces) → Promise<string>: the sha256 of the pieces one after the other.
Value digest(const CallbackInfo& info) {
  Job job;
  auto result = std::make_shared<Digest>();
  job.body = [pieces = pieces_of(job, info[0]), result]() -> Status {
    Sha256 hash;
    for (const auto piece : pieces) hash.update(piece);
    result->hex = hash.hex();
    return Done{};
  };
  job.value = [result](Napi::Env env) -> Value { return Napi::String::New(env, result->hex); };
  return promise_of(info.Env(), std::move(job));
}

// join(pieces, out) → Promise<void>: copies the pieces one after the other; `out` has their length.
Value join(const CallbackInfo& info) {
  Job job;
  auto pieces = pieces_of(job, info[0]);
  const auto out = keep(job, info[1]);
  size_t total = 0;
  for (const auto piece : pieces) total += piece.size();
  if (total != out.size())
    throw error_value(info.Env(), internal("pieces of ", total, " bytes do not fill ", out.size(), "."));
  job.body = [pieces = std::move(pieces), out]() -> Status {
    size_t at = 0;
    for (const auto piece : pieces) {
      if (!piece.empty()) std::memcpy(out.data() + at, piece.data(), piece.size());
      at += piece.size();
    }
    return Done{};
  };
  return promise_of(info.Env(), std::move(job));
}

// scatter(bytes, moves, out) → Promise<string>: moves are triples, from where in `bytes` to where in `out` how many
// bytes go. The sha256 of all of `bytes`.
Value scatter(const CallbackInfo& info) {
  struct Move {
    size_t from, to, count;
  };
  Job job;
  const auto bytes = keep(job, info[0]), out = keep(job, info[2]);
  const auto moves = info[1].As<Napi::Float64Array>();
  std::vector<Move> wanted;
  for (size_t i = 0; i + 2 < moves.ElementLength(); i += 3) {
    const double from = moves[i], to = moves[i + 1], count = moves[i + 2];
    if (!(from >= 0 && to >= 0 && count >= 0 && from + count <= static_cast<double>(bytes.size()) &&
          to + count <= static_cast<double>(out.size())))
      throw error_value(info.Env(), internal("a piece lies outside of the arrays that it goes between."));
    wanted.push_back({static_cast<size_t>(from), static_cast<size_t>(to), static_cast<size_t>(count)});
  }
  auto result = std::make_shared<Digest>();
  job.body = [bytes, out, wanted = std::move(wanted), result]() -> Status {
    Sha256 hash;
    hash.update(bytes);
    result->hex = hash.hex();
    for (const auto& [from, to, count] : wanted)
      if (count > 0) std::memcpy(out.data() + to, bytes.data() + from, count);
    return Done{};
  };
  job.value = [result](Napi::Env env) -> Value { return Napi::String::New(env, result->hex); };
  return promise_of(info.Env(), std::move(job));
}

// norms(bytes, slices) → Promise<Float64Array>: slices are pairs of an offset in bytes and a number of f32; of each the
// sum of squares and the largest magnitude.
Value norms(const CallbackInfo& info) {
  Job job;
  const auto bytes = keep(job, info[0]);
  const auto slices = info[1].As<Napi::Float64Array>();
  std::vector<std::pair<size_t, size_t>> wanted;
  for (size_t i = 0; i + 1 < slices.ElementLength(); i += 2) {
    const double offset = slices[i], count = slices[i + 1];
    const auto size = static_cast<double>(bytes.size());
    if (!(offset >= 0 && count >= 0 && offset + 4 * count <= size))
      throw error_value(info.Env(), internal("a slice lies outside of the state."));
    wanted.emplace_back(static_cast<size_t>(offset), static_cast<size_t>(count));
  }
  auto sums = std::make_shared<Sums>();
  job.body = [bytes, wanted = std::move(wanted), sums]() -> Status {
    for (const auto& [offset, count] : wanted) {
      const auto [sum, largest] = measured(bytes.data() + offset, count);
      sums->found.push_back(sum);
      sums->found.push_back(largest);
    }
    return Done{};
  };
  job.value = [sums](Napi::Env env) -> Value {
    const auto& found = sums->found;
    auto out = Napi::Float64Array::New(env, found.size());
    if (!found.empty()) std::memcpy(out.Data(), found.data(), found.size() * sizeof(double));
    return out;
  };
  return promise_of(info.Env(), std::move(job));
}

}  // namespace continuo::binding
