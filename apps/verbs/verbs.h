#pragma once
// The entries of the verb table, one file each.

#include "verb.h"

namespace fovea::apps {

ExitCode train(const Arguments& arguments, Output& out);
ExitCode eval(const Arguments& arguments, Output& out);
ExitCode sweep(const Arguments& arguments, Output& out);
ExitCode report(const Arguments& arguments, Output& out);
ExitCode generate(const Arguments& arguments, Output& out);
ExitCode tokenize(const Arguments& arguments, Output& out);
ExitCode check(const Arguments& arguments, Output& out);
ExitCode list(const Arguments& arguments, Output& out);
ExitCode inspect(const Arguments& arguments, Output& out);
ExitCode data(const Arguments& arguments, Output& out);
ExitCode bench(const Arguments& arguments, Output& out);
ExitCode probe(const Arguments& arguments, Output& out);
ExitCode doctor(const Arguments& arguments, Output& out);

// Verbs of `data`, whose others stand in its own file.
ExitCode data_make(const Arguments& arguments, Output& out);
ExitCode data_prepare(const Arguments& arguments, Output& out);
ExitCode data_inspect(const Arguments& arguments, Output& out);

// Verbs of `bench`, whose others stand in its own file.
ExitCode bench_attention(const Arguments& arguments, Output& out);
ExitCode bench_sparse(const Arguments& arguments, Output& out);
ExitCode bench_comm(const Arguments& arguments, Output& out);

// The verbs of `check`.
ExitCode check_ops(const Arguments& arguments, Output& out);
ExitCode check_attention(const Arguments& arguments, Output& out);

}  // namespace fovea::apps
