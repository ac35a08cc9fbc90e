#pragma once
// Which process of how many this one is, and where the others are found: read from the environment,
// once, at the start of a verb.

#include <functional>
#include <string>

namespace fovea::dist {

struct World {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among the processes of this machine
  std::string launcher;                // fovea, torchrun, slurm, mpirun; empty: one process
  // Rank 0 listens here and the others connect to it.
  std::string host;
  int port = 0;
  // Where fovea started the processes itself: the socket that rank 0 inherits, listening already;
  // -1: none.
  int listener = -1;
  // Where fovea started the processes: the pipe in which it hears of failures (dist/verdict.h); -1:
  // none.
  int verdict = -1;
  std::string token;  // FOVEA_TOKEN; empty: agreed on through a file of the run folder

  bool is_distributed() const { return size > 1; }
};

// In this order: FOVEA_RANK, FOVEA_WORLD_SIZE, FOVEA_LOCAL_RANK, FOVEA_LOCAL_SIZE,
// FOVEA_RENDEZVOUS=host:port, FOVEA_LISTENER, FOVEA_VERDICT (what dist/launcher.h sets); RANK,
// WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT (torchrun, whose agent may itself listen on that
// port: then the next one); OMPI_COMM_WORLD_RANK, ... (Open MPI); SLURM_PROCID,
// SLURM_STEP_NUM_TASKS, ... (srun: a batch script, or a shell in an allocation, is one process);
// PMI_RANK, PMI_SIZE (MPICH, Intel MPI). FOVEA_RENDEZVOUS goes before what a launcher says of the
// address; mpirun across machines says nothing of it. Nothing set, or a size of 1: one process.
// Throws ConfigError for variables that are missing, malformed or contradict each other, naming
// them; also where some of fovea's or torchrun's are set and no launcher says the rest, except in a
// batch script of Slurm.
World world_from_environment();
// The same from other variables: null for one that is not set.
using WorldVariables = std::function<const char*(const char* name)>;
World world_from_environment(const WorldVariables& variables);

// Whether this process is to speak, and to do what one process can do for all: rank 0, or one that
// is alone, as is one whose variables make no rank.
bool is_first_rank();

// Whether a host is this machine to itself alone, by its name or number: localhost, 127.0.0.1, ::1.
bool is_loopback(const std::string& host);

}  // namespace fovea::dist
