#!/bin/sh
# Downloads other packages' SOAP for `optc bench soap --against torch` into BUILD/peers, where
# tests/bench/torch_factors.py finds them. They are pure Python and need only torch.
#   sh tests/bench/peers.sh [BUILD]        needs pip and a network; copy BUILD/peers to machines
#                                          without one
#   OPTC_PYTHON                            the interpreter
set -eu
into=${1:-build}/peers
python=${OPTC_PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary :all: -d "$work" \
    pytorch_optimizer==4.1.0 heavyball==3.2.1 opt_einsum==3.4.0
rm -rf "$into"
mkdir -p "$into"
for wheel in "$work"/*.whl; do "$python" -m zipfile -e "$wheel" "$into"; done
if "$python" -c 'import torch' 2>/dev/null; then
    PYTHONPATH=$into "$python" -c 'import heavyball;
        from pytorch_optimizer.optimizer.soap import SOAP'
    echo "in $into, and torch imports them: $(ls "$into" | sed -n 's/\.dist-info//p' | tr '\n' ' ')"
else
    echo "in $into, untried, for there is no torch here: $(ls "$into" | sed -n 's/\.dist-info//p' |
        tr '\n' ' ')"
fi
