#!/bin/sh
# Makes the project's virtual environment: every package pinned and hashed, then the project itself without dependencies.
# Rule: nothing enters the environment that requirements/dev.txt does not name with its hash; so no build isolation either,
# which would fetch a build backend unhashed. Called by make as `sh requirements/venv.sh FOLDER`, from the project's root.
# PYTHON names the interpreter (else the newest usable one is taken); UV names uv (empty: use pip although uv is there).
set -eu

folder=${1:?usage: sh requirements/venv.sh FOLDER}
uv=${UV-uv}

say() {
    printf '%s\n' "$*" >&2
}

# A pyenv shim exists for each version and then refuses to run, so a name on PATH proves nothing: ask it.
is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

# Debian ships `venv` without `ensurepip` until python3-venv is installed.
can_make_venv() {
    [ -n "$uv" ] || "$1" -c 'import venv, ensurepip' >/dev/null 2>&1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.14 python3.13 python3.12 python3.11 python3
    fi
    without_venv=
    for candidate in "$@"; do
        is_new_enough "$candidate" || continue
        if can_make_venv "$candidate"; then
            "$candidate" -c 'import sys; print(sys.executable)'
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then
        package=$("$without_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        say "$without_venv cannot make virtual environments: its venv module is missing or incomplete."
        say "Fix: apt install python3-venv (or $package; other systems: the package that holds ensurepip), or install uv. Then run make again."
    elif [ -n "${PYTHON:-}" ]; then
        say "PYTHON=$PYTHON does not run, or is older than Python 3.11."
        say "Fix: name a newer one (make PYTHON=/path/to/python3.11 ...), or leave PYTHON out."
    else
        say "onceflow needs Python 3.11 or newer; none of these runs here: $*."
        say "Fix: apt install python3 python3-venv (or your system's package), or name one: make PYTHON=/path/to/python3.11 ..."
    fi
    exit 1
}

# An environment is kept when it can be used as it is; one made by uv has no pip, which matters only without uv.
is_usable() {
    is_new_enough "$folder/bin/python" && { [ -n "$uv" ] || "$folder/bin/python" -m pip --version >/dev/null 2>&1; }
}

make_folder() {
    python=$(find_python)
    if [ -e "$folder" ] && [ ! -e "$folder/pyvenv.cfg" ]; then
        say "$folder exists and is not a virtual environment. Fix: move it away, or choose another: make VENV=.venv-other ..."
        exit 1
    fi
    rm -rf "$folder"
    say "making $folder with $python"
    if [ -n "$uv" ]; then
        "$uv" venv --quiet --no-python-downloads --python "$python" "$folder"
    else
        "$python" -m venv "$folder"
    fi
}

install_packages() {
    say "installing the pinned packages (about 250 MB when nothing is cached)"
    if [ -n "$uv" ]; then
        "$uv" pip install --python "$folder/bin/python" --require-hashes -r requirements/dev.txt
        "$uv" pip install --python "$folder/bin/python" --quiet --no-deps --no-build-isolation -e .
    else
        # Without a terminal pip's progress is 300 lines of noise in a log.
        if [ -t 1 ]; then
            quiet=
        else
            quiet=--quiet
            say "pip says nothing meanwhile; it takes a minute or two"
        fi
        "$folder/bin/python" -m pip install $quiet --no-input --disable-pip-version-check --require-hashes -r requirements/dev.txt
        "$folder/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps --no-build-isolation -e .
    fi
}

if [ -n "$uv" ] && ! "$uv" --version >/dev/null 2>&1; then
    uv=
fi
is_usable || make_folder
install_packages
