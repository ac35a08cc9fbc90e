#!/usr/bin/env bash
# From a fresh Debian machine to a trained and evaluated model: installs what is missing, builds fovea,
# trains a small associative-recall task (MQAR, data made on the spot), evaluates it, and says what to
# try next. Run again, it goes straight to training, into a new run folder: nothing is overwritten.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh

config=configs/mqar/quickstart.yaml
fovea=build/cpu/fovea

install_missing "${BUILD_PACKAGES[@]}"
if [ ! -f build/cpu/build.ninja ]; then
  cmake --preset cpu -DFOVEA_TESTS=OFF
fi
cmake --build build/cpu --target fovea_binary

run=runs/quickstart
number=2
while [ -e "$run" ]; do
  run=runs/quickstart-$number
  number=$((number + 1))
done

echo
echo "Training $config into $run"
"$fovea" train "$config" out_dir="$run"
echo
echo "Evaluating $run"
"$fovea" eval "$run"

cat <<NEXT

Done. $run holds config.yaml (every setting), metrics.jsonl and ckpt/. What to try next:

  # What is in the run folder.
  $fovea inspect $run
  # Any setting can follow as key=value; fovea list config explains them all.
  $fovea train $config model.n_layer=1 out_dir=runs/one_layer
  # A byte-level language model of your own text. Ctrl-C stops it, the same command goes on.
  $fovea train configs/lm/bytes_cpu.yaml data.path=FILE_OR_FOLDER
  # Attention methods and their options.
  $fovea list attention
  # Build and run the tests.
  scripts/test.sh

docs/tour.md is one walk through the code.
NEXT
