#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# httpd.sh HTTPD -- the example server before real clients (curl) and rude ones (bytes
# by hand through bash's /dev/tcp): files, keep-alive, pipelining, paths that lead out,
# bad requests, slow clients, the orderly end.
set -u
httpd=${1:?usage: httpd.sh HTTPD}
command -v curl >/dev/null || { echo "no curl: skipped"; exit 77; }
tmp=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$tmp"' EXIT
failures=0

mkdir -p "$tmp/www/dir/sub" "$tmp/outside"
printf 'Hello.\n' >"$tmp/www/index.html"
printf 'sub\n' >"$tmp/www/dir/sub/index.html"
printf 'with a space\n' >"$tmp/www/a b.txt"
printf 'secret\n' >"$tmp/outside/secret"
: >"$tmp/www/empty.json"
head -c 3000000 /dev/urandom >"$tmp/www/large.bin"
head -c 16384 /dev/urandom >"$tmp/www/edge.bin"
ln -s ../outside/secret "$tmp/www/link-out"
ln -s index.html "$tmp/www/link-in.html"
ln -s / "$tmp/www/rootlink"
mkfifo "$tmp/www/fifo"

: >"$tmp/log"
"$httpd" -p 0 -w 2 -t 1 "$tmp/www" >"$tmp/log" 2>&1 &
server=$!
for _ in $(seq 200); do
    grep -q listening "$tmp/log" && break
    sleep 0.05
done
url=$(grep -oE 'http://127\.0\.0\.1:[0-9]+' "$tmp/log")
port=${url##*:}
[ -n "$port" ] || { echo "httpd did not start"; cat "$tmp/log"; exit 1; }

check() { # WHAT GOT WANTED
    if [ "$2" != "$3" ]; then
        echo "FAILED: $1: got '$2', wanted '$3'"
        failures=$((failures + 1))
    fi
}
code() { curl -sS -o /dev/null --max-time 10 -w '%{http_code}' --path-as-is "$@"; }
# raw BYTES: everything the server says to these bytes (printf escapes)
raw() {
    exec 3<>"/dev/tcp/127.0.0.1/$port" || return
    # shellcheck disable=SC2059
    printf "$1" >&3 2>/dev/null
    timeout 10 cat <&3
    exec 3>&-
}
statuses() { tr -d '\r' | grep -aoE '^HTTP/1\.1 [0-9]+' | cut -d' ' -f2 | tr '\n' ' ' | sed 's/ $//'; }

# -- files
for f in index.html large.bin edge.bin empty.json link-in.html; do
    check "contents of $f" "$(curl -sS --max-time 10 "$url/$f" | sha256sum)" "$(sha256sum <"$tmp/www/$f")"
done
check "a name with a space" "$(curl -sS "$url/a%20b.txt?query")" "with a space"
check "the index" "$(curl -sS "$url/")" "Hello."
check "a directory moves" "$(curl -sS -o /dev/null -w '%{http_code} %{redirect_url}' "$url/dir/sub")" "301 $url/dir/sub/"
check "and is followed" "$(curl -sSL "$url/dir/sub")" "sub"
check "no open redirect" "$(curl -sS -o /dev/null -w '%{redirect_url}' --path-as-is "$url//dir/sub")" "$url/dir/sub/"
check "type html" "$(curl -sSI "$url/index.html" | tr -d '\r' | grep -i '^content-type')" "Content-Type: text/html; charset=utf-8"
check "type json" "$(curl -sSI "$url/empty.json" | tr -d '\r' | grep -i '^content-type')" "Content-Type: application/json"
check "HEAD has the length" "$(curl -sSI "$url/large.bin" | tr -d '\r' | grep -i '^content-length')" "Content-Length: 3000000"
check "HEAD has no body" "$(raw 'HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' | grep -c Hello)" 0

# -- refusals
check "missing" "$(code "$url/nothing")" 404
check "below a file" "$(code "$url/index.html/x")" 404
check "a directory without index" "$(code "$url/dir/")" 404
check "a fifo" "$(code "$url/fifo")" 403
check "POST" "$(code -d x=y "$url/")" 405
check "POST says what is allowed" "$(curl -sS -o /dev/null -D - -d x=y "$url/" | tr -d '\r' | grep -i '^allow')" "Allow: GET, HEAD"
check "DELETE" "$(code -X DELETE "$url/")" 405
for path in /../outside/secret /%2e%2e/outside/secret /%2E%2E%2Foutside%2fsecret /dir/../../outside/secret \
    /link-out /rootlink/etc/passwd /dir/sub/../../../outside/secret /..%2f..%2f..%2fetc/passwd //../outside/secret; do
    check "out of the root by $path" "$(code "$url$path")" 403
done
check "a dot-dot that stays inside" "$(code "$url/dir/../index.html")" 200
check "a zero byte in a path" "$(code "$url/index.html%00.png")" 400
check "half an escape" "$(code "$url/%4")" 400
check "a wrong escape" "$(code "$url/%zz")" 400
long=$(printf 'a%.0s' $(seq 3000))
check "a long target" "$(code "$url/$long")" 414
check "large headers" "$(code -H "X: $long$long" -H "Y: $long$long" -H "Z: $long$long" "$url/")" 431
check "garbage" "$(raw 'hello\r\n\r\n' | statuses)" 501
check "binary garbage" "$(raw '\001\002\377\376\r\n\r\n' | statuses)" 501
check "an unknown method" "$(raw 'BREW / HTTP/1.1\r\nHost: x\r\n\r\n' | statuses)" 501
check "no host" "$(raw 'GET / HTTP/1.1\r\n\r\n' | statuses)" 400
check "another protocol" "$(raw 'GET / HTTP/2.0\r\nHost: x\r\n\r\n' | statuses)" 505
check "a bad header" "$(raw 'GET / HTTP/1.1\r\nHost x\r\n\r\n' | statuses)" 400
check "two lengths" "$(raw 'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n' | statuses)" 400
check "a negative length" "$(raw 'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n' | statuses)" 400
check "a large body" "$(head -c 200000 /dev/zero | code -X GET --data-binary @- "$url/")" 413
check "an error says why" "$(curl -sS "$url/nothing")" "404 Not Found: there is no such file"

# -- connections
check "keep-alive" "$(curl -sS -o /dev/null -o /dev/null -o /dev/null -w '%{num_connects} ' "$url/" "$url/nothing" "$url/a%20b.txt")" "1 0 0 "
check "HTTP/1.0 closes" "$(raw 'GET / HTTP/1.0\r\n\r\n' | statuses)" 200
check "pipelining" "$(raw 'GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' | statuses)" "200 404 200 200"
check "a body is passed over" "$(raw 'GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /no HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' | statuses)" "200 404"
many=
for _ in $(seq 200); do many="${many}GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n"; done
check "200 in one go" "$(raw "${many}GET /no HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" | statuses | wc -w)" 201

# -- slow clients: 1 s for a request, whole or not
check "half a request" "$(raw 'GET / HTTP/1.1\r\nHo' | statuses)" 408
check "no request" "$(raw '' | wc -c)" 0
drip() {
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    (
        for c in G E T ' ' / ' ' H T T P / 1 . 1 x x x x; do
            printf '%s' "$c" >&3
            sleep 0.2
        done
    ) 2>/dev/null &
    timeout 10 cat <&3
    exec 3>&-
    wait $!
}
check "a byte now and then" "$(drip | statuses)" 408
check "and others are served meanwhile" "$(code "$url/")" 200

# -- many at once
pids=()
for i in $(seq 20); do
    curl -sS --max-time 20 -o "$tmp/copy$i" "$url/large.bin" &
    pids+=($!)
done
wait "${pids[@]}"
check "20 large files at once" "$(sha256sum "$tmp"/copy* | cut -d' ' -f1 | sort -u)" "$(sha256sum "$tmp/www/large.bin" | cut -d' ' -f1)"

# -- the end: an answer under way is finished, idle connections don't hold it up
exec 4<>"/dev/tcp/127.0.0.1/$port"
curl -sS --limit-rate 3M --max-time 20 -o "$tmp/last" "$url/large.bin" &
last=$!
sleep 0.3
kill -TERM $server
wait $last
check "a download under way at the end" "$(sha256sum <"$tmp/last")" "$(sha256sum <"$tmp/www/large.bin")"
wait $server
check "the server's own status" $? 0
server=
exec 4>&-
check "its last word" "$(grep -c '^ended by Terminated after' "$tmp/log")" 1
if grep -vE '^(listening on|ended by)' "$tmp/log"; then
    check "the log" "unexpected lines" ""
fi

[ $failures = 0 ] && echo "all well" || { echo "$failures failed"; exit 1; }
