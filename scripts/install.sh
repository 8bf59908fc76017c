#!/usr/bin/env bash
# install.sh ENVIRONMENT ARGUMENTS: `pip install ARGUMENTS` into a virtual environment, by uv in a tenth of the time.
# Where uv fails, e.g. since only pip's settings name the package index, pip does it.
set -euo pipefail
python=$1/bin/python
shift
quiet=(--quiet --disable-pip-version-check)

if "$python" -m pip install "${quiet[@]}" uv && "$python" -m uv pip install --quiet --native-tls --python "$python" "$@"; then
    exit
fi
echo "uv could not install this: pip does"
"$python" -m pip install "${quiet[@]}" --upgrade pip
"$python" -m pip install "${quiet[@]}" "$@"
