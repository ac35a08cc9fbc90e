// Which rank a process is, by what launchers leave in its environment.

#include "dist/world.h"

#include <map>
#include <string>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/text.h"
#include "data/temp_folder.h"
#include "dist/hostlist.h"

using namespace fovea;
using namespace fovea::test;

namespace {

using Variables = std::map<std::string, std::string>;

dist::World world_of(const Variables& variables) {
  return dist::world_from_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string error_of(const Variables& variables) {
  try {
    world_of(variables);
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

// a, with b's in place of its own; an empty value takes one away.
Variables with(Variables a, const Variables& b) {
  for (const auto& [name, value] : b)
    a[name] = value;
  return a;
}

const Variables kFovea = {
    {"FOVEA_RANK", "2"},       {"FOVEA_WORLD_SIZE", "4"},          {"FOVEA_LOCAL_RANK", "0"},
    {"FOVEA_LOCAL_SIZE", "2"}, {"FOVEA_RENDEZVOUS", "gpu01:4711"}, {"FOVEA_TOKEN", "secret"}};
// As torchrun 2.5 sets them.
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "gpu01"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
// srun -N 2 -n 5 in a job.
const Variables kSlurm = {{"SLURM_JOB_ID", "4242"},
                          {"SLURM_STEP_ID", "1"},
                          {"SLURM_PROCID", "3"},
                          {"SLURM_LOCALID", "0"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_NTASKS", "5"},
                          {"SLURM_STEP_NUM_TASKS", "5"},
                          {"SLURM_STEP_TASKS_PER_NODE", "3,2"},
                          {"SLURM_JOB_NODELIST", "gpu[01-08]"},
                          {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"PMIX_NAMESPACE", "2853961729"}};
const Variables kMpich = {{"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"},
                          {"PMI_FD", "9"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"}};

}  // namespace

TEST_CASE("nothing in the environment is one process") {
  const dist::World world = world_of({});
  CHECK(world.rank == 0);
  CHECK(world.size == 1);
  CHECK(world.launcher.empty());
  CHECK_FALSE(world.is_distributed());
}

TEST_CASE("fovea's own variables say all of it") {
  const dist::World world = world_of(with(kFovea, {{"FOVEA_LISTENER", "7"}}));
  CHECK(world.launcher == "fovea");
  CHECK(world.rank == 2);
  CHECK(world.size == 4);
  CHECK(world.local_rank == 0);
  CHECK(world.local_size == 2);
  CHECK(world.host == "gpu01");
  CHECK(world.port == 4711);
  CHECK(world.listener == 7);
  CHECK(world.token == "secret");
}

TEST_CASE("an address may be IPv6") {
  const dist::World world = world_of(with(kFovea, {{"FOVEA_RENDEZVOUS", "[fe80::1]:80"}}));
  CHECK(world.host == "fe80::1");
  CHECK(world.port == 80);
}

TEST_CASE("what is wrong with fovea's variables is said with their names") {
  CHECK(error_of(with(kFovea, {{"FOVEA_RANK", ""}})) ==
        "FOVEA_WORLD_SIZE is set, but FOVEA_RANK is not");
  CHECK(error_of(with(kFovea, {{"FOVEA_WORLD_SIZE", ""}})) ==
        "FOVEA_RANK is set, but FOVEA_WORLD_SIZE is not");
  CHECK(error_of(with(kFovea, {{"FOVEA_RANK", "4"}})) ==
        "FOVEA_RANK is '4', but must be a number from 0 to 3");
  CHECK(error_of(with(kFovea, {{"FOVEA_RANK", "1x"}})) ==
        "FOVEA_RANK is '1x', but must be a number from 0 to 3");
  CHECK(error_of(with(kFovea, {{"FOVEA_LOCAL_RANK", "2"}})) ==
        "FOVEA_LOCAL_RANK is '2', but must be a number from 0 to 1");
  CHECK(error_of(with(kFovea, {{"FOVEA_RENDEZVOUS", ""}})) ==
        "FOVEA_RANK is set, but FOVEA_RENDEZVOUS is not");
  CHECK(error_of(with(kFovea, {{"FOVEA_RENDEZVOUS", "gpu01"}})) ==
        "FOVEA_RENDEZVOUS is 'gpu01', but must be host:port");
  CHECK(error_of(with(kFovea, {{"FOVEA_RENDEZVOUS", "gpu01:99999"}})) ==
        "the port of FOVEA_RENDEZVOUS is '99999', but must be a number from 1 to 65535");
}

TEST_CASE("ranks that are not told their place on a machine know it where that is the only one") {
  const Variables bare = {{"FOVEA_RANK", "2"}, {"FOVEA_WORLD_SIZE", "4"}};
  const dist::World here = world_of(with(bare, {{"FOVEA_RENDEZVOUS", "localhost:4711"}}));
  CHECK(here.local_rank == 2);
  CHECK(here.local_size == 4);
  const dist::World there = world_of(with(bare, {{"FOVEA_RENDEZVOUS", "gpu01:4711"}}));
  CHECK(there.local_rank == 0);
  CHECK(there.local_size == 1);
}

TEST_CASE("under torchrun the port beside the agent's is ours") {
  const dist::World world = world_of(kTorchrun);
  CHECK(world.launcher == "torchrun");
  CHECK(world.rank == 3);
  CHECK(world.size == 4);
  CHECK(world.local_rank == 1);
  CHECK(world.local_size == 2);
  CHECK(world.host == "gpu01");
  CHECK(world.port == 29501);
  CHECK(world.token.empty());
  CHECK(world_of(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).port == 29500);
}

TEST_CASE("half of torchrun's or fovea's variables are refused, with what is missing") {
  CHECK(error_of(with(kTorchrun, {{"MASTER_PORT", ""}})) == "RANK is set, but MASTER_PORT is not");
  CHECK(error_of(with(kTorchrun, {{"MASTER_ADDR", ""}})) == "RANK is set, but MASTER_ADDR is not");
  const std::string end = ": set them all for every rank, or none for a run of one process";
  CHECK(error_of({{"RANK", "3"}}) ==
        "RANK is set, as for one rank of several, but WORLD_SIZE, MASTER_ADDR, MASTER_PORT are "
        "not" +
            end);
  CHECK(
      error_of({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "gpu01"}, {"MASTER_PORT", "1"}}) ==
      "WORLD_SIZE, MASTER_ADDR, MASTER_PORT are set, as for one rank of several, but RANK is not" +
          end);
  for (const char* const alone : {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
    CAPTURE(alone);
    CHECK(
        contains(error_of({{alone, "1"}}), cat(alone, " is set, as for one rank of several, but")));
  }
  CHECK(error_of({{"FOVEA_RENDEZVOUS", "gpu01:1"}, {"RANK", "1"}}) ==
        "RANK is set, as for one rank of several, but WORLD_SIZE is not" + end);
  CHECK(error_of({{"FOVEA_RENDEZVOUS", "gpu01:1"}}) ==
        "FOVEA_RENDEZVOUS is set, as for one rank of several, but FOVEA_RANK, FOVEA_WORLD_SIZE are "
        "not" +
            end);
  CHECK_FALSE(world_of({{"WORLD_SIZE", "1"}}).is_distributed());
  CHECK_FALSE(world_of({{"FOVEA_TOKEN", "secret"}}).is_distributed());
}

TEST_CASE("an address prepared for another launcher does not disturb one that says all") {
  const Variables prepared = {{"MASTER_ADDR", "gpu01"}, {"MASTER_PORT", "1"}, {"WORLD_SIZE", "9"}};
  CHECK(world_of(with(kSlurm, prepared)).launcher == "slurm");
  CHECK(world_of(with(kOpenMpi, prepared)).launcher == "mpirun");
  CHECK(world_of(with(kMpich, prepared)).launcher == "mpirun");
  CHECK_FALSE(world_of(with(prepared, {{"SLURM_JOB_ID", "1"}})).is_distributed());
}

TEST_CASE("a task of srun is a rank, and the first host of its step is rank 0's") {
  const dist::World world = world_of(kSlurm);
  CHECK(world.launcher == "slurm");
  CHECK(world.rank == 3);
  CHECK(world.size == 5);
  CHECK(world.local_rank == 0);
  CHECK(world.local_size == 2);
  CHECK(world.host == "gpu07");
  CHECK(world.port >= 20000);
  CHECK(world.port < 30000);
  // Every rank finds the same port, other jobs and steps other ones.
  CHECK(world_of(with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_NODEID", "0"}})).port == world.port);
  CHECK(world_of(with(kSlurm, {{"SLURM_STEP_ID", "2"}})).port != world.port);
  CHECK(world_of(with(kSlurm, {{"SLURM_JOB_ID", "4243"}})).port != world.port);
  CHECK(world_of(with(kSlurm, {{"SLURM_STEP_NODELIST", ""}})).host == "gpu01");
}

TEST_CASE("a batch script and a shell in an allocation are one process") {
  Variables batch = with(kSlurm, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", ""}});
  batch.erase("SLURM_STEP_NUM_TASKS");
  CHECK_FALSE(world_of(batch).is_distributed());
  // salloc's shell as an interactive step of its own.
  CHECK_FALSE(world_of(with(kSlurm, {{"SLURM_PROCID", "0"},
                                     {"SLURM_STEP_ID", "4294967290"},
                                     {"SLURM_STEP_NUM_TASKS", "1"},
                                     {"SLURM_STEP_TASKS_PER_NODE", "1"}}))
                  .is_distributed());
  CHECK_FALSE(world_of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}).is_distributed());
}

TEST_CASE("FOVEA_RENDEZVOUS and FOVEA_TOKEN go before what a launcher says") {
  const Variables own = {{"FOVEA_RENDEZVOUS", "10.0.0.1:99"}, {"FOVEA_TOKEN", "secret"}};
  for (const Variables& variables : {kTorchrun, kSlurm, kOpenMpi, kMpich}) {
    const dist::World world = world_of(with(variables, own));
    CHECK(world.is_distributed());
    CHECK(world.host == "10.0.0.1");
    CHECK(world.port == 99);
    CHECK(world.token == "secret");
  }
}

TEST_CASE("mpirun on one machine needs nothing more") {
  const dist::World open = world_of(kOpenMpi);
  CHECK(open.launcher == "mpirun");
  CHECK(open.rank == 1);
  CHECK(open.size == 2);
  CHECK(open.local_rank == 1);
  CHECK(open.host == "127.0.0.1");
  CHECK(world_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "0"}})).port == open.port);
  CHECK(world_of(with(kOpenMpi, {{"PMIX_NAMESPACE", "1"}})).port != open.port);

  const dist::World mpich = world_of(kMpich);
  CHECK(mpich.launcher == "mpirun");
  CHECK(mpich.rank == 1);
  CHECK(mpich.local_size == 2);
  // PMI_FD differs from rank to rank.
  CHECK(world_of(with(kMpich, {{"PMI_RANK", "0"}, {"PMI_FD", "6"}})).port == mpich.port);
}

TEST_CASE("mpirun across machines needs an address") {
  const std::string error = error_of(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}}));
  CHECK(contains(error, "mpirun started 2 of 4 ranks on this machine"));
  CHECK(contains(error, "FOVEA_RENDEZVOUS=host:port"));
  CHECK(contains(error_of(with(kMpich, {{"MPI_LOCALNRANKS", ""}})), "2 ranks somewhere"));
}

TEST_CASE("srun's own variables are believed where PMI says the same") {
  const Variables pmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}};
  CHECK(world_of(with(kSlurm, pmi)).launcher == "slurm");
  // mpirun started a helper a machine with srun, and each of them its ranks.
  const Variables hydra = {{"PMI_RANK", "7"},
                           {"PMI_SIZE", "8"},
                           {"MPI_LOCALRANKID", "3"},
                           {"MPI_LOCALNRANKS", "4"},
                           {"FOVEA_RENDEZVOUS", "gpu07:99"}};
  const dist::World world = world_of(with(kSlurm, hydra));
  CHECK(world.launcher == "mpirun");
  CHECK(world.rank == 7);
  CHECK(world.size == 8);
}

TEST_CASE("a run of one rank is one process under every launcher") {
  CHECK_FALSE(world_of(with(kFovea, {{"FOVEA_RANK", "0"},
                                     {"FOVEA_WORLD_SIZE", "1"},
                                     {"FOVEA_LOCAL_SIZE", "1"},
                                     {"FOVEA_RENDEZVOUS", ""}}))
                  .is_distributed());
  CHECK_FALSE(world_of({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"PMI_FD", "6"}}).is_distributed());
}

TEST_CASE("Slurm's lists of hosts are expanded") {
  using Names = std::vector<std::string>;
  CHECK(dist::expand_hostlist("gpu01") == Names{"gpu01"});
  CHECK(dist::expand_hostlist("gpu[01-03,7],cpu") ==
        Names{"gpu01", "gpu02", "gpu03", "gpu7", "cpu"});
  CHECK(dist::expand_hostlist("a[09-10]-ib,b") == Names{"a09-ib", "a10-ib", "b"});
  CHECK(dist::expand_hostlist("r[1-2]n[1-2]") == Names{"r1n1", "r1n2", "r2n1", "r2n2"});
  for (const char* const bad : {"", "a[", "a]", "a[1", "a[]", "a[2-1]", "a[x]", "a,,b",
                                "a[1-2147483647]", "a[0-999]b[0-999]", "a[-1]"}) {
    CAPTURE(bad);
    CHECK(contains(message_of([&] { dist::expand_hostlist(bad); }), "cannot be read"));
  }
}

TEST_CASE("Slurm's counts of tasks are expanded") {
  using Counts = std::vector<int>;
  CHECK(dist::expand_counts("4(x2),3") == Counts{4, 4, 3});
  CHECK(dist::expand_counts("2") == Counts{2});
  for (const char* const bad : {"", "x", "4(x", "4(x)", "4(xy)", "4(x99999999)"})
    CHECK(dist::expand_counts(bad).empty());
}
