#!/bin/sh
# Which policy? The same conversations simulated under four of them, then two measured against simulated engines.
# Runs on a laptop in under a minute, without a GPU:   sh examples/policies.sh [FOLDER]
set -eu
folder=${1:-.}
mkdir -p "$folder"
conversations="--dataset-name multi-turn --turns 3 --isl 1200 --osl 16 --seed 5"

# shellcheck disable=SC2086  # the options are meant to be split
infera simulate --workers 3 --policy session,prefix-aware,least-loaded,round-robin $conversations --by-text \
    --rate 1.5 -n "${COUNT:-40}" --plot "$folder/policies.svg"

for policy in session round-robin; do
    : >"$folder/$policy.log"    # before it is read below, and without the address of an earlier run
    infera serve --sim 3 --port 0 --router-policy "$policy" --no-access-log >"$folder/$policy.log" 2>&1 &
    server=$!
    trap 'kill "$server"' EXIT
    until url=$(sed -n 's/.*listening on //p' "$folder/$policy.log") && [ -n "$url" ]; do
        kill -0 "$server" || { cat "$folder/$policy.log" >&2; exit 1; }
        sleep 0.2
    done
    # shellcheck disable=SC2086
    infera bench --base-url "$url" --ready-check-timeout-sec 30 $conversations --rate 1.5 -n "${COUNT:-40}" --allow-degraded \
        --result-filename "$folder/$policy.json" >/dev/null
    kill "$server"
    trap - EXIT
done

infera bench compare "$folder/round-robin.json" "$folder/session.json"
