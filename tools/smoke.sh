#!/usr/bin/env bash
# Starts the built daemon with the example flows, uses it once through the built
# client, and stops it: what a newcomer does first must work.
set -euo pipefail
cd "$(dirname "$0")/.."

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
export SCHEDCTL_SERVER
SCHEDCTL_SERVER=127.0.0.1:$(free_port)
dir=bin/smoke
rm -rf "$dir"
mkdir -p "$dir"

bin/schedulerd --flows examples/flows --listen "$SCHEDCTL_SERVER" --admin-listen "127.0.0.1:$(free_port)" \
	--data-dir "$dir/data" >"$dir/log" 2>&1 &
daemon=$!
trap 'kill -KILL "$daemon" 2>/dev/null || true' EXIT

fail() {
	tail -n 50 "$dir/log" >&2
	echo "smoke: $1" >&2
	exit 1
}

for try in {1..100}; do
	bin/schedctl info >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || fail "schedulerd ended at its start"
	[ "$try" -lt 100 ] || fail "schedulerd does not answer"
	sleep 0.1
done

bin/schedctl list || fail "list"
flow=$(bin/schedctl list -o name | head -n 1)
[ -n "$flow" ] || fail "no flows"
bin/schedctl status "$flow" || fail "status $flow"
bin/schedctl stop --grace 5s || fail "stop"

# The daemon ends by itself, and says that it ended well.
for try in {1..200}; do
	kill -0 "$daemon" 2>/dev/null || break
	[ "$try" -lt 200 ] || fail "schedulerd did not stop"
	sleep 0.1
done
code=0
wait "$daemon" || code=$?
[ "$code" = 0 ] || fail "schedulerd exited with $code after stop"
echo "smoke: ok"
