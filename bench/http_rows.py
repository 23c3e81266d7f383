# SPDX-License-Identifier: MIT
"""The HTTP rows: examples/httpd, nginx and Go's net/http serve the same file to wrk.

One worker: the server is pinned to the first processor and wrk to the second. Two
workers: nobody is pinned, so server and client share both. 64 connections, keep-alive.
"""

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

SIZE = 4096

NGINX = """worker_processes {workers};
daemon off;
error_log {dir}/error.log crit;
pid {dir}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    client_body_temp_path {dir}/body;
    proxy_temp_path {dir}/proxy;
    fastcgi_temp_path {dir}/fastcgi;
    uwsgi_temp_path {dir}/uwsgi;
    scgi_temp_path {dir}/scgi;
    server {{ listen 127.0.0.1:{port}; root {root}; }}
}}
"""


def why_not(build):
    """What is missing for these rows, or None."""
    if not os.path.exists(os.path.join(build, "examples", "httpd")):
        return "examples/httpd is not built"
    if not shutil.which("wrk"):
        return "wrk is not installed (Debian: wrk)"
    return None


def servers(build, built):
    """{name: function(workers, port, root, directory) -> command}."""
    found = {"weft": lambda w, port, root, _: [os.path.join(build, "examples", "httpd"), "-a", "127.0.0.1",
                                               "-p", str(port), "-w", str(w), root]}
    if "go" in built:
        found["go"] = lambda w, port, root, _: [built["go"], "http", str(port), root, str(w)]
    nginx = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    if nginx:
        def command(workers, port, root, directory):
            path = os.path.join(directory, "nginx.conf")
            with open(path, "w", encoding="ascii") as f:
                f.write(NGINX.format(workers=workers, port=port, root=root, dir=directory))
            return [nginx, "-c", path, "-p", directory]
        found["nginx"] = command
    return found


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _wait_for(port):
    for _ in range(200):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise OSError("the server does not listen")


def measure(command_of, workers, quick):
    """{"value": thousand requests a second, ...}; raises OSError."""
    cpus = sorted(os.sched_getaffinity(0))
    pin = (lambda n: ["taskset", "-c", str(cpus[n % len(cpus)])]) if workers == 1 else lambda n: []
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # nginx's workers may be another user
        root = os.path.join(directory, "root")
        os.mkdir(root)
        with open(os.path.join(root, "file"), "wb") as f:
            f.write(b"weft" * (SIZE // 4))
        port = _free_port()
        with subprocess.Popen(pin(0) + command_of(workers, port, root, directory), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as server:
            try:
                _wait_for(port)
                done = subprocess.run(pin(1) + ["wrk", "-t1", "-c64", f"-d{1 if quick else 3}s", "--latency",
                                                f"http://127.0.0.1:{port}/file"],
                                      text=True, capture_output=True, check=False)
            finally:
                server.terminate()
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    size = re.search(r"(\d+) requests in", done.stdout)
    if not rate or not size or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        raise OSError("wrk: " + " ".join(done.stdout.split())[-200:])
    return {"value": float(rate.group(1)) / 1e3, "unit": "k/s", "n": int(size.group(1))}
