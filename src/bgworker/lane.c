/* SPDX-License-Identifier: MIT
 *
 * lane.c -- where seats wait, and where tasks are made and handed to them. The protocol
 * is Q1 to Q6 in bgworker.h.
 *
 * Within a lane a thread that is awake and looks (spin.h) goes first, for that needs no
 * system call; else the seat that has waited longest, which goes round the lane's seats.
 * With the pickup decided under the lane's lock a hand-over costs one lock, one claim and
 * one unpark, and between two fibers of one processor no line that another one writes.
 *
 * A spare block is as weft__task_reset leaves it, so that making a task sets few fields.
 */
#include "bgworker/bgworker.h"

#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(WEFT_MODEL)
#define SPARE_MAX 0u /* a block that is used too late is to be found out */
#else
#define SPARE_MAX 64u
#endif

static weft_seat *of_node(weft__link *l)
{
    return weft__container(weft__container(l, weft__wait_node, link), weft_seat, node);
}

/* ---- Seats ---- */

static void unlink_seat(weft__lane *lane, weft_seat *seat)
{
    weft__list_remove(&seat->node.link);
    atom_store_rlx(&seat->in_lane, NULL);
    atom_store_rlx(&lane->waiting, atom_load_rlx(&lane->waiting) - 1);
}

weft__lane *weft__lane_enter(weft_seat *seat, uint32_t here, bool spins)
{
    weft_worker *w = seat->worker;
    weft__lane *lane = &w->lanes[here & w->lane_mask];
    seat->given = NULL;
    weft__acquire(&lane->lock);
    /* Q6, Q2: who stores these before it has the lock is seen, who has it later sees us. */
    bool enters = !atom_load_rlx(&seat->leaving) && atom_load_rlx(&w->queued) == 0;
    if (enters) {
        weft__list_push(spins ? &lane->awake : &lane->parked, &seat->node.link);
        atom_store_rlx(&seat->in_lane, lane);
        atom_store_rlx(&lane->waiting, atom_load_rlx(&lane->waiting) + 1);
    }
    weft__release(&lane->lock);
    return enters ? lane : NULL;
}

void weft__lane_sleeps(weft__lane *lane, weft_seat *seat)
{
    weft__acquire(&lane->lock);
    if (atom_load_rlx(&seat->in_lane)) {
        weft__list_remove(&seat->node.link);
        weft__list_push(&lane->parked, &seat->node.link);
    }
    weft__release(&lane->lock);
}

void weft__lane_leave(weft__lane *lane, weft_seat *seat)
{
    weft__acquire(&lane->lock);
    if (atom_load_rlx(&seat->in_lane) == lane)
        unlink_seat(lane, seat);
    weft__release(&lane->lock);
}

bool weft__lane_expel(weft__lane *lane, weft_seat *seat)
{
    weft__acquire(&lane->lock);
    bool here = atom_load_rlx(&seat->in_lane) == lane;
    if (here) {
        unlink_seat(lane, seat);
        here = weft__node_claim(&seat->node, -ESHUTDOWN);
    }
    weft__release(&lane->lock);
    return here;
}

/* Under the lane's lock: the next waiting seat, claimed; the caller owes its unpark. */
static weft_seat *claim_seat(weft__lane *lane)
{
    for (;;) {
        weft__link *l = weft__list_first(&lane->awake);
        if (!l)
            l = weft__list_first(&lane->parked);
        if (!l)
            return NULL;
        weft_seat *seat = of_node(l);
        unlink_seat(lane, seat);
        if (weft__node_claim(&seat->node, 0))
            return seat; /* else its wait has ended otherwise */
    }
}

void weft__seat_give(weft_seat *seat, weft__task *t)
{
    t->seat = seat;
    t->how_held = WEFT__HELD_NOT;
    if (atom_load_acq(&seat->slot)) /* pairs with the store that clears it */
        return;                     /* the seat itself puts it into its list */
    t->how_held = WEFT__HELD_SLOT;
    atom_store_rlx(&seat->slot_open, 1u);
    atom_store_rlx(&seat->first_id, t->id);
    atom_store_rlx(&seat->slot, t);
}

bool weft__lanes_have_waiting(weft_worker *w)
{
    for (uint32_t i = 0; i <= w->lane_mask; i++)
        if (atom_load_rlx(&w->lanes[i].waiting))
            return true;
    return false;
}

void weft__match(weft_worker *w, weft__after *after)
{
    for (uint32_t i = 0; i <= w->lane_mask && atom_load_rlx(&w->queued); i++) {
        weft__lane *lane = &w->lanes[i];
        weft_seat *seat;
        weft__acquire(&lane->lock);
        while (atom_load_rlx(&w->queued) && (seat = claim_seat(lane))) {
            weft__task *t = weft__take(w, after);
            if (t) /* else all had given up: the seat looks again */
                weft__seat_give(seat, t);
            seat->given = t;
            weft__wakes_add(&after->wakes, seat->node.parker);
        }
        weft__release(&lane->lock);
    }
}

/* ---- Blocks ---- */

void weft__task_recycle(weft__task *t)
{
    weft__lane *lane = t->lane;
    weft_worker *w = t->worker;
    weft__task_reset(t);
    weft__acquire(&lane->lock);
    bool kept = lane->spare_count + 1 <= SPARE_MAX;
    if (kept) {
        t->next = lane->spare;
        lane->spare = t;
        lane->spare_count++;
    }
    bool last = --lane->live == 0;
    weft__release(&lane->lock);
    if (!kept)
        weft__free(t);
    if (last && atom_sub_ar(&w->memory, 1u) == 1) /* pairs with the other lanes' */
        weft__worker_destroy(w);
}

void weft__lanes_close(weft_worker *w)
{
    uint32_t lanes = w->lane_mask + 1;
    for (uint32_t i = 0; i < lanes; i++) {
        weft__acquire(&w->lanes[i].lock);
        bool last = --w->lanes[i].live == 0;
        weft__release(&w->lanes[i].lock);
        /* Before the last lane is through, the worker stays. */
        if (last && atom_sub_ar(&w->memory, 1u) == 1) /* pairs with the other lanes' */
            weft__worker_destroy(w);
    }
}

/* ---- Handing over ---- */

/* Under the lane's lock. */
static void make(weft__offer *o, weft__lane *lane, weft__task *t)
{
    t->id = o->worker->first_id + lane->numbers++ * (o->worker->lane_mask + 1) + lane->index;
    t->payload = o->payload;
    t->posted = o->posted;
    t->called = o->called;
    t->pickup_deadline = o->deadline;
    if (o->reader)
        weft__list_push(&t->readers, &o->reader->link);
    lane->live++;
    o->task = t;
}

static bool hand_over(weft__offer *o, weft__lane *lane)
{
    weft_seat *seat = claim_seat(lane);
    if (!seat)
        return false;
    weft__seat_give(seat, o->task);
    seat->given = o->task;
    o->seat = seat;
    atom_store_rlx(&lane->sent, atom_load_rlx(&lane->sent) + 1);
    return true;
}

int weft__offer_make(weft__offer *o, uint32_t here, bool may_allocate)
{
    weft_worker *w = o->worker;
    weft__lane *lane = &w->lanes[here & w->lane_mask];
    weft__acquire(&lane->lock);
    weft__task *t = lane->spare;
    if (t) {
        lane->spare = t->next;
        lane->spare_count--;
    } else {
        weft__release(&lane->lock);
        if (!may_allocate)
            return -EAGAIN;
        t = weft__task_new(lane);
        if (!t)
            return -ENOMEM;
        weft__acquire(&lane->lock);
    }
    make(o, lane, t);
    bool done = !o->late && hand_over(o, lane);
    weft__release(&lane->lock);
    for (uint32_t i = 1; i <= w->lane_mask && !done && !o->late; i++) {
        lane = &w->lanes[(here + i) & w->lane_mask];
        if (atom_load_rlx(&lane->waiting) == 0)
            continue; /* only a hint: who queues looks again, under the locks */
        weft__acquire(&lane->lock);
        done = hand_over(o, lane);
        weft__release(&lane->lock);
    }
    return 0;
}

void weft__task_discard(weft__task *t)
{
    t->payload = NULL;
    weft__task_recycle(t);
}
