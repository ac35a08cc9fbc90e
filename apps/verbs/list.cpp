// fovea list: the registries, as text, as Markdown (docs/ keeps that), and as JSON.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/registry.h"
#include "autograd/op_registry.h"
#include "command_line.h"
#include "core/text.h"
#include "train/run_config.h"
#include "train/task.h"
#include "verbs/verbs.h"

namespace fovea::apps {
namespace {

using train::JsonObject;

// A registry in its three forms; `entries` are JSON objects.
struct Listing {
  std::string text, markdown;
  std::vector<std::string> entries;
};

std::string list_of(const std::vector<std::string>& json_values) {
  return cat("[", join(json_values, ","), "]");
}

// Every list has one form of arguments.
ExitCode show(std::string_view registry, const Arguments& arguments, Output& out,
              std::string_view summary, Listing (*make)()) {
  bool markdown = false;
  CommandLine line(cat("list ", registry), summary);
  line.flag("--markdown", markdown, cat("print Markdown: the text of docs/", registry, ".md"));
  if (!line.parse(arguments, out)) return ExitCode::ok;
  const Listing listing = make();
  out.line(markdown ? listing.markdown : listing.text);
  out.record().raw(registry, list_of(listing.entries));
  return ExitCode::ok;
}

// Says who wrote a generated document, below its title.
std::string title(std::string_view text, std::string_view registry) {
  return cat("# ", text, "\n\nWritten by `fovea list ", registry,
             " --markdown`; a test keeps it current.\n");
}

std::vector<std::string> option_objects(std::span<const config::Option> options) {
  std::vector<std::string> objects;
  for (const config::Option& option : options) {
    JsonObject object;
    object.add("key", option.key).add("type", config::type_text(option));
    object.add("default", option.default_value).add("meaning", option.meaning);
    objects.push_back(object.str());
  }
  return objects;
}

Listing attention_listing() {
  Listing listing;
  listing.markdown = attention::attention_markdown();
  for (const attention::AttentionSpec& spec : attention::attention_specs()) {
    std::vector<std::string> can, cannot;
    JsonObject caps, entry;
    for (const auto& [name, has] : attention::flags(spec.caps)) {
      (has ? can : cannot).emplace_back(name);
      caps.add(name, has);
    }
    const std::string lacks = cannot.empty() ? "" : cat("; not ", join(cannot, ", "));
    const std::string note = spec.caps.note.empty() ? "" : cat(" (", spec.caps.note, ")");
    listing.text += cat(spec.name, ": ", spec.summary, "\n  ", spec.source, "\n  ", join(can, ", "),
                        lacks, note, "\n", config::plain(spec.options, "model.attention"), "\n");
    entry.add("name", spec.name).add("summary", spec.summary).add("source", spec.source);
    entry.raw("options", list_of(option_objects(spec.options))).raw("capabilities", caps.str());
    listing.entries.push_back(entry.str());
  }
  return listing;
}

Listing tasks_listing() {
  Listing listing;
  listing.markdown = title("Tasks", "tasks") + "\n| task | learns |\n|---|---|\n";
  for (const train::TaskSpec& spec : train::task_specs()) {
    listing.text += cat(spec.name, ": ", spec.summary, "\n");
    listing.markdown += cat("| `", spec.name, "` | ", spec.summary, " |\n");
    JsonObject entry;
    listing.entries.push_back(entry.add("name", spec.name).add("summary", spec.summary).str());
  }
  return listing;
}

Listing ops_listing() {
  Listing listing;
  listing.markdown =
      title("Differentiable ops", "ops") +
      "\n| op | does | header | autograd | CPU | CUDA |\n|---|---|---|---|---|---|\n";
  for (const OpSpec& spec : op_specs()) {
    listing.text += cat(spec.name, ": ", spec.summary, "\n  ", spec.header, "  ", spec.autograd,
                        "  ", spec.cpu, spec.cuda.empty() ? "" : "  ", spec.cuda, "\n");
    listing.markdown += cat("| `", spec.name, "` | ", spec.summary, " | ", spec.header, " | ",
                            spec.autograd, " | ", spec.cpu, " | ", spec.cuda, " |\n");
    JsonObject entry;
    entry.add("name", spec.name).add("summary", spec.summary).add("header", spec.header);
    entry.add("autograd", spec.autograd).add("kernels", spec.kernels).add("cpu", spec.cpu);
    entry.raw("cuda", spec.cuda.empty() ? "null" : train::json_string(spec.cuda));
    listing.entries.push_back(entry.add("cases", spec.cases().size()).str());
  }
  return listing;
}

Listing config_listing() {
  Listing listing;
  listing.text = config::plain(train::config_options(), "");
  listing.markdown = train::config_markdown();
  listing.entries = option_objects(train::config_options());
  return listing;
}

ExitCode list_attention(const Arguments& arguments, Output& out) {
  return show("attention", arguments, out, "Lists the attention methods and their options.",
              attention_listing);
}
ExitCode list_tasks(const Arguments& arguments, Output& out) {
  return show("tasks", arguments, out, "Lists what can be learned.", tasks_listing);
}
ExitCode list_ops(const Arguments& arguments, Output& out) {
  return show("ops", arguments, out, "Lists the differentiable ops and the files of each.",
              ops_listing);
}
ExitCode list_config(const Arguments& arguments, Output& out) {
  return show("config", arguments, out, "Lists every config key.", config_listing);
}

}  // namespace

ExitCode list(const Arguments& arguments, Output& out) {
  static const std::vector<Verb> verbs = {
      {"attention", "[--markdown]", "attention methods, their options and capabilities",
       list_attention},
      {"tasks", "[--markdown]", "what can be learned", list_tasks},
      {"ops", "[--markdown]", "differentiable ops and the files of each", list_ops},
      {"config", "[--markdown]", "every config key with type, default and meaning", list_config},
  };
  return run_verb("fovea list", verbs, arguments, out);
}

}  // namespace fovea::apps
