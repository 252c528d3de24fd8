// ReadTurns: which item that reads has the next turn.
//
// Start-time fair queueing (Goyal, Vin and Cheng 1996). Each context has a place, which each token that it reads moves
// on. The item whose context has the first place has the next turn; the clock stands at the last place that had one. A
// context that was away comes in a little before the clock, so that a short message is read before the next turns of
// those that read all the time. What it did not use beyond that is lost, so it holds nobody up for longer.
//
// Tokens of short messages weigh less: all messages together may read as much as all other items together. Else a
// program in conversation, whose session reads as much in a second as each of many that read all the time, would have
// its answers only after a turn of each of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace continuo {

class ReadTurns {
 public:
  // Rows of a turn, at least, where the step has as many left. Several at once, because one fetch of a context's state
  // then serves all of them.
  static constexpr size_t rows = 16;
  // Rows of a turn of a model with so many bytes of state and of weights, whose steps have up to `most` rows. A step
  // fetches the weights once for all its rows, and the state of each turn. Where the state is the larger part, turns
  // are longer; each of `threads` has one in a step.
  static constexpr size_t rows_for(size_t state, size_t weights, size_t most, size_t threads) {
    const double longer = rows * (static_cast<double>(state) / static_cast<double>(std::max<size_t>(weights, 1)));
    const size_t longest = std::max(rows, most / std::max<size_t>(threads, 1));
    return longer < static_cast<double>(longest) ? std::max(rows, static_cast<size_t>(longer)) : longest;
  }
  // Tokens before the clock, at most, and of a short message.
  static constexpr size_t lead = 64;

  // The place of a context whose item arrives. One that never read has no lead.
  double enter(double place) const { return place < 0 ? clock_ : std::max(place, clock_ - lead); }
  // The items that read now, and how many of them are messages.
  void among(size_t items, size_t messages) {
    const bool outweigh = items <= 2 * messages;
    share_ = outweigh || messages == 0 ? 1 : static_cast<double>(messages) / static_cast<double>(items - messages);
  }
  // The place of a context behind a turn of so many tokens.
  double read(double place, size_t tokens, bool message) {
    clock_ = std::max(clock_, place);
    return place + static_cast<double>(tokens) * (message ? share_ : 1);
  }

 private:
  double clock_ = 0;
  double share_ = 1;  // by which a token of a message moves its context on
};

}  // namespace continuo
