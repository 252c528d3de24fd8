// Steps in which no row waits for the disk while another could go on.
//
//   step ──▶ layer 0 ──▶ experts ──▶ layer 1 ──▶ experts ──▶ … ──▶ done
//                          │ ▲                     │ ▲
//   not in memory: leave   │ │ join: they have come│ │
//                          ▼ │                     ▼ │
//                         parked                  parked
//
// A run whose experts are not in memory leaves the step there: the values of its rows that later lines read are copied
// out of the block's memory. It joins the first step that passes this line once its experts have come; its rows then
// stand behind those of the step. Since no row knows of another, it does not matter which rows pass a line together.
// The rows of a run stay together: in the next layer each row reads the state of the context that the row before it has
// written.
#include <algorithm>
#include <atomic>
#include <chrono>

#include "runtime/executor/wanted_experts.h"

namespace continuo {

namespace {

// Weight of the last layer in Context::misses.
constexpr float newest_layer = 1.0f / 16;

size_t rows_in(std::span<const Run> runs) { return runs.empty() ? 0 : runs.back().row + runs.back().rows; }

bool is_stop(const Program& program, const Stage& stage) {
  return stage.order != Stage::Order::row_serial && program.code[stage.first].node->op == Op::experts;
}

}  // namespace

// The work at one line of `experts`.
class Executor::Stop {
 public:
  Stop(Executor& executor, Space& space, size_t line, std::vector<Run>& aboard)
      : executor_(executor),
        space_(space),
        line_(line),
        aboard_(aboard),
        wanted_(executor, space, space.program->code[line],
                [this](uint32_t expert, std::span<const size_t> places) { multiplied(expert, places); }) {}

  // The products of the runs with their experts, as far as these are in memory. Runs that lack one leave.
  void work(const Idle& idle) {
    take_routes();
    const size_t fresh = aboard_.size();
    join(true);
    const size_t came = aboard_.size();
    if (came == 0) return;
    demand();
    for (size_t i = 0; i < fresh; ++i) {
      float& misses = aboard_[i].context->misses;
      misses += newest_layer * ((lacks_[i] > 0 ? 1.0f : 0.0f) - misses);
    }
    if (!wanted_.empty() && !should_part()) {
      // Those that wait here wait together.
      join(false);
      demand();
      wait(idle);
    }
    // What had come for a run may have gone again before it joined. So that each joining brings it forward:
    for (size_t i = fresh; i < came; ++i) {
      if (lacks_[i] > 0 && lacks_[i] == begun_[i]) (void)wanted_.take(keys_of(owed_to(i)), true);
    }
    part();
  }

 private:
  using Places = WantedExperts::Places;

  static std::vector<uint32_t> keys_of(const Places& places) {
    std::vector<uint32_t> out;
    for (const auto& [expert, of] : places) out.push_back(expert);
    return out;
  }

  void take_routes() {
    wanted_.add_rows(0, rows_in(aboard_));
    for (size_t i = 0; i < aboard_.size(); ++i) run_of_.resize(aboard_[i].row + aboard_[i].rows, i);
    lacks_.assign(aboard_.size(), 0);
    for (const auto& [expert, places] : wanted_.places()) {
      for (const size_t place : places) ++lacks_[run_of_[place / wanted_.chosen]];
    }
    begun_ = lacks_;
  }

  // Brings in the runs that wait at this line, as far as there is room; `ready`: only those whose experts have come.
  void join(bool ready) {
    std::erase_if(executor_.parked_, [&](ParkedRun& parked) {
      const size_t row = rows_in(aboard_), rows = parked.run.rows;
      if (parked.space != &space_ || parked.line != line_ || (ready && !parked.ticket->ready()) ||
          row + rows > space_.rows)
        return false;
      executor_.settle();
      const std::byte* from = parked.values.data();
      each_alive([&](std::byte* values, size_t bytes) {
        executor_.model_->device->copy(values + row * bytes, from, rows * bytes);
        from += rows * bytes;
      });
      size_t lacks = 0;
      for (auto& [expert, places] : parked.pending) {
        for (auto& place : places) place += row * wanted_.chosen;
        lacks += places.size();
        wanted_.add(expert, std::move(places));
      }
      run_of_.resize(row + rows, aboard_.size());
      lacks_.push_back(lacks);
      begun_.push_back(lacks);
      auto& faults = executor_.faults_;
      faults.insert(faults.end(), parked.faults.begin(), parked.faults.end());
      aboard_.push_back({parked.run.context, row, rows, parked.run.number});
      return true;
    });
  }

  // Asks for all that is wanted, and multiplies what is there.
  void demand() {
    wanted_.demand();
    while (wanted_.take(false)) {}
  }

  void multiplied(uint32_t expert, std::span<const size_t> places) {
    // Before the loan ends, so that its memory may then serve the next one.
    if (awaited_) awaited_->taken(expert);
    for (const size_t place : places) --lacks_[run_of_[place / wanted_.chosen]];
  }

  // Those who mostly have their experts do not wait for the others, nor most of them for a few. Runs that mostly lack
  // one stay together: alone they would come no further than the next layer.
  bool should_part() const {
    size_t swift = 0, ready = 0;
    for (size_t i = 0; i < aboard_.size(); ++i) {
      if (!aboard_[i].context->swift()) continue;
      ++swift;
      ready += lacks_[i] == 0;
    }
    return ready > 0 && 2 * ready >= swift;
  }

  // Multiplies what comes, until all is there, or those who could go on should not wait for the rest.
  void wait(const Idle& idle) {
    awaited_.emplace(wanted_.store.await(wanted_.layer, wanted_.experts(), idle.wake));
    while (!wanted_.empty() && !should_part()) {
      if (wanted_.take(false)) continue;
      const auto began = std::chrono::steady_clock::now();
      const bool go_on = idle.wait();
      awaited_->count(std::chrono::steady_clock::now() - began);
      if (!go_on) break;
    }
    awaited_.reset();
  }

  Places owed_to(size_t run) const {
    Places out;
    const size_t chosen = wanted_.chosen;
    const size_t first = aboard_[run].row * chosen, last = first + aboard_[run].rows * chosen;
    for (const auto& [expert, places] : wanted_.places()) {
      for (const size_t place : places) {
        if (place >= first && place < last) out[expert].push_back(place - first);
      }
    }
    return out;
  }

  // Runs that lack an expert leave together, and come back together.
  void part() {
    if (wanted_.empty()) return;
    std::vector<Run> staying;
    std::vector<ParkedRun> leaving;
    executor_.settle();
    for (size_t i = 0; i < aboard_.size(); ++i) {
      if (lacks_[i] == 0)
        staying.push_back(aboard_[i]);
      else
        leaving.push_back(leave(aboard_[i], owed_to(i)));
    }
    // All that parked runs wait for must fit into memory together, or none would ever have it all; one always fits.
    size_t room = wanted_.store.fits(wanted_.layer) / 2;
    for (const auto& parked : executor_.parked_) room -= std::min(room, parked.arrivals);
    const size_t arrivals = std::clamp<size_t>(room, 1, wanted_.experts().size());
    const auto ticket = ticket_after(arrivals);
    for (auto& parked : leaving) {
      parked.ticket = ticket;
      parked.arrivals = &parked == &leaving[0] ? arrivals - 1 : 0;
      executor_.parked_.push_back(std::move(parked));
    }
    close_up(staying);
    aboard_ = std::move(staying);
  }

  // Opens when so many of the wanted experts have come, or will not come.
  std::shared_ptr<Ticket> ticket_after(size_t arrivals) {
    auto ticket = std::make_shared<Ticket>();
    auto left = std::make_shared<std::atomic<size_t>>(arrivals);
    for (const uint32_t expert : wanted_.experts())
      wanted_.store.on_arrival(wanted_.layer, expert, [ticket, left] {
        if (left->fetch_sub(1) == 1) ticket->open();
      });
    return ticket;
  }

  ParkedRun leave(const Run& run, Places pending) {
    ParkedRun parked{&space_, line_, run, std::move(pending), {}, {}, 0, {}};
    size_t size = 0;
    each_alive([&](std::byte*, size_t bytes) { size += run.rows * bytes; });
    parked.values = DeviceMemory::unwritten(executor_.model_->device, size);
    std::byte* to = parked.values.data();
    each_alive([&](std::byte* values, size_t bytes) {
      executor_.model_->device->copy(to, values + run.row * bytes, run.rows * bytes);
      to += run.rows * bytes;
    });
    const auto of_run = [&](const Fault& fault) { return fault.context == run.context; };
    std::copy_if(executor_.faults_.begin(), executor_.faults_.end(), std::back_inserter(parked.faults), of_run);
    std::erase_if(executor_.faults_, of_run);
    return parked;
  }

  // Moves the rows of these runs together, and numbers them anew.
  void close_up(std::vector<Run>& runs) {
    size_t next = 0;
    for (auto& run : runs) {
      const size_t apart = run.row - next;
      each_alive([&](std::byte* values, size_t bytes) {
        // In pieces that do not overlap their places.
        for (size_t done = 0; apart > 0 && done < run.rows; done += apart)
          executor_.model_->device->copy(values + (next + done) * bytes, values + (run.row + done) * bytes,
                                         std::min(apart, run.rows - done) * bytes);
      });
      run.row = next;
      next += run.rows;
    }
  }

  // Visits the values that this line, or one behind it, reads: where they lie, and the bytes of a row.
  void each_alive(const auto& visit) {
    for (uint32_t id = 0; id < space_.lifetimes.size(); ++id) {
      if (space_.lifetimes[id].first <= line_ && space_.lifetimes[id].last >= line_)
        visit(executor_.value(space_, id), space_.program->values[id].bytes);
    }
  }

  Executor& executor_;
  Space& space_;
  const size_t line_;
  std::vector<Run>& aboard_;
  WantedExperts wanted_;
  std::optional<experts::Await> awaited_;
  std::vector<size_t> run_of_;  // [rows]
  // Of each run the places whose expert was not multiplied yet: now, and when it came aboard.
  std::vector<size_t> lacks_, begun_;
};

bool Executor::parks(const Program& program) const {
  const auto& stages = program.stages;
  // Rows that go one after the other, and values that a row may leave unwritten, are walked or zeroed for the rows of
  // one step. What is traced or watched is one step too.
  return model_->experts && !options_.trace && !options_.watch &&
         std::any_of(stages.begin(), stages.end(), [&](const Stage& stage) { return is_stop(program, stage); }) &&
         std::none_of(stages.begin(), stages.end(),
                      [](const Stage& stage) { return stage.order == Stage::Order::row_serial; }) &&
         std::none_of(program.values.begin(), program.values.end(), [](const Value& value) { return value.reset; });
}

std::vector<Run> Executor::pass(size_t block, std::span<const Run> runs, const Idle& idle) {
  auto& space = spaces_[block];
  begin(space, runs);
  std::vector<Run> aboard(runs.begin(), runs.end());
  for (const auto& stage : space.program->stages) {
    if (is_stop(*space.program, stage))
      Stop(*this, space, stage.first, aboard).work(idle);
    else if (!aboard.empty())
      rows_together(space, stage, rows_in(aboard), aboard);
  }
  end(space, aboard);
  return aboard;
}

bool Executor::can_join(bool swift) const {
  return std::any_of(parked_.begin(), parked_.end(), [&](const ParkedRun& parked) {
    return parked.ticket->ready() && (!swift || parked.run.context->swift());
  });
}

void Executor::abandon() {
  parked_.clear();
  if (model_->experts) model_->experts->unwant_all();
}

}  // namespace continuo
