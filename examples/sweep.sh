#!/bin/sh
# How far does a fleet go? A sweep of loads against two simulated engines, and one page with the curve.
# Runs on a laptop in half a minute, without a GPU:   sh examples/sweep.sh [FOLDER]
set -eu
folder=${1:-.}

mkdir -p "$folder"
: >"$folder/serve.log"    # before it is read below, and without the address of an earlier run
infera serve --sim 2 --port 0 --no-access-log >"$folder/serve.log" 2>&1 &
server=$!
trap 'kill "$server"' EXIT
until url=$(sed -n 's/.*listening on //p' "$folder/serve.log") && [ -n "$url" ]; do
    kill -0 "$server" || { cat "$folder/serve.log" >&2; exit 1; }
    sleep 0.2
done

infera bench --base-url "$url" --ready-check-timeout-sec 30 --sweep concurrency=1,4,16 -n "${REQUESTS:-60}" --isl 256 --osl 32 \
    --goodput ttft:200 tpot:15 --allow-degraded \
    --result-filename "$folder/sweep.json" --html "$folder/sweep.html"
echo "the curve: $folder/sweep.html"
