# Sourced by the other scripts: which Debian packages fovea needs, and installing those that are missing.
# Prints nothing and touches nothing when all are there.

BUILD_PACKAGES=(g++ cmake ninja-build libyaml-cpp-dev libspdlog-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libxxhash-dev libpcre2-dev zlib1g-dev libopenblas-dev libgloo-dev
  libsqlite3-dev libboost-math-dev)
TEST_PACKAGES=(doctest-dev)
CHECK_PACKAGES=(git clang-format clang-tidy ccache)

# install_missing PACKAGE...
install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    echo "This is no Debian system: install the equivalents of these packages, if they are missing:" >&2
    echo "  $*" >&2
    return 0 # cmake prints a table of what it finds and ends if something is missing
  fi
  local package missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "error: these packages are missing, and only root can install them (there is no sudo):" >&2
      echo "  apt-get install ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  echo "Installing: ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q)
  "${apt[@]}" update
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}"
}
