/* SPDX-License-Identifier: MIT
 *
 * weft's timers inside somebody else's poll loop: the loop also reads a pipe, into which a
 * second thread writes, and that thread sets a timer, too. No runtime, no weft thread.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include <weft/timer.h>

struct app {
    weft_timer_service *timers;
    weft_timer tick, timeout, from_thread;
    int pipe[2];
    int ticks;
    int done;
};

static void on_tick(weft_timer *t, void *arg, int result)
{
    struct app *app = arg;
    if (result != 0)
        return; /* -ESHUTDOWN: the service closes */
    printf("tick %d\n", ++app->ticks);
    if (app->ticks == 3)
        weft_timer_cancel(t);
}

static void on_timeout(weft_timer *t, void *arg, int result)
{
    (void)t;
    (void)arg;
    if (result == 0)
        printf("the peer was too slow\n"); /* not printed: it is cancelled in time */
}

static void on_thread_timer(weft_timer *t, void *arg, int result)
{
    struct app *app = arg;
    (void)t;
    if (result == 0)
        printf("the thread's timer\n");
    app->done = 1;
}

/* Another thread: the loop sleeps, and is woken because this timer is the nearest. */
static void *peer(void *arg)
{
    struct app *app = arg;
    struct timespec pause = {0, 35000000};
    nanosleep(&pause, NULL);
    if (write(app->pipe[1], "hi", 2) != 2)
        perror("write");
    weft_timer_arm_after(&app->from_thread, 20 * WEFT_MSEC);
    return NULL;
}

static int loop(struct app *app)
{
    struct pollfd fds[2] = {
        {.fd = app->pipe[0], .events = POLLIN},
        {.fd = weft_timer_service_fd(app->timers), .events = POLLIN},
    };
    while (!app->done) {
        weft_time until;
        int plan = weft_timer_service_prepare_wait(app->timers, NULL, &until);
        if (plan < 0 || poll(fds, 2, weft_wait_milliseconds(plan, weft_now(), until)) < 0)
            return 1;
        if (fds[0].revents & POLLIN) {
            char text[16];
            ssize_t n = read(app->pipe[0], text, sizeof text);
            printf("read %zd bytes in time: %s\n", n,
                   weft_timer_cancel(&app->timeout) == 1 ? "yes" : "no");
        }
        weft_timer_service_turn(app->timers, weft_now(), NULL);
    }
    return 0;
}

int main(void)
{
    struct app app = {0};
    pthread_t thread;
    if (pipe(app.pipe) || weft_timer_service_create(weft_now(), NULL, &app.timers))
        return 1;
    weft_timer_context *c = weft_timer_service_context(app.timers);
    weft_timer_init(&app.tick, c, on_tick, &app, 0);
    weft_timer_init(&app.timeout, c, on_timeout, &app, 0);
    weft_timer_init(&app.from_thread, c, on_thread_timer, &app, 0);
    weft_timer_arm_every(&app.tick, weft_after(10 * WEFT_MSEC), 10 * WEFT_MSEC, WEFT_INTERVAL_SKIP);
    weft_timer_arm_after(&app.timeout, 60 * WEFT_SEC);
    if (pthread_create(&thread, NULL, peer, &app))
        return 1;
    int failed = loop(&app);
    pthread_join(thread, NULL);
    weft_timer_service_destroy(app.timers);
    close(app.pipe[0]);
    close(app.pipe[1]);
    return failed;
}
