/* SPDX-License-Identifier: MIT
 *
 * hello.c -- three fibers, each of which sleeps for a while and then sends its word
 * into a channel; a fourth prints them as they come. It takes as long as the longest
 * sleep, not as long as all of them.
 */
#include <weft/weft.h>

#include <stdio.h>

struct word {
    weft_channel *to;
    const char *text;
    weft_time delay;
};

static int say(void *arg)
{
    const struct word *word = arg;
    int error = weft_sleep(word->delay);
    return error ? error : weft_channel_send(word->to, &word->text, weft_after(WEFT_SEC));
}

static int hello(void *arg)
{
    weft_channel *words = arg;
    /* Static, for a fiber may outlive this function when it returns early. */
    static struct word three[] = {{NULL, "weft\n", 60 * WEFT_MSEC},
                                  {NULL, "Hello, ", 20 * WEFT_MSEC},
                                  {NULL, "from ", 40 * WEFT_MSEC}};
    for (int i = 0; i < 3; i++) {
        three[i].to = words;
        int error = weft_go(say, &three[i]);
        if (error)
            return error;
    }
    for (int i = 0; i < 3; i++) {
        const char *text;
        int error = weft_channel_recv(words, &text, weft_after(10 * WEFT_SEC));
        if (error)
            return error;
        fputs(text, stdout);
    }
    return 0;
}

int main(void)
{
    weft_channel *words = NULL;
    int result = 0;
    int error = weft_channel_new(sizeof(const char *), 0, NULL, &words);
    if (!error)
        error = weft_run(NULL, hello, words, &result);
    weft_channel_unref(words);
    if (error || result)
        fprintf(stderr, "hello: %s\n", weft_strerror(error ? error : result));
    return error || result;
}
