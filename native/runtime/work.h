// What is asked of an engine, item by item, and what became of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/context.h"
#include "runtime/sampler.h"

namespace continuo {

// The bytes that each token of a vocabulary stands for.
struct TokenBytes {
  std::string bytes;           // of all tokens, one after the other
  std::vector<uint64_t> ends;  // [vocabulary]: where those of each token end
  // Empty for a token that is not in the table.
  std::string_view of(int32_t token) const;
};

// Strings of bytes that end a generation. A string may begin in what was generated before.
struct StopStrings {
  std::shared_ptr<const TokenBytes> bytes;
  std::vector<std::string> strings;  // none is empty
  std::string tail;                  // the last bytes generated before; those of the longest string are enough
  // Whether one of them ends in the bytes of this token. To be asked for each token in order.
  bool ends_with(int32_t token);
};

// First `tokens` are fed, then up to `count` tokens are sampled and fed. The generation ends before its count where an
// end token is drawn, which is not fed; where a stop string ends in a token, which is fed; or where the context has no
// position left.
struct Item {
  std::shared_ptr<Context> context;
  std::vector<int32_t> tokens;
  bool nats = false;
  uint32_t count = 0;
  Sampling sampling;
  std::vector<int32_t> end_tokens = {};
  StopStrings stop = {};
  // Another item of this context follows at once if this one is not ended early: steps may be planned for that
  // (pace.h).
  bool more = false;
};

// What ended a generation before its count.
enum class Ended : uint8_t { not_early, end_token, stop_string, positions };

struct ItemResult {
  std::vector<float> nats;  // per fed token, NaN for the first of a context; empty unless asked for
  std::vector<int32_t> generated;
  std::vector<float> logprobs;  // per generated token
  Ended ended = Ended::not_early;
  Head head;
  // Invalid: the item's tokens do not fit into its context, and nothing was fed. Refused: its state stopped being
  // finite; what it computed before is still here, for callers in C++. Unavailable: the device or memory was lost, and
  // the context with it. Misuse: the engine was stopped.
  std::optional<Error> error;
};

// What an engine has done so far.
struct Counts {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> tokens{0};  // fed in them
  std::atomic<uint64_t> items{0};   // answered
};

// Something that is not in memory yet and will be: weights, blocks of a context, a context that was paged out. A row
// whose context waits for a ticket takes part in no step until the ticket is open.
class Ticket {
 public:
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // From any thread: what was waited for is there.
  void open();
  // Calls `wake` when the ticket opens; at once where it is open.
  void on_open(std::function<void()> wake);

 private:
  std::atomic<bool> ready_{false};
  std::mutex mutex_;
  std::vector<std::function<void()>> wakes_;
};

}  // namespace continuo
