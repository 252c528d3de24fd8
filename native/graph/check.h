// What must hold of a graph beyond its form: every use after a definition, every write where writing is allowed, every
// shape.
#pragma once

#include "graph/graph.h"

namespace continuo {

// Also finds each block's results and, where the blocks "step" and "predict" are there, the graph's language model.
Status check_graph(Graph& graph);

}  // namespace continuo
