#!/bin/sh
# The main job, shown: a spec, its plan, and its speed against the memory's.
set -eu
run() { printf '\n$ optc %s\n' "$*"; "$OPTC" "$@"; }
run doctor
run check adamw
run explain adamw --with 'clip(1)'
run bench adamw --device best --size 64M --rounds 5
