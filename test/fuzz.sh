#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time: test/fuzz.sh 5s
# Go fuzzes one target of one package at a time, so they are found and run one by one.
set -euo pipefail
cd "$(dirname "$0")/.."

time=${1:?usage: test/fuzz.sh TIME, for example test/fuzz.sh 30s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Prints "DIR TARGET" for each target.
list() {
	grep -rE --include='*_test.go' --exclude-dir=build --exclude-dir=.git '^func Fuzz[A-Za-z0-9_]*\(' . |
		sed -E 's/^(.*)\/[^\/]+:func (Fuzz[A-Za-z0-9_]*).*/\1 \2/' | sort
}

# Inputs are hardly made smaller: where servers run in the background coverage is never the same twice, and it would take all the time.
fuzz() {
	CGO_ENABLED=1 go test -run='^$' -fuzz="^$2\$" -fuzztime="$time" -fuzzminimizetime=20x "$1" 2>&1 | tee "$log"
}

# Go up to 1.26 may report the end of the time that it was given as a failure (https://go.dev/issue/75804). A real finding
# names its input, so the two can be told apart; a target that hangs does not, so it gets one more run, not a pass.
ended_by_itself() {
	grep -q '^ *context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic:|hung or terminated' "$log"
}

mapfile -t targets < <(list)
if ((${#targets[@]} == 0)); then
	echo 'fuzz: no fuzz target found' >&2
	exit 1
fi
for target in "${targets[@]}"; do
	read -r dir name <<<"$target"
	echo "==> fuzzing $name in $dir for $time"
	if ! fuzz "$dir" "$name"; then
		ended_by_itself || exit 1
		echo "==> $name ended on the fuzzer's own deadline: once more"
		fuzz "$dir" "$name"
	fi
done
echo "==> fuzzed ${#targets[@]} targets for $time each: nothing found"
