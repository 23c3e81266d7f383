# SPDX-License-Identifier: MIT
#
# weft-gdb.py -- the fibers of a weft program in gdb, on a live process or a core file.
#
#     (gdb) source scripts/gdb/weft-gdb.py
#     (gdb) weft-tasks              the tasks of every runtime that has a thread
#     (gdb) weft-tasks RT           those of the runtime that the expression RT points to
#     (gdb) weft-bt                 the backtrace of every parked fiber
#     (gdb) weft-bt ID              of the task with that id, as weft-tasks shows it
#
# The library must have been compiled with -g. Nothing is written to the process: a
# parked fiber's frames are shown by an unwinder that continues the innermost frame of
# the selected thread with them, so every backtrace begins with that one frame, #0.
#
# How a fiber is found: the tasks of a runtime lie in chunks (src/sched/task.h), a slot
# with an id is a task; a parked fiber's stack pointer is in its context, and it will go
# on at the label weft__context_parked, where the unwind information is complete.

import gdb
import gdb.unwinder

PHASE, WAITING = 3, 1
DONE = 0x80000000
POLL = 0x10


def raw(value):
    return int(value["raw"])


def text(value):
    address = raw(value)
    if address == 0:
        return "-"
    try:
        return gdb.Value(address).cast(gdb.lookup_type("char").pointer()).string()
    except gdb.error:
        return "?"


def runtimes():
    """One per runtime whose worker is in the stack of some thread."""
    found = {}
    selected = gdb.selected_thread()
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        here = worker_here()
        if here:
            found[int(here["rt"])] = here["rt"].dereference()
            continue
        frame = gdb.newest_frame()
        while frame is not None and frame.is_valid():
            rt = runtime_in(frame)
            if rt is not None:
                found[int(rt)] = rt.dereference()
                break
            frame = frame.older()
    if selected:
        selected.switch()
    return list(found.values())


def worker_here():
    """The thread's own worker, by its thread-local; not always to be had in a core."""
    try:
        worker = gdb.parse_and_eval("weft__worker_here")
        return worker if int(worker) else None
    except gdb.error:
        return None


def runtime_in(frame):
    """The runtime, by a variable of the frame of a function that has one."""
    for name in ("w", "rt"):
        try:
            value = frame.read_var(name)
            kind = str(value.type.strip_typedefs())
            if value.is_optimized_out or int(value) == 0:
                continue
            if kind == "struct weft__worker *":
                return value["rt"]
            if kind == "struct weft_runtime *":
                return value
        except (ValueError, gdb.error, RuntimeError):
            continue
    return None


def tasks(rt):
    chunk = rt["depot"]["chunks"]
    fresh = int(rt["depot"]["fresh"])
    while int(chunk):
        slots = chunk["tasks"]
        size = slots.type.range()[1] + 1
        for i in range(size - fresh):
            if raw(slots[i]["id"]):
                yield slots[i]
        fresh = 0
        chunk = chunk["next"]


def running(rt):
    """Task address -> the number of the worker that runs it."""
    answer = {}
    for i in range(int(rt["workers"])):
        current = rt["worker"][i]["current"]
        if int(current):
            answer[int(current)] = i
    return answer


def state_of(task, on):
    if raw(task["refs"]) & DONE:
        return "done"
    if int(task.address) in on:
        return "running on %d" % on[int(task.address)]
    if raw(task["parker"]["word"]) & PHASE == WAITING:
        return "waiting"
    if not is_poll(task) and not strand(task):
        return "not started"
    return "ready"


def is_poll(task):
    return int(task["flags"]) & POLL != 0


def strand(task):
    """Its stack's head, 0 before the first run (small numbers: how far that has come)."""
    address = raw(task["u"]["f"]["strand"])
    return address if address > 4096 else 0


def describe(task, on):
    what = text(task["parker"]["what"])
    object_ = raw(task["parker"]["object"])
    return "task %#x  %-20s %-12s %s%s" % (
        raw(task["id"]),
        text(task["name"]),
        state_of(task, on),
        what,
        " on %#x" % object_ if object_ and what != "-" else "",
    )


class FiberUnwinder(gdb.unwinder.Unwinder):
    """Below the innermost frame comes the fiber that is being shown."""

    def __init__(self):
        super().__init__("weft-fiber")
        self.from_sp = self.sp = self.pc = None

    def __call__(self, pending):
        if self.sp is None:
            return None
        names = REGISTERS.get(pending.architecture().name().split(":")[0])
        if names is None or int(pending.read_register(names[0])) != self.from_sp:
            return None
        word = gdb.lookup_type("unsigned long")
        # A place below the fiber's stack: gdb takes frames for corrupt that go inward.
        below = gdb.Value(self.sp - 16).cast(word)
        info = pending.create_unwind_info(FrameId(below, pending.read_register(names[1])))
        info.add_saved_register(names[0], gdb.Value(self.sp).cast(word))
        info.add_saved_register(names[1], gdb.Value(self.pc).cast(word))
        return info


REGISTERS = {"i386": ("rsp", "rip"), "aarch64": ("sp", "pc")}


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


unwinder = FiberUnwinder()
gdb.unwinder.register_unwinder(None, unwinder, replace=True)


def backtrace(task):
    kind = gdb.lookup_type("weft__strand").pointer()
    sp = int(gdb.Value(strand(task)).cast(kind)["context"]["sp"])
    newest = gdb.newest_frame()
    unwinder.from_sp = int(newest.read_register("sp")) & (2**64 - 1)
    unwinder.pc = int(gdb.parse_and_eval("(unsigned long)&weft__context_parked"))
    unwinder.sp = sp
    gdb.invalidate_cached_frames()
    try:
        gdb.execute("bt")
    finally:
        unwinder.sp = None
        gdb.invalidate_cached_frames()


def chosen(argument):
    if not argument:
        return runtimes()
    return [gdb.parse_and_eval(argument).dereference()]


class Tasks(gdb.Command):
    """weft-tasks [RUNTIME]: the tasks, one a line: id, name, state, what it waits for."""

    def __init__(self):
        super().__init__("weft-tasks", gdb.COMMAND_STATUS)

    def invoke(self, argument, from_tty):
        found = chosen(argument)
        if not found:
            print("no runtime found in any thread; name one: weft-tasks RT")
        for rt in found:
            on = running(rt)
            print("runtime %#x (%s)" % (int(rt.address), rt["name"].string()))
            for task in tasks(rt):
                print("  " + describe(task, on))


class Backtrace(gdb.Command):
    """weft-bt [ID]: the backtrace of the parked fiber with that id, or of all."""

    def __init__(self):
        super().__init__("weft-bt", gdb.COMMAND_STACK)

    def invoke(self, argument, from_tty):
        wanted = int(gdb.parse_and_eval(argument)) if argument else None
        shown = 0
        for rt in runtimes():
            on = running(rt)
            for task in tasks(rt):
                if wanted is not None and raw(task["id"]) != wanted:
                    continue
                shown += 1
                print(describe(task, on))
                if is_poll(task):
                    print("  a poll task has no stack")
                elif not strand(task) or raw(task["refs"]) & DONE:
                    print("  has no stack now")
                elif int(task.address) in on:
                    print("  runs: see the thread of its worker")
                else:
                    backtrace(task)
        if wanted is not None and not shown:
            print("no such task")


Tasks()
Backtrace()
