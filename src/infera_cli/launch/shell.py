"""The POSIX shell functions behind `script`; see there. Plain sh, and the tools that every Linux has."""

from __future__ import annotations

_STARTED = r"""
started() {
    IFS= read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${line##*) }
    state=$1
    shift 19
    echo "$1 $state"
}
"""
"""Start time (ticks) and state of a pid: the fields after the name, which may hold anything."""

# The first process of a launch. Only builtins and what `command -p` finds: the PATH is the user's by now. It notes who
# it is before the engine runs and how the engine ended afterwards, and outlives the TERM that is meant for the engine,
# to tell its status. Beside it a log that grows too long is copied and emptied: the engine holds it open to append.
_RUNNER = r"""
run=$1 offset=$2 log=$3 limit=$4 every=$5
shift 5
rotate() {
    size=$(command -p wc -c <"$log") && [ "$size" -gt "$limit" ] || return 0
    for number in 2 1; do
        [ ! -f "$log.$number" ] || command -p mv -f -- "$log.$number" "$log.$((number + 1))"
    done
    command -p cp -f -- "$log" "$log.1" || { command -p rm -f -- "$log.1"; return 0; }
    : >"$log"
    echo "$INFERA_LAUNCH_ID $$ $start $boot 0" >"$run"
}
keep_short() {
    nap=
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM INT
    while :; do
        command -p sleep "$every" &
        nap=$!
        wait "$nap" || exit 0
        [ -d "/proc/$$" ] || exit 0
        rotate
    done
}
trap : TERM INT QUIT
trap "" HUP
IFS= read -r line </proc/$$/stat
count=0 start=
for word in ${line##*) }; do
    count=$((count + 1))
    if [ $count -eq 20 ]; then start=$word; break; fi
done
read -r boot </proc/sys/kernel/random/boot_id
old=$(umask)
umask 077
echo "$INFERA_LAUNCH_ID $$ $start $boot $offset" >"$run" || exit 74
umask "$old"
keep_short >/dev/null 2>&1 &
"$@"
code=$?
echo "$INFERA_LAUNCH_ID $code" >"$run.exit"
kill $! 2>/dev/null
exit $code
"""

START = (
    _STARTED
    + "RUNNER='" + _RUNNER.replace("'", "'\\''") + "'\n"
    + r"""
fail() {
    code=$1
    shift
    echo "$*" >&2
    exit "$code"
}

rotate() {
    size=$(wc -c <"$1") || return 1
    [ "$size" -gt "$2" ] || return 0
    for number in 2 1; do
        [ ! -f "$1.$number" ] || mv -f -- "$1.$number" "$1.$((number + 1))"
    done
    mv -f -- "$1" "$1.1" && : >>"$1"
}

launch() {
    log=$1 run=$2 workdir=$3 nonce=$4 limit=$5 every=$6
    shift 6
    case $log in /*) ;; *) log=$PWD/$log run=$PWD/$run ;; esac
    mkdir -p -- "${log%/*}" || fail 73 "cannot make the log folder ${log%/*}"
    : >>"$log" || fail 73 "cannot write the log $log"
    rotate "$log" "$limit" || fail 73 "cannot rotate the log $log"
    if [ -f "$run" ] && read -r _ pid start boot _ <"$run" && [ -n "$boot" ]; then
        read -r now </proc/sys/kernel/random/boot_id
        alive=$(started "$pid") && [ "$boot" = "$now" ] && [ "${alive% *}" = "$start" ] && [ "${alive#* }" != Z ] &&
            fail 75 "busy: process $pid still runs on this slot"
    fi
    rm -f -- "$run" "$run.exit" || fail 73 "cannot replace the record $run"
    (umask 077; echo "- - - - -" >"$run") || fail 73 "cannot write the record $run; is the disk full?"
    [ -z "$workdir" ] || cd -- "$workdir" || fail 72 "cannot enter the working directory $workdir"
    setsid=$(command -v setsid) || fail 71 "setsid (of util-linux) is missing on this machine"
    ( environment; command -v -- "$1" >/dev/null 2>&1 ) || fail 127 "$1: not found, or not executable"
    offset=$(wc -c <"$log")
    offset=$((offset))
    ( environment; exec "$setsid" /bin/sh -c "$RUNNER" infera-launch "$run" "$offset" "$log" "$limit" "$every" "$@" ) \
        </dev/null >>"$log" 2>&1 &
    child=$!
    tries=0
    while [ $tries -lt 50 ]; do
        if [ -f "$run.exit" ]; then break; fi
        read -r who _ <"$run"
        if [ "$who" = "$nonce" ] && [ $tries -ge 5 ]; then break; fi
        started "$child" >/dev/null || [ $tries -lt 5 ] || break
        sleep 0.1
        tries=$((tries + 1))
    done
    read -r who rest <"$run"
    [ "$who" = "$nonce" ] || { kill -s KILL -- "-$child" 2>/dev/null; tail -c 800 -- "$log" >&2
        fail 74 "the launch could not note its process in $run; is the disk full?"; }
    echo "infera record $who $rest"
    if [ -f "$run.exit" ] && read -r who code <"$run.exit" && [ "$who" = "$nonce" ]; then
        echo "infera exit $who $code"
        if [ "$code" != 0 ]; then tail -c "+$((offset + 1))" -- "$log" | tail -c 800; fi
    fi
}
"""
)

LOOK = (
    _STARTED
    + r"""
snapshot() {
    processes=$(cat /proc/[0-9]*/stat 2>/dev/null | sed 's/^\([0-9]*\) (.*) /\1 /')
}

glance() {
    run=$1 pid=$2 nonce=$5
    read -r boot </proc/sys/kernel/random/boot_id
    echo "infera slot"
    echo "infera boot $boot"
    if [ -f "$run" ] && read -r who other rest <"$run"; then
        echo "infera record $who $other $rest"
        if [ -z "$pid" ] && [ "$who" = "$nonce" ]; then pid=$other; fi
    fi
    if [ -f "$run.exit" ] && read -r line <"$run.exit"; then echo "infera exit $line"; fi
    if [ -n "$pid" ] && alive=$(started "$pid"); then echo "infera leader $pid $alive"; fi
}

look() {
    glance "$@"
    if [ -n "$pid" ]; then
        echo "$processes" | awk -v sid="$pid" '$5 == sid && $2 != "Z" { print "infera member " $1 ":" $21 " session" }'
    fi
    if [ -n "$nonce" ]; then
        for file in $(grep -lzxFs "INFERA_LAUNCH_ID=$nonce" /proc/[0-9]*/environ); do
            file=${file%/environ}
            if alive=$(started "${file#/proc/}") && [ "${alive#* }" != Z ]; then
                echo "infera member ${file#/proc/}:${alive% *} nonce"
            fi
        done
    fi
}
"""
)

SIGNAL = (
    _STARTED
    + r"""
same() {
    now=$(started "${1%%:*}") && [ "${now% *}" = "${1#*:}" ]
}

strike() {
    name=$1 leader=$2
    shift 2
    if [ -n "$leader" ] && same "$leader"; then kill -s "$name" -- "-${leader%%:*}" 2>/dev/null; fi
    for member in "$@"; do
        if same "$member"; then kill -s "$name" "${member%%:*}" 2>/dev/null; fi
    done
    return 0
}
"""
)

TAIL = r"""
show() {
    log=$1 run=$2 lines=$3 from=$4 most=$5
    offset=0
    if [ -f "$run" ]; then read -r _ _ _ _ offset <"$run"; fi
    case $offset in ''|*[!0-9]*) offset=0 ;; esac
    [ -r "$log" ] || { echo "there is no log $log" >&2; exit 66; }
    size=$(wc -c <"$log")
    size=$((size))
    [ "$offset" -le "$size" ] || offset=0
    if [ "$from" -lt 0 ]; then
        echo "infera log $offset $size"
        tail -c "+$((offset + 1))" -- "$log" | tail -n "$lines"
        return
    fi
    [ "$from" -le "$size" ] || from=0
    echo "infera log $from $size"
    tail -c "+$((from + 1))" -- "$log" | head -c "$most"
}
"""
