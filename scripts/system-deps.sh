#!/usr/bin/env bash
# What the tests use and Python's package index does not have: Node, and with it the test server of Azure Blob Storage, in .node.
# Where they are not to be had, this says so and goes on; the tests that need them are skipped with that reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

azurite=3.35.0
folder=.node
done_mark=$folder/.azurite-$azurite

have() { command -v "$1" >/dev/null 2>&1; }

go_on_without() {
    echo "$1: the tests with an Azure server will be skipped"
    exit 0
}

# Node's own packages bring npm along; Debian has it apart.
install_node() {
    have apt-get && [[ $(id -u) == 0 ]] || go_on_without "Node's npm is missing and cannot be installed here (no apt-get, or no root rights)"
    local packages=(npm)
    have node || packages+=(nodejs)
    echo "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${packages[@]}"; } >/dev/null || go_on_without "apt-get could not install ${packages[*]}"
}

install_azurite() {
    echo "installing azurite $azurite in $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund --no-update-notifier --ignore-scripts --loglevel=error "azurite@$azurite" >/dev/null ||
        go_on_without "npm could not install azurite $azurite"
    touch "$done_mark"
}

if [[ -e $done_mark ]] && have node; then
    echo "azurite $azurite is there"
    exit 0
fi
{ have node && have npm; } || install_node
install_azurite
