#!/usr/bin/env bash
# Prints a hash of everything in the work tree that git does not ignore, so that two moments can be compared.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files -z --cached --others --exclude-standard |
	{ xargs -0 sha256sum 2>/dev/null || true; } | # a file that was deleted is simply absent
	sha256sum
