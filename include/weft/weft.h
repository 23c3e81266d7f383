/* SPDX-License-Identifier: MIT
 *
 * weft/weft.h -- all of weft. Each header can also be included alone.
 */
#ifndef WEFT_WEFT_H
#define WEFT_WEFT_H

#include "weft/barrier.h"
#include "weft/base.h"
#include "weft/bgworker.h"
#include "weft/blocking.h"
#include "weft/broadcast.h"
#include "weft/buffer.h"
#include "weft/channel.h"
#include "weft/combine.h"
#include "weft/cond.h"
#include "weft/descriptor.h"
#include "weft/dns.h"
#include "weft/driven.h"
#include "weft/event.h"
#include "weft/file.h"
#include "weft/host.h"
#include "weft/io.h"
#include "weft/local.h"
#include "weft/metrics.h"
#include "weft/mutex.h"
#include "weft/net.h"
#include "weft/once.h"
#include "weft/pacer.h"
#include "weft/pollwait.h"
#include "weft/pool.h"
#include "weft/promise.h"
#include "weft/runtime.h"
#include "weft/rwlock.h"
#include "weft/scope.h"
#include "weft/select.h"
#include "weft/semaphore.h"
#include "weft/stall.h"
#include "weft/task.h"
#include "weft/timer.h"
#include "weft/value.h"
#include "weft/variable.h"
#include "weft/waitgroup.h"
#include "weft/waker.h"
#include "weft/watch.h"

#endif
