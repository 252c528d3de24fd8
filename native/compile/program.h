// A block made ready to run: loops unrolled, members of families picked, values told apart, and the order of work laid
// down.
//
// A step runs many rows. Row by row in the written order is what a graph means. A node that works on each row by itself
// may run over all rows at once; so may a recurrence that walks its rows in order (cache.shift, cache.memory …), a
// table that grows where every row writes its own place before any row reads, and what changes only where a segment of
// the clock begins. Where a row needs what the row before it wrote at a later node, the nodes between form a stage
// that runs row after row. So the chunking of a stream cannot show in a result.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "compile/plan.h"
#include "graph/graph.h"

namespace continuo {

// One thing a node reads: a value of the rows, or a constant.
struct Argument {
  bool constant = false;
  uint32_t id = 0;  // into Program::values, or of a constant: see ConstantIndex
};

// One pick along an axis of a table. Counters: what the counter was when the step began, plus the row's number times
// what a row adds to it, plus `seen`, what the row itself had added before this node.
struct Pick {
  Term::Kind kind = Term::Kind::number;  // number, counter or value
  uint32_t id = 0;                       // counter: its Name; value: into Program::values
  int64_t offset = 0;
  int64_t seen = 0;
};

struct Place {
  Name table = no_name;
  std::vector<Pick> picks;
  int64_t seen = 0;  // of the counter that the table's axis follows, or that the table is
};

struct Instruction {
  const Node* node = nullptr;
  std::vector<std::pair<Index, uint64_t>> turns;  // where in which loops it stands
  std::vector<Argument> in;
  uint32_t out = no_name;                    // into Program::values
  std::vector<Place> places;                 // the state, or the keys and values of attend
  std::vector<Instruction> then, otherwise;  // a branch at run time
};

// Neighbouring lines of code whose rows go in one order.
struct Stage {
  enum class Order : uint8_t {
    row_parallel,  // one instruction over all rows
    row_local,     // several that work on each row by itself: a thread takes some rows through all of them
    row_serial,    // row after row through all of them
  };
  Order order;
  size_t first, last;  // of Program::code, last included
};

const char* name_of(Stage::Order order);

struct Value {
  Name name;
  size_t bytes;        // of one row
  bool reset = false;  // may stay unwritten in a step: zeroed when it begins
};

// The members of constant families, numbered.
class ConstantIndex {
 public:
  explicit ConstantIndex(const Graph& graph);
  uint32_t of(Name declaration, uint64_t member) const { return static_cast<uint32_t>(base_[declaration] + member); }
  struct Member {
    Name declaration;
    uint64_t member;
  };
  const std::vector<Member>& members() const { return members_; }

 private:
  std::vector<uint64_t> base_;
  std::vector<Member> members_;
};

struct Program {
  std::vector<Value> values;
  std::vector<Lifetime> lifetimes;  // per value, rounded up to whole cache lines a row
  std::vector<Instruction> code;
  std::vector<Stage> stages;
  std::vector<uint32_t> inputs;                           // per input of the block: its value
  std::vector<std::pair<std::string, uint32_t>> results;  // role, value
  std::vector<uint32_t> last_value;                       // per declaration: the value that held it last, or no_name
  std::vector<std::pair<Name, int64_t>> growth;  // what each row adds to counters that only ever grow unconditionally
  std::vector<uint64_t> segments;                // of the clock: the rows of a step lie in one of each
  size_t widest = 4;                             // bytes of a row of the widest value

  uint32_t result(std::string_view role) const;
  // Refuses what only the unrolled graph shows: a member outside its family or axis.
  static Result<Program> make(const Graph& graph, const Block& block, const ConstantIndex& constants);
};

// "matmul "x.att.k" (l=3)": what errors and traces call an instruction.
std::string instruction_text(const Graph& graph, const Instruction& instruction);

}  // namespace continuo
