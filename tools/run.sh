#!/usr/bin/env bash
# Runs the example flows in a daemon and watches them; when either ends, or on
# Ctrl-C, both do. SCHEDULERD_LISTEN changes the address.
set -euo pipefail
cd "$(dirname "$0")/.."

address=${SCHEDULERD_LISTEN:-127.0.0.1:7420}
log=data/schedulerd.log
mkdir -p data

# A process group of its own: Ctrl-C must reach the daemon once, as the SIGTERM
# of stop, or it would take the second signal for "now".
set -m
bin/schedulerd --flows examples/flows --listen "$address" --data-dir data >"$log" 2>&1 &
daemon=$!
set +m
watch=

stop() {
	trap - EXIT INT TERM HUP
	[ -z "$watch" ] || kill -TERM "$watch" 2>/dev/null || true
	kill -TERM "$daemon" 2>/dev/null || true
	wait || true
}
trap stop EXIT
trap 'exit 0' INT
trap 'exit 143' TERM HUP

fail() {
	tail -n 20 "$log" >&2
	echo "$1; its log is $log" >&2
	exit 1
}

# Each try fails fast while nothing listens; the daemon may also die first.
for try in {1..50}; do
	bin/schedctl --server "$address" info >/dev/null 2>&1 && break
	kill -0 "$daemon" 2>/dev/null || fail "schedulerd did not start"
	[ "$try" -lt 50 ] || fail "schedulerd does not answer on $address"
	sleep 0.2
done

echo "schedulerd listens on $address and logs to $log. Try in another terminal:"
echo "  bin/schedctl list"
echo
bin/schedctl --server "$address" watch <&0 &
watch=$!

while kill -0 "$daemon" 2>/dev/null && kill -0 "$watch" 2>/dev/null; do
	sleep 0.5
done
if ! kill -0 "$daemon" 2>/dev/null; then
	wait "$daemon" || fail "schedulerd ended with exit code $?"
fi
