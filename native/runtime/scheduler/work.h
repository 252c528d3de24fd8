// Item: one request to an engine for one context. ItemResult: its answer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/adapt/adapt.h"
#include "runtime/memory/memory_controller.h"
#include "runtime/sampling/perspectives.h"
#include "runtime/sampling/sampler.h"

namespace continuo {

// The bytes that each token of a vocabulary stands for.
struct TokenBytes {
  std::string bytes;           // [ends.back()]: the bytes of all tokens, one token after the other
  std::vector<uint64_t> ends;  // [vocabulary]: where the bytes of each token end
  // Empty for a token that is not in the table.
  std::string_view of(int32_t token) const;
};

// Byte strings that end a generation. A stop string may begin in bytes that were generated before this item.
struct StopStrings {
  std::shared_ptr<const TokenBytes> bytes;
  std::vector<std::string> strings;  // none is empty
  std::string tail;                  // last bytes generated so far, at most as many as the longest string has
  // Whether a stop string ends in the bytes of this token. To be called for each generated token, in order.
  bool ends_with(int32_t token);
};

// The engine feeds `tokens`, then samples and feeds up to `count` tokens. A generation ends before its count where an
// end token is drawn, which is not fed; where a stop string ends in a token, which is fed; or where the context has no
// position left.
struct Item {
  std::shared_ptr<Context> context;
  std::vector<int32_t> tokens;  // [tokens to feed]
  bool nats = false;            // whether the surprisals of `tokens` are asked for
  uint32_t count = 0;           // tokens to generate, at most
  Sampling sampling;
  std::vector<int32_t> end_tokens = {};
  StopStrings stop = {};
  Shaping shaping = {};
  std::vector<uint64_t> allowed = {};  // what may be drawn, as Allowed has it: for each token of the item the same
  uint32_t top_logprobs = 0;  // of how many of the likeliest tokens the log probabilities are asked for, with each draw
  // Whether another item of this context follows at once, unless this one ends early. Steps may wait for it (pace.h).
  bool more = false;
  // Whether notes of the draws, and the experts of generated tokens, are asked for.
  bool perspectives = false;
  // In place of tokens to feed or to generate.
  std::optional<std::variant<MemoryRequest, AdaptRequest>> request = {};
  // Whether the sum of the hidden vectors of `tokens` is asked for, and the last one.
  bool hidden = false;

  bool is_end(int32_t token) const {
    return std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end();
  }
};

// Why a generation ended before its count.
enum class Ended : uint8_t { not_early, end_token, stop_string, positions };

struct ItemResult {
  std::vector<float> nats;         // [fed tokens], NaN for the first token of a context; empty unless asked for
  std::vector<double> hidden_sum;  // [channels], of the fed tokens, added in their order; empty unless asked for
  std::vector<float> hidden_last;  // [channels], of the last of them
  std::vector<int32_t> generated;
  std::vector<float> logprobs;      // [generated], −nats each
  std::vector<int32_t> top;         // [generated][top_logprobs]: ids, the likeliest first; of a smaller vocabulary all
  std::vector<float> top_logprobs;  // of each of these
  std::vector<DrawNote> draws;      // [generated] where asked for
  std::vector<int32_t> experts;     // [generated][layers with experts][rank] where asked for
  Ended ended = Ended::not_early;
  std::optional<AdaptReport> adapted;  // of an adaptation that was not stopped
  std::vector<MemoryEvent> events;     // what the external memory did, in order
  Head head;                           // of the context, after the item
  // Invalid: the item's tokens do not fit into its context, and no token was fed. Refused: the context's state stopped
  // being finite; the fields above still have the results from before that, for callers in C++. Unavailable: the device
  // was lost or memory ran out, and the context is unusable. Misuse: the engine was stopped.
  std::optional<Error> error;
};

// Totals of an engine.
struct Counts {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> tokens{0};  // fed in those steps
  std::atomic<uint64_t> items{0};   // answered
  // Tokens that were guessed, and those of them that were drawn.
  std::atomic<uint64_t> drafted{0}, kept{0};
  // How often an item stood still until archived blocks of its context were there, and how long in all.
  std::atomic<uint64_t> block_waits{0}, block_wait_ns{0};
};

}  // namespace continuo
