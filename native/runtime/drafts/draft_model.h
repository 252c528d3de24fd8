// DraftModel: a smaller model with the same vocabulary, which guesses the tokens that sessions are about to draw.
//
// It has a context of its own for each session that it guesses for, and feeds it what the session feeds. Guesses are
// fed behind that, one by one, each drawn as the session draws: with its sampling, its penalties and its random number
// of that pulse. What the session then did not draw is taken back (Executor::mark), so no token is fed twice.
//
// Nothing of it is part of a session's state. All its contexts together have a bound, and those that were not used for
// longest go first. One that is not there, or too far behind, or full, begins anew with the last tokens of the session.
// It runs on the engine's thread between two steps, and on the CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/executor/executor.h"
#include "runtime/sampling/sampler.h"

namespace continuo {

// A session that is about to feed a token that it drew.
struct Drawing {
  const Context* context;
  int32_t token;
  size_t most;  // guesses that it has room for
  // How it draws what follows; they lie in its item.
  const Sampling& sampling;
  const Shaping& shaping;
  Allowed allowed;
  std::span<const int32_t> end_tokens;
};

class DraftModel {
 public:
  static constexpr size_t default_bytes = size_t{256} << 20;
  // `bytes`: of all contexts together, and of what takes their guesses back. `vocabulary`: as ExecutorOptions have it.
  DraftModel(std::shared_ptr<const Model> model, ThreadPool& pool, size_t bytes,
             std::shared_ptr<const TokenBytes> vocabulary = nullptr);
  // Whether it can guess tokens for such a model; the error says why not.
  Status fits(const Model& other) const;

  struct Guess {
    int32_t token;
    float p;  // by the draft model's own logits
  };
  // One session's part in a round of guessing.
  struct Asked {
    const Drawing* drawing;
    std::span<const int32_t> past;  // what the session fed last, up to the token that it drew
    std::vector<Guess> guesses = {};
    bool over = false;    // there is no further guess
    bool failed = false;  // because the draft model gave no numbers, or has no room
    std::optional<Shaping> shaping = {};
  };
  // Brings the contexts of these sessions to where the sessions stand, and makes the first guess for each.
  void begin(std::span<Asked* const> asked);
  // Makes one more guess for each of these, which are not over.
  void go_on(std::span<Asked* const> asked);
  // Forgets what it has of the session.
  void forget(const Context* session);

 private:
  struct Session {
    std::unique_ptr<Context> context;
    uint64_t pulse = 0;                 // it was fed the session's tokens before this pulse,
    std::vector<int32_t> ahead;         // and these guesses behind them
    std::vector<Executor::Mark> marks;  // [ahead]
    size_t bytes = 0;
    uint64_t used = 0;
  };
  struct Feed {
    Asked* asked;
    Session* session;
    std::vector<int32_t> tokens;
    size_t fed = 0;
  };
  Session* session_of(Asked& asked);
  std::vector<int32_t> sync(Session& session, const Asked& asked);
  void feed(std::span<Feed> feeds);
  void guess(std::span<Asked* const> asked);
  void guess_behind(std::span<Feed> feeds);
  void bound(size_t bytes);

  std::shared_ptr<const Model> model_;
  std::unique_ptr<Executor> executor_;
  size_t most_bytes_;
  std::unordered_map<const Context*, Session> sessions_;
  size_t bytes_ = 0;  // of all sessions
  uint64_t round_ = 0;
};

}  // namespace continuo
