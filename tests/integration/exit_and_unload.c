/* SPDX-License-Identifier: MIT
 *
 * A process ends, and the library is unloaded, at any moment: returning from main with a
 * busy runtime keeps the exit status and takes no time; dlopen, use, dlclose again and
 * again leaves no thread behind; dlclose with a live runtime does not pull the code away
 * from under its threads. */
#include "unit_test.h"

#include <dlfcn.h>
#include <unistd.h>

#include "harness.h"
#include "resources.h"
#include "weft/weft.h"

static int busy(void *arg)
{
    (void)arg;
    for (unsigned i = 0;; i++)
        if (i % 64 ? weft_yield() : weft_sleep(10 * WEFT_USEC))
            return 0;
}

static int leave_main(void)
{
    static weft_runtime *rt; /* still known at exit: not a leak */
    static weft_fd *a, *b;
    if (weft_runtime_new(&(weft_runtime_options){.workers = 3}, &rt) || weft_unix_pair(&a, &b))
        return 1;
    for (int i = 0; i < 20; i++)
        if (weft_spawn(rt, busy, NULL, NULL, NULL))
            return 1;
    usleep(20000);
    return 7;
}

/* ---- By name, as a plug-in would ---- */

struct api {
    void *library;
    int (*runtime_new)(const weft_runtime_options *, weft_runtime **);
    weft_runtime *(*runtime_free)(weft_runtime *);
    int (*spawn)(weft_runtime *, weft_fn, void *, const weft_spawn_options *, weft_task **);
    int (*join)(weft_task *, weft_time, int *);
    weft_task *(*unref)(weft_task *);
    int (*sleep)(weft_time);
};

static void *symbol(void *library, const char *name)
{
    void *s = dlsym(library, name);
    if (!s) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return s;
}

#define GET(api, field, name) (*(void **)&(api)->field = symbol((api)->library, name))

static void load(struct api *api)
{
    api->library = dlopen(WEFT_SHARED, RTLD_NOW | RTLD_LOCAL);
    if (!api->library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    GET(api, runtime_new, "weft_runtime_new");
    GET(api, runtime_free, "weft_runtime_free");
    GET(api, spawn, "weft_spawn");
    GET(api, join, "weft_task_join");
    GET(api, unref, "weft_task_unref");
    GET(api, sleep, "weft_sleep");
}

static int naps(void *arg)
{
    struct api *api = arg;
    return api->sleep(WEFT_MSEC) == 0 ? 3 : -1;
}

static int load_and_unload(void)
{
    struct resources before = {0}, after;
    char why[512];
    for (int i = 0; i < 30; i++) {
        struct api api;
        weft_runtime *rt;
        weft_task *t;
        int result = 0;
        load(&api);
        if (api.runtime_new(&(weft_runtime_options){.workers = 2}, &rt) ||
            api.spawn(rt, naps, &api, NULL, &t) || api.join(t, WEFT_NEVER, &result) || result != 3)
            return 1;
        api.unref(t);
        api.runtime_free(rt);
        if (dlclose(api.library))
            return 1;
        if (i == 0)
            resources_take(&before);
    }
    if (!resources_same(&before, &after, NULL, why, sizeof why)) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    return 0;
}

static int naps_for_ever(void *arg)
{
    struct api *api = arg;
    while (api->sleep(100 * WEFT_USEC) == 0)
        ;
    return 0;
}

static int unload_alive(void)
{
    static struct api api;
    static weft_runtime *rt;
    load(&api);
    if (api.runtime_new(&(weft_runtime_options){.workers = 2}, &rt))
        return 1;
    for (int i = 0; i < 8; i++)
        if (api.spawn(rt, naps_for_ever, &api, NULL, NULL))
            return 1;
    usleep(10000);
    dlclose(api.library);
    usleep(100000); /* its workers work on */
    return 5;
}

static const struct {
    const char *name;
    int (*run)(void);
    int status;
} ways[] = {{"leave_main", leave_main, 7},
            {"load_and_unload", load_and_unload, 0},
            {"unload_alive", unload_alive, 5}};

static void check(size_t way)
{
    char output[4096];
    char self[] = "/proc/self/exe", name[32];
    snprintf(name, sizeof name, "%s", ways[way].name);
    for (int i = 0; i < 5; i++) {
        int status = test_run((char *[]){self, name, NULL}, 60000, output, sizeof output);
        if (status != ways[way].status)
            fail_msg("%s ended with %d:\n%s", name, status, output);
    }
}

static void main_is_left(void **state)
{
    (void)state;
    check(0);
}

static void the_library_comes_and_goes(void **state)
{
    (void)state;
    check(1);
}

static void the_library_goes_while_it_works(void **state)
{
    (void)state;
    check(2);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (strcmp(argv[1], ways[i].name) == 0)
            return ways[i].run();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(main_is_left),
        cmocka_unit_test(the_library_comes_and_goes),
        cmocka_unit_test(the_library_goes_while_it_works),
    };
    test_limit(110, "exit_and_unload");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
