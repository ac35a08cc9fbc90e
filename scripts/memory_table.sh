#!/usr/bin/env bash
# The memory of each GPU by model size, number of GPUs and ZeRO stage, as `fovea train --dry-run`
# predicts it: the markdown table of docs/scaling.md. Needs no GPU. bf16, 1,024 tokens a sequence, one
# micro-batch a GPU and step, GPT-2's shapes and vocabulary.
#
#   scripts/memory_table.sh [SEQUENCES OF A MICRO-BATCH (8)] [FOVEA (build/cpu/fovea)]
set -euo pipefail
cd "$(dirname "$0")/.."

micro=${1:-8}
fovea=${2:-build/cpu/fovea}
config=$(mktemp --suffix=.yaml)
trap 'rm -f "$config"' EXIT

# Name, layers, heads, width.
models=(
  "124M 12 12 768"
  "350M 24 16 1024"
  "774M 36 20 1280"
  "1.5B 48 25 1600"
  "3B 32 22 2816"
  "7B 32 32 4096"
)

cat >"$config" <<YAML
task: lm
data: {kind: markov, markov: {vocab: 50257, train_examples: 64, test_examples: 8}}
model: {block_size: 1024, norm: layer, mlp: gelu, position: learned, tie_embeddings: true}
train: {max_steps: 1, precision: bf16-mixed, device: cuda}
YAML

# peak GPUS ZERO KEY=VALUE...: GiB of a GPU.
peak() {
  local gpus=$1 zero=$2
  shift 2
  "$fovea" train "$config" "$@" train.micro_batch_size="$micro" \
    train.global_batch_size=$((micro * gpus)) distributed.zero="$zero" --gpus "$gpus" --dry-run --json |
    sed -E 's/.*"peak_bytes":([0-9]+).*/\1/' | awk '{printf "%.1f", $1 / 1024 ^ 3}'
}

echo "| model | layers, heads, width | 1 GPU | 2 to 8 GPUs | 2, ZeRO-1 | 4, ZeRO-1 | 8, ZeRO-1 |"
echo "|---|---|---|---|---|---|---|"
for model in "${models[@]}"; do
  read -r name layers heads width <<<"$model"
  shape=(model.n_layer="$layers" model.n_head="$heads" model.n_embd="$width")
  row="| $name | $layers, $heads, $width"
  for case in "1 0" "8 0" "2 1" "4 1" "8 1"; do
    read -r gpus zero <<<"$case"
    row="$row | $(peak "$gpus" "$zero" "${shape[@]}")"
  done
  echo "$row |"
done
