// Drafts: guesses of the tokens that sessions are about to draw, and how many guesses a step should have.
//
// A session that generates feeds the token that it drew. The same step can feed tokens that it will draw next, if
// somebody guesses them: one pass over the weights then judges all of them (Scheduler::judge). What is drawn does not
// depend on the guesses, so they may come from anything. They come from the session's own past: what followed the last
// place that reads like its end; or from a smaller model (draft_model.h). The past is no part of a context's state. It
// has what the session read and wrote since it entered this engine, at most `most_past` tokens, and all pasts together
// have a bound.
//
// A drafted row costs time in any case, and gains a token if it is kept. So a step has those drafts that raise the
// expected tokens per second: by the share of drafts that were kept lately, for matches of such a length, or for
// guesses of which the smaller model was so sure; by the time of a step as a linear function of its rows, and by the
// time that the smaller model takes for a guess, which are measured. Where none does, one is tried now and then. A try
// of the smaller model needs no row: what the session draws in the end says how good its guesses were. And where drafts
// gain little by this, whole steps with and without them are compared (draft_trial.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/drafts/draft_model.h"
#include "runtime/drafts/draft_trial.h"
#include "runtime/state/context.h"

namespace continuo {

struct DraftOptions {
  uint32_t most = 0;  // drafts of a session in a step, at most; 0: none
  bool adapt = true;  // false: as many as there are, in every step, whatever it costs
};

// What a session read and wrote, and where in it n-grams stand.
class Past {
 public:
  // Tokens that it has at least of those that came last, where so many came; it may have twice as many.
  static constexpr size_t most_past = 32768;

  void append(std::span<const int32_t> tokens);
  // The longest place before the end that reads like the end, of those that are looked at: with the token, at least
  // two tokens. Length of what is alike, and what followed it, up to `most` tokens.
  struct Match {
    size_t length = 0;
    std::vector<int32_t> tokens = {};
  };
  Match match(int32_t token, size_t most);
  // What followed the last place of this token alone; the token itself where it is new.
  std::vector<int32_t> any(int32_t token, size_t most) const;
  // The tokens that it has of those that came last.
  std::span<const int32_t> tokens() const { return tokens_; }
  size_t bytes() const;

 private:
  // Places of n-grams: of each hash the last, and for each place the one before it with the same hash.
  struct Places {
    size_t n;
    std::vector<int32_t> last = {}, before = {};
  };
  void index();
  size_t alike(size_t place) const;
  std::vector<int32_t> followed(size_t place, size_t most) const;

  std::vector<int32_t> tokens_;
  size_t indexed_ = 0;  // of them
  std::array<Places, 2> places_{{{8}, {2}}};
};

class Drafts {
 public:
  void set(const DraftOptions& options) { options_ = options; }
  bool on() const { return options_.most > 0; }
  // Null: the past alone.
  void set(std::unique_ptr<DraftModel> model) { model_ = std::move(model); }

  // The context fed these tokens; its head is past them.
  void fed(const Context& context, std::span<const int32_t> tokens);
  // A step begins, with one row for each of `generating` sessions, and about `reading` other rows.
  void begin(size_t generating, size_t reading);
  // What a step has room for: drafts, and sessions that have some.
  struct Room {
    size_t rows, sessions;
  };
  // Of each of these sessions the tokens that it may draw behind the one that it feeds in this step.
  std::vector<std::vector<int32_t>> propose(std::span<const Drawing> drawn, Room room);
  // How many of the drafts of the last propose() were kept. To be called before fed().
  void judged(const Context& context, size_t drafted, size_t kept);
  // A step with so many rows gave so many tokens, and took so long.
  void stepped(size_t rows, size_t tokens, double seconds);

 private:
  // Of drafts by matches of one class of lengths: 2, 3, 4, 5, 6, 8, 12, 24, 48 tokens and more.
  struct Rate {
    double kept = 0.6;    // share, a moving average
    uint32_t passed = 0;  // times in a row that no draft seemed worth it
    uint32_t wait = 8;    // after so many, one is tried
  };
  using Rates = std::array<Rate, 9>;
  // Of guesses of the draft model, by how sure it was.
  struct ModelRates {
    static constexpr std::array<double, 5> least_p{0.4, 0.6, 0.8, 0.95, 0.99};
    std::array<double, 6> kept{0.25, 0.5, 0.7, 0.85, 0.95, 0.99};  // share of each class, a moving average
    double all = 0.6;                                              // of all classes together
    uint32_t passed = 0, wait = 8;                                 // as of Rate
    static size_t class_of(float p);
  };
  struct Own {
    uint64_t pulse = 0;  // of the head that the past ends at
    Past past = {};
    Rates rates = {};
    std::optional<size_t> asked = {};  // class of the last propose()
    ModelRates model = {};
    std::vector<DraftModel::Guess> guesses = {};  // the last ones of the draft model, for the pulses from here on
    uint64_t guessed_at = 0;
    bool tried = false;  // they were a try
    uint64_t used = 0;
  };
  static size_t class_of(size_t length);
  Own& at(const Context& context, uint64_t pulse);
  void bound();
  // Drafts in a row that raise the expected tokens per second of the step, each kept with this chance if those before
  // it are, at this cost; and tokens and time of the step then.
  struct Prospect {
    size_t count = 0;
    double tokens, time;
    double speed() const { return tokens / time; }
  };
  Prospect prospect(double kept, double cost, size_t most) const;
  // Whether something that does not seem worth it is tried all the same.
  static bool tries(uint32_t& passed, uint32_t wait);
  double guess_cost() const;
  static void look_back(Own& own, int32_t token);
  struct Part;  // of a session in a round of guesses
  bool consider(Part& part, Room& room);
  void guess(std::span<Part> parts, Room room);

  DraftOptions options_;
  std::unordered_map<const Context*, Own> own_;
  Rates usual_ = {};  // of all sessions: what a new one begins with
  uint64_t clock_ = 0;
  size_t bytes_ = 0;  // of all pasts

  std::unique_ptr<DraftModel> model_;
  // Of the step that is being planned: the tokens that it is expected to give, and its time, in steps without rows.
  double tokens_ = 0, time_ = 1;
  // Sums of a regression of seconds over rows, which fade; and what a row costs as a share of a step without rows.
  double weight_ = 0, r_ = 0, t_ = 0, rr_ = 0, rt_ = 0;
  double share_ = 0.12;
  size_t generating_ = 0;  // rows of this step without drafts
  // Of numbers of generating sessions; those of this step, null beside sessions that read.
  std::array<DraftTrial, 65> trials_ = {};
  DraftTrial* trial_ = nullptr;
  double guessing_ = 0;       // seconds of this step that the draft model took
  double guess_seconds_ = 0;  // that it takes for a guess; 0: not measured yet
};

}  // namespace continuo
