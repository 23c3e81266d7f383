/* SPDX-License-Identifier: MIT
 *
 * weft's timers inside a libuv loop. A uv_prepare handle asks for the plan before the loop
 * waits and puts it into one uv_timer; a uv_check handle turns the service afterwards; the
 * wake is a uv_async. Ten thousand weft timers thus cost the loop one timer of its own.
 */
#include <stdio.h>
#include <stdlib.h>

#include <uv.h>
#include <weft/timer.h>

#define COUNT 10000

struct bridge {
    weft_timer_service *timers;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_timer_t limit;
    uv_async_t wake;
    long fired;
};

static void on_limit(uv_timer_t *t)
{
    (void)t; /* it only ends the wait */
}

static void on_wake(uv_async_t *a)
{
    (void)a;
}

static void wake_loop(void *arg)
{
    uv_async_send(arg); /* from any thread */
}

static void before_wait(uv_prepare_t *p)
{
    struct bridge *b = p->data;
    weft_waker waker = {wake_loop, &b->wake};
    weft_time until;
    int plan = weft_timer_service_prepare_wait(b->timers, &waker, &until);
    int ms = weft_wait_milliseconds(plan, weft_now(), until);
    uv_update_time(p->loop);
    if (ms < 0)
        uv_timer_stop(&b->limit);
    else
        uv_timer_start(&b->limit, on_limit, (uint64_t)ms, 0);
}

static void close_all(struct bridge *b)
{
    uv_close((uv_handle_t *)&b->prepare, NULL);
    uv_close((uv_handle_t *)&b->check, NULL);
    uv_close((uv_handle_t *)&b->limit, NULL);
    uv_close((uv_handle_t *)&b->wake, NULL);
}

static void after_wait(uv_check_t *c)
{
    struct bridge *b = c->data;
    weft_timer_service_turn(b->timers, weft_now(), NULL);
    if (weft_timer_service_idle(b->timers))
        close_all(b);
}

static void on_timer(weft_timer *t, void *arg, int result)
{
    struct bridge *b = arg;
    (void)t;
    b->fired += result == 0;
}

int main(void)
{
    struct bridge b = {0};
    weft_timer_options options = {.local = true}; /* the loop's thread alone uses them */
    weft_timer *timer = calloc(COUNT, sizeof *timer);
    uv_loop_t *loop = uv_default_loop();
    if (!timer || weft_timer_service_create(weft_now(), &options, &b.timers))
        return 1;
    uv_prepare_init(loop, &b.prepare);
    uv_check_init(loop, &b.check);
    uv_timer_init(loop, &b.limit);
    uv_async_init(loop, &b.wake, on_wake);
    b.prepare.data = b.check.data = &b;
    uv_prepare_start(&b.prepare, before_wait);
    uv_check_start(&b.check, after_wait);
    for (int i = 0; i < COUNT; i++) {
        weft_timer_init(&timer[i], weft_timer_service_context(b.timers), on_timer, &b, 0);
        weft_timer_arm_after(&timer[i], (1 + i % 100) * WEFT_MSEC);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    printf("%ld of %d timers fired inside libuv\n", b.fired, COUNT);
    weft_timer_service_destroy(b.timers);
    free(timer);
    return b.fired == COUNT ? 0 : 1;
}
