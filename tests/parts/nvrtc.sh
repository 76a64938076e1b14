# Sourced by tests/run.sh with BUILD set. Finds NVRTC and CUDA's headers, or downloads them as
# Python packages into the build folder and keeps them. Sets have_nvrtc and cuda_includes (empty if
# not available), and exports OPTC_NVRTC if optc does not find NVRTC itself. OPTC_OFFLINE=1
# downloads nothing.
cuda_release=13.0

# install_packages FOLDER PACKAGE…: installs with any pip that is available, all or nothing
install_packages() {
    to=$1
    shift
    rm -rf "$to.part" "$to.venv"
    if python3 -m pip --version >/dev/null 2>&1; then
        pip="python3 -m pip"
    elif pip3 --version >/dev/null 2>&1; then
        pip=pip3
    elif python3 -m venv "$to.venv" >/dev/null 2>&1; then
        pip="$to.venv/bin/python -m pip"
    else
        echo "there is no pip here, and no Python that makes a venv with one" >&2
        rm -rf "$to.venv"
        return 1
    fi
    if PIP_ROOT_USER_ACTION=ignore $pip install -q --disable-pip-version-check --retries \
        2 --no-deps --only-binary=:all: --target "$to.part" "$@"; then
        rm -rf "$to" "$to.venv"
        mv "$to.part" "$to"
    else
        rm -rf "$to.part" "$to.venv"
        return 1
    fi
}

# fetch FOLDER WHAT PACKAGE…: does nothing if FOLDER exists
fetch() {
    folder=$1 what=$2
    shift 2
    [ ! -d "$folder" ] || return 0
    if [ -n "${OPTC_OFFLINE:-}" ]; then
        echo "$what: not found, and OPTC_OFFLINE is set"
        return 1
    fi
    echo "fetching $what into $folder (kept there)"
    install_packages "$folder" "$@" || { echo "$what: could not be fetched"; return 1; }
}

finds_nvrtc() { "$BUILD/optc" doctor | grep '^nvrtc' | grep -q 'compiles for'; }

have_nvrtc=
if finds_nvrtc; then
    have_nvrtc=yes
elif fetch "$BUILD/nvrtc" "NVRTC $cuda_release (90 MB)" "nvidia-cuda-nvrtc==$cuda_release.*" \
    "nvidia-nvfatbin==$cuda_release.*"; then
    OPTC_NVRTC="$(cd "$BUILD/nvrtc/nvidia/cu13/lib" && pwd)"
    export OPTC_NVRTC
    finds_nvrtc && have_nvrtc=yes || "$BUILD/optc" doctor | grep '^nvrtc'
fi

# folder_with FILE FOLDER…: prints the first folder that has FILE
folder_with() {
    file=$1
    shift
    for f; do
        [ ! -f "$f/$file" ] || { echo "$f"; return 0; }
    done
    return 1
}

cuda_includes=
toolkit_includes="${CUDA_HOME:-/none}/include ${CUDA_PATH:-/none}/include /usr/local/cuda/include \
/opt/cuda/include"
nvrtc_file=$("$BUILD/optc" doctor | sed -n 's/^nvrtc *\(.*\) ([0-9.]*), compiles for.*/\1/p')
nvrtc_h=$(folder_with nvrtc.h "$(dirname "$(dirname "${nvrtc_file:-/none/none}")")/include" \
    $toolkit_includes) ||
    nvrtc_h=
cuda_h=$(folder_with cudaTypedefs.h $toolkit_includes) || cuda_h=
if [ -z "$cuda_h" ] && fetch "$BUILD/cuda-headers" "CUDA's headers (2 MB)" \
    "nvidia-cuda-runtime==$cuda_release.*"; then
    cuda_h="$BUILD/cuda-headers/nvidia/cu13/include"
fi
[ -z "$cuda_h" ] || [ -z "$nvrtc_h" ] || cuda_includes="-I$nvrtc_h -I$cuda_h"
