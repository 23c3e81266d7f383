# SPDX-License-Identifier: MIT
"""Builds the peers whose toolchains are here, into build/bench/peers."""

import glob
import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))

# name: (what must be on the PATH, a file that must exist (glob), the Debian packages)
NEEDS = {
    "tokio": (["cargo", "rustc"], "/usr/share/cargo/registry/tokio-1*", "cargo rustc librust-tokio-dev"),
    "go": (["go"], None, "golang-go"),
    "libuv": (["gcc"], "/usr/include/uv.h", "libuv1-dev"),
    "tbb": (["g++"], "/usr/include/oneapi/tbb.h", "libtbb-dev"),
    "boost_fiber": (["g++"], "/usr/include/boost/fiber/all.hpp", "libboost-fiber-dev"),
}

NATIVE = {
    "libuv": ["gcc", "-O2", "main.c", "-luv", "-lpthread"],
    "tbb": ["g++", "-std=c++17", "-O2", "main.cpp", "-ltbb"],
    "boost_fiber": ["g++", "-std=c++17", "-O2", "main.cpp", "-lboost_fiber", "-lboost_context", "-lpthread"],
}


def _why_not(name):
    tools, file, packages = NEEDS[name]
    for tool in tools:
        if not shutil.which(tool):
            return f"{tool} is not installed (Debian: {packages})"
    if file and not glob.glob(file):
        return f"{file} is not there (Debian: {packages})"
    return None


def _command(name, out):
    if name == "go":
        return ["go", "build", "-o", out, "."]
    if name == "tokio":
        return ["cargo", "build", "--release", "--offline", "--quiet", "--target-dir", out + ".target"]
    return NATIVE[name] + ["-o", out]


def build(directory, names):
    """Returns ({name: path}, {name: why it is missing})."""
    os.makedirs(directory, exist_ok=True)
    built, missing = {}, {}
    for name in names:
        why = _why_not(name)
        out = os.path.join(directory, name)
        if not why:
            done = subprocess.run(_command(name, out), cwd=os.path.join(HERE, name), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                why = "does not build: " + (done.stdout.strip().splitlines() or ["no output"])[-1]
        if why:
            missing[name] = why
        else:
            built[name] = out + ".target/release/tokio-peer" if name == "tokio" else out
    return built, missing


def _first_line(command):
    try:
        return subprocess.run(command, text=True, capture_output=True, check=False).stdout.strip().splitlines()[0]
    except (OSError, IndexError):
        return "?"


def _debian(package):
    return _first_line(["dpkg-query", "-W", "-f", "${Version}\n", package])


def versions(built):
    """{name: version} of what the peers were built with."""
    of = {
        "go": lambda: _first_line(["go", "version"]).split()[2],
        "libuv": lambda: _debian("libuv1-dev"),
        "tbb": lambda: _debian("libtbb-dev"),
        "boost_fiber": lambda: _debian("libboost-fiber-dev"),
        "tokio": lambda: f"{_debian('librust-tokio-dev')}, {_first_line(['rustc', '--version'])}",
    }
    found = {name: of[name]() for name in built}
    if glob.glob("/usr/sbin/nginx"):
        found["nginx"] = _debian("nginx-light")
    return found
