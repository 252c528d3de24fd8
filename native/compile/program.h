// Program: a block compiled for execution. Loops are unrolled, members of families are picked, each write of a name is
// a value of its own, and the order of work is fixed.
//
// A step runs many rows. By definition a graph means: row after row, each through all nodes in the written order. Nodes
// may run over all rows at once where that gives the same result: a node without state; a recurrence whose kernel walks
// the rows in order (cache.shift, cache.memory …); nodes on a growing table, where every row writes its own position
// before any row reads; and nodes on state that changes only at the beginning of a segment of the clock. Where a row
// reads state that the row before it wrote at a later node, the nodes between form a stage that runs row after row. So
// no result depends on how a stream was cut into chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "compile/plan.h"
#include "graph/graph.h"

namespace continuo {

// One input of an instruction: a value of the rows, [rows, bytes of the value], or a constant, the same for all rows.
struct Argument {
  bool constant = false;
  uint32_t id = 0;  // index into Program::values; of a constant: into ConstantIndex::members
};

// The index along one axis of a table, in elements of that axis: `offset`, plus the counter or the value where there is
// one. In a row a counter has its value at the beginning of the step, plus the row's number times what each row adds,
// plus `seen`, what the row itself has added before this instruction.
struct Pick {
  Term::Kind kind = Term::Kind::number;  // number, counter or value
  uint32_t id = 0;                       // counter: its Name; value: index into Program::values, i32 [rows, 1]
  int64_t offset = 0;
  int64_t seen = 0;
};

// A member of a persistent table: the elements that are left once `picks` has an index for each leading axis.
struct Place {
  Name table = no_name;
  std::vector<Pick> picks;     // [leading axes]
  int64_t seen = 0;            // as Pick::seen, of the counter that the table is or that its axis follows
  std::vector<int64_t> along;  // [axes] where the table grows along several counters: the same, of each axis' counter
};

struct Instruction {
  const Node* node = nullptr;
  std::vector<std::pair<Index, uint64_t>> turns;  // per enclosing loop: its index, and the turn
  std::vector<Argument> in;                       // [inputs that are no persistents]
  uint32_t out = no_name;                         // index into Program::values
  std::vector<Place> places;                      // persistent inputs (keys and values of attend), then the state
  std::vector<Instruction> then, otherwise;       // of a branch that each row decides
};

// Neighbouring lines of code whose rows run in the same order.
struct Stage {
  enum class Order : uint8_t {
    row_parallel,  // one instruction over all rows at once
    row_local,     // several instructions without state: a thread takes some rows through all of them
    row_serial,    // one row after the other, each through all of them
  };
  Order order;
  size_t first, last;  // lines of Program::code, both included
};

const char* name_of(Stage::Order order);

// In a step: [rows, bytes].
struct Value {
  Name name;
  size_t bytes;        // of one row: elements of the declaration × bytes of its type
  bool reset = false;  // a row may leave it unwritten, so it is zeroed when a step begins
};

// Numbers the members of all constants, and of all volatile tables, whose numbers in the file are constants too. What
// is no family has one member.
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
  std::vector<uint64_t> base_;   // [declarations]: number of the first member
  std::vector<Member> members_;  // [members of all constants]
};

struct Program {
  std::vector<Value> values;
  std::vector<Lifetime> lifetimes;                        // [values]; bytes rounded up to whole cache lines a row
  std::vector<Instruction> code;                          // [lines]; a branch is one line with its arms inside
  std::vector<Stage> stages;                              // in order; together they cover the lines
  std::vector<uint32_t> inputs;                           // [inputs of the block]: index into values
  std::vector<std::pair<std::string, uint32_t>> results;  // role, index into values
  std::vector<uint32_t> last_value;                       // [declarations]: the value written last, or no_name
  std::vector<std::pair<Name, int64_t>> growth;  // what every row adds to each counter that is not dynamic (arrange.h)
  std::vector<uint64_t> segments;                // lengths, in pulses: a step stays within one segment of each
  size_t widest = 4;                             // bytes of one row of the widest value

  uint32_t result(std::string_view role) const;
  // Refuses errors that only the unrolled graph shows, such as a member outside its family or axis.
  static Result<Program> make(const Graph& graph, const Block& block, const ConstantIndex& constants);
};

// The name of an instruction in errors and traces: "matmul "x.att.k" (l=3)".
std::string instruction_text(const Graph& graph, const Instruction& instruction);

}  // namespace continuo
