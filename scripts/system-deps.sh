#!/usr/bin/env bash
# What the tests use and Python's package index does not have: Chromium, in which pages are opened; Node, and with it the test server of Azure Blob Storage, in .node.
# Where they are not to be had, this says so and goes on; the tests that need them are skipped with that reason.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

azurite=3.35.0
folder=.node
done_mark=$folder/.azurite-$azurite

have() { command -v "$1" >/dev/null 2>&1; }

can_install() { have apt-get && [[ $(id -u) == 0 ]]; }

install_packages() {
    echo "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    # A mirror that does not answer holds up nobody: few tries, and an end to all of them.
    local patient=(-o Acquire::Retries=2 -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 -o DPkg::Lock::Timeout=60)
    { timeout -k 10 120 apt-get "${patient[@]}" update -qq && timeout -k 30 600 apt-get "${patient[@]}" install -y -qq --no-install-recommends "$@"; } >/dev/null </dev/null
}

# A browser is nice to have: what comes after it does not wait for it.
install_chromium() {
    if ! can_install; then
        echo "Chromium is missing and cannot be installed here (no apt-get, or no root rights): the tests with a browser will be skipped"
    elif ! install_packages chromium fonts-dejavu-core; then
        echo "apt-get could not install chromium: the tests with a browser will be skipped"
    fi
}

go_on_without() {
    echo "$1: the tests with an Azure server will be skipped"
    exit 0
}

# Node's own packages bring npm along; Debian has it apart.
install_node() {
    can_install || go_on_without "Node's npm is missing and cannot be installed here (no apt-get, or no root rights)"
    local packages=(npm)
    have node || packages+=(nodejs)
    install_packages "${packages[@]}" || go_on_without "apt-get could not install ${packages[*]}"
}

install_azurite() {
    echo "installing azurite $azurite in $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    timeout -k 10 300 npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund --no-update-notifier --ignore-scripts --loglevel=error "azurite@$azurite" >/dev/null ||
        go_on_without "npm could not install azurite $azurite"
    touch "$done_mark"
}

have chromium || install_chromium

if [[ -e $done_mark ]] && have node; then
    echo "azurite $azurite is there"
    exit 0
fi
{ have node && have npm; } || install_node
install_azurite
