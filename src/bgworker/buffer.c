/* SPDX-License-Identifier: MIT
 *
 * buffer.c -- see weft/buffer.h. A copy lies right behind the header, in one block.
 */
#include "weft/buffer.h"

#include "base/atomic.h"
#include "base/base.h"

#include <errno.h>
#include <string.h>

struct weft_buffer {
    weft__a32 refs;
    weft_buffer_destroy_fn destroy;
    void *arg;
    void *data;
    size_t size;
};

int weft_buffer_copy(const void *data, size_t size, weft_buffer **ret)
{
    if (!ret)
        return -EINVAL;
    if (size > SIZE_MAX / 2 - sizeof(weft_buffer))
        return -ENOMEM;
    weft_buffer *b = weft__malloc(sizeof *b + size);
    if (!b)
        return -ENOMEM;
    *b = (weft_buffer){.refs = {1}, .data = b + 1, .size = size};
    if (data && size)
        memcpy(b->data, data, size);
    else
        memset(b->data, 0, size);
    *ret = b;
    return 0;
}

int weft_buffer_wrap(void *data, size_t size, weft_buffer_destroy_fn destroy, void *arg,
                     weft_buffer **ret)
{
    if (!ret || (!data && size))
        return -EINVAL;
    weft_buffer *b = weft__malloc(sizeof *b);
    if (!b)
        return -ENOMEM;
    *b = (weft_buffer){.refs = {1}, .destroy = destroy, .arg = arg, .data = data, .size = size};
    *ret = b;
    return 0;
}

weft_buffer *weft_buffer_ref(weft_buffer *b)
{
    if (b)
        atom_add_rlx(&b->refs, 1u);
    return b;
}

weft_buffer *weft_buffer_unref(weft_buffer *b)
{
    if (!b)
        return NULL;
    /* Alone with it there is nobody to agree with. Pairs with the other unrefs. */
    uint32_t refs = atom_load_acq(&b->refs);
    if (refs != 1)
        refs = atom_sub_ar(&b->refs, 1u);
    WEFT__CHECK(refs != 0);
    if (refs == 1) {
        if (b->destroy)
            b->destroy(b->data, b->size, b->arg);
        weft__free(b);
    }
    return NULL;
}

void *weft_buffer_data(const weft_buffer *b)
{
    return b ? b->data : NULL;
}

size_t weft_buffer_size(const weft_buffer *b)
{
    return b ? b->size : 0;
}
