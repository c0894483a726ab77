#!/usr/bin/env bash
# Builds the servers that `make test-discovery` needs from the Go module proxy: kube-apiserver and consul.
#   discovery_servers.sh FOLDER      FOLDER/kube-apiserver, FOLDER/consul; minutes once, nothing when they are there
set -euo pipefail
folder=$(mkdir -p "${1:?folder}" && cd "$1" && pwd)
kubernetes=1.34.1 consul=1.12.9

# The sources of module $1 at version $2, for a build that changes its go.mod.
source_of() {
  go mod download "$1@v$2"
  rm -rf "$folder/src" && mkdir "$folder/src"
  cp -r "$(go env GOMODCACHE)/$1@v$2/." "$folder/src"
  chmod -R u+w "$folder/src"
}

# Both have sub-modules beside them in their repositories. The published ones take their place.
if [[ ! -x $folder/kube-apiserver ]]; then
  source_of k8s.io/kubernetes "$kubernetes"
  sed -i -E "s#^(\s*)(k8s.io/[a-z-]+) => ./staging/src/k8s.io/[a-z-]+#\1\2 => \2 v0.${kubernetes#1.}#" "$folder/src/go.mod"
  (cd "$folder/src" && GOFLAGS=-mod=mod GOWORK=off go build -o "$folder/kube-apiserver" ./cmd/kube-apiserver)
fi
if [[ ! -x $folder/consul ]]; then
  source_of github.com/hashicorp/consul "$consul"
  sed -i -E '/^replace .*consul.* => \.\//d' "$folder/src/go.mod"
  (cd "$folder/src" && GOFLAGS=-mod=mod GOWORK=off go build -o "$folder/consul" .)
fi
rm -rf "$folder/src"
