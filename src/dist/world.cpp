#include "dist/world.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "dist/hostlist.h"

namespace fovea::dist {

namespace {

// Ports derived from the name of a job, where a launcher names none: above the registered ones,
// below those that systems give away.
constexpr std::uint64_t kFirstPort = 20000, kPorts = 10000;
constexpr int kMostRanks = 65536, kMostPort = 65535;
constexpr int kUnknown = -1;

int parsed(const std::string& value, std::string_view name, int least, int most) {
  int out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || out < least || out > most) {
    throw ConfigError(
        cat(name, " is '", value, "', but must be a number from ", least, " to ", most));
  }
  return out;
}

class Environment {
 public:
  explicit Environment(const WorldVariables& variables) : variables_(variables) {}

  bool has(const char* name) const { return text(name).has_value(); }
  std::optional<std::string> text(const char* name) const {
    const char* const value = variables_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  }
  std::string required(const char* name, std::string_view beside) const {
    const auto value = text(name);
    if (!value) throw ConfigError(cat(beside, " is set, but ", name, " is not"));
    return *value;
  }
  int number(const char* name, std::string_view beside, int least, int most) const {
    return parsed(required(name, beside), name, least, most);
  }
  int number_or(const char* name, int otherwise, int least, int most) const {
    const auto value = text(name);
    return value ? parsed(*value, name, least, most) : otherwise;
  }
  // The first of them that is set, or nothing.
  std::string any_of(std::initializer_list<const char*> names) const {
    for (const char* const name : names) {
      if (has(name)) return *text(name);
    }
    return {};
  }

 private:
  const WorldVariables& variables_;
};

void set_address(World& world, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw ConfigError(cat("FOVEA_RENDEZVOUS is '", text, "', but must be host:port"));
  world.host = text.substr(0, colon);
  if (world.host.size() > 2 && world.host.front() == '[' && world.host.back() == ']')
    world.host = world.host.substr(1, world.host.size() - 2);
  world.port = parsed(text.substr(colon + 1), "the port of FOVEA_RENDEZVOUS", 1, kMostPort);
}

void set_ranks(World& world, const Environment& env, const char* rank, const char* size,
               const char* local_rank, const char* local_size) {
  world.size = env.number(size, rank, 1, kMostRanks);
  world.rank = env.number(rank, size, 0, world.size - 1);
  world.local_size = env.number_or(local_size, kUnknown, 1, world.size);
  const int most = world.local_size == kUnknown ? world.size : world.local_size;
  world.local_rank = env.number_or(local_rank, kUnknown, 0, most - 1);
}

// Where a launcher does not say how many processes this machine has.
void complete(World& world) {
  if (world.local_size == kUnknown)
    world.local_size = is_loopback(world.host) ? world.size : std::max(world.local_rank, 0) + 1;
  if (world.local_rank == kUnknown)
    world.local_rank = world.local_size == world.size ? world.rank : 0;
}

// The same on every machine, whatever its libraries: FNV-1a.
int port_of(const std::string& job) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : job)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<int>(kFirstPort + hash % kPorts);
}

void from_fovea(World& world, const Environment& env) {
  world.launcher = "fovea";
  set_ranks(world, env, "FOVEA_RANK", "FOVEA_WORLD_SIZE", "FOVEA_LOCAL_RANK", "FOVEA_LOCAL_SIZE");
  world.listener = env.number_or("FOVEA_LISTENER", -1, 0, kMostRanks);
  world.verdict = env.number_or("FOVEA_VERDICT", -1, 0, kMostRanks);
  if (world.is_distributed()) env.required("FOVEA_RENDEZVOUS", "FOVEA_RANK");
}

// Where the agent of torchrun keeps its store for the processes, it itself listens on MASTER_PORT.
void from_torchrun(World& world, const Environment& env) {
  world.launcher = "torchrun";
  set_ranks(world, env, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  if (!world.is_distributed() || env.has("FOVEA_RENDEZVOUS")) return;
  world.host = env.required("MASTER_ADDR", "RANK");
  world.port = env.number("MASTER_PORT", "RANK", 1, kMostPort - 1);
  if (env.text("TORCHELASTIC_USE_AGENT_STORE") == "True") ++world.port;
}

void from_slurm(World& world, const Environment& env) {
  world.launcher = "slurm";
  set_ranks(world, env, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "");
  const std::vector<int> tasks = expand_counts(env.text("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  const auto node = static_cast<std::size_t>(env.number_or("SLURM_NODEID", 0, 0, kMostRanks));
  if (node < tasks.size())
    world.local_size = std::clamp(tasks[node], world.local_rank + 1, world.size);
  if (!world.is_distributed() || env.has("FOVEA_RENDEZVOUS")) return;
  const char* const list =
      env.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  world.host = expand_hostlist(env.required(list, "SLURM_PROCID")).front();
  world.port =
      port_of(cat(env.required("SLURM_JOB_ID", "SLURM_PROCID"), ".", *env.text("SLURM_STEP_ID")));
}

void from_mpi(World& world, const Environment& env, bool open_mpi) {
  world.launcher = "mpirun";
  if (open_mpi) {
    set_ranks(world, env, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
              "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  } else {
    set_ranks(world, env, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  }
  if (!world.is_distributed() || env.has("FOVEA_RENDEZVOUS")) return;
  if (world.local_size != world.size) {
    throw ConfigError(
        cat("mpirun started ",
            world.local_size == kUnknown ? std::string() : cat(world.local_size, " of "),
            world.size, " ranks ", world.local_size == kUnknown ? "somewhere" : "on this machine",
            ", but does not say where rank 0 is: set FOVEA_RENDEZVOUS=host:port to a free port of "
            "the machine of rank 0, for all of them (Open MPI: -x FOVEA_RENDEZVOUS=..., MPICH: "
            "-genv FOVEA_RENDEZVOUS ...)"));
  }
  world.host = "127.0.0.1";
  // MPICH names no job. Two of its runs at a time need FOVEA_RENDEZVOUS, as the error of the second
  // says.
  world.port = port_of(env.any_of({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID"}));
}

// Only srun numbers tasks for a program. Where they are mpirun's own processes, on whose machines
// it started the program's, PMI says otherwise.
bool is_srun(const Environment& env) {
  if (!env.has("SLURM_PROCID") || !env.has("SLURM_STEP_ID") || !env.has("SLURM_STEP_NUM_TASKS"))
    return false;
  const auto agree = [&](const char* pmi, const char* slurm) {
    return !env.has(pmi) || env.text(pmi) == env.text(slurm);
  };
  return agree("PMI_RANK", "SLURM_PROCID") && agree("PMI_SIZE", "SLURM_STEP_NUM_TASKS");
}

bool is_torchrun(const Environment& env) {
  return env.has("RANK") && env.has("WORLD_SIZE");
}

// The first `needed` of the names make a rank. Throws if only some are set.
void require_none_or_all(const Environment& env, const std::vector<const char*>& names,
                         std::size_t needed) {
  std::vector<std::string> set, missing;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (env.has(names[i]))
      set.emplace_back(names[i]);
    else if (i < needed)
      missing.emplace_back(names[i]);
  }
  if (set.empty()) return;
  throw ConfigError(cat(join(set, ", "), set.size() == 1 ? " is" : " are",
                        " set, as for one rank of several, but ", join(missing, ", "),
                        missing.size() == 1 ? " is" : " are",
                        " not: set them all for every rank, or none for a run of one process"));
}

// Where no launcher says the rest, each of several ranks would train the whole model as a run of
// one process. A batch script of Slurm may prepare an address for what it starts.
void refuse_half_a_rank(const Environment& env) {
  if (env.has("SLURM_JOB_ID") || env.text("WORLD_SIZE") == "1") return;
  require_none_or_all(
      env, {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
      env.has("FOVEA_RENDEZVOUS") ? 2 : 4);
  require_none_or_all(env,
                      {"FOVEA_RANK", "FOVEA_WORLD_SIZE", "FOVEA_RENDEZVOUS", "FOVEA_LOCAL_RANK",
                       "FOVEA_LOCAL_SIZE"},
                      3);
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool is_first_rank() {
  try {
    return world_from_environment().rank == 0;
  } catch (const ConfigError&) {
    return true;
  }
}

World world_from_environment() {
  return world_from_environment([](const char* name) { return std::getenv(name); });
}

World world_from_environment(const WorldVariables& variables) {
  const Environment env(variables);
  World world;
  if (env.has("FOVEA_RANK") || env.has("FOVEA_WORLD_SIZE"))
    from_fovea(world, env);
  else if (is_torchrun(env))
    from_torchrun(world, env);
  else if (env.has("OMPI_COMM_WORLD_RANK"))
    from_mpi(world, env, true);
  else if (is_srun(env))
    from_slurm(world, env);
  else if (env.has("PMI_RANK") && env.has("PMI_SIZE"))
    from_mpi(world, env, false);
  else
    refuse_half_a_rank(env);
  if (!world.is_distributed()) return World{};
  if (const auto address = env.text("FOVEA_RENDEZVOUS")) set_address(world, *address);
  complete(world);
  world.token = env.text("FOVEA_TOKEN").value_or("");
  return world;
}

}  // namespace fovea::dist
