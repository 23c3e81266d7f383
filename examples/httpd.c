/* SPDX-License-Identifier: MIT
 *
 * httpd.c -- a server of static files over HTTP/1.1, one fiber per connection.
 *
 *   httpd [-a ADDRESS] [-p PORT] [-w WORKERS] [-t SECONDS] ROOT
 *
 *   -a  numeric address to listen on (127.0.0.1)
 *   -p  port (8080); 0 takes a free one, printed on the first line
 *   -w  worker threads (as many as there are processors)
 *   -t  how long a client may take for one request, for one piece of an answer, and
 *       between two requests (15)
 *
 * Requests are parsed by http_parser. A connection is straight-line code: read a
 * request, answer it, again; a slow client runs into the deadline of a read or of a
 * write. The file system is the kernel's: a path is opened beneath ROOT and nowhere
 * else, whatever it contains. SIGINT or SIGTERM ends the server in order: no new
 * connections, the answers that are under way are finished.
 */
#include <weft/weft.h>

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <http_parser.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TARGET_MAX = 2048,    /* bytes of a request's target */
    HEADERS_MAX = 16384,  /* of its line and headers */
    BODY_MAX = 65536,     /* of a body, which nobody wants */
    INLINE_MAX = 16384,   /* of a file that is sent in one piece with its header */
    LINGER_MAX = 1 << 20, /* read and dropped before a connection is closed on an error */
    CONNECTIONS_MAX = 50000,
    GONE = -1, /* in place of a status: there is nobody to answer */
};

struct server {
    weft_fd *listener;
    int root;
    weft_time patience;
    atomic_bool stopping;
    atomic_uint busy; /* requests being answered */
    atomic_ullong served;
};

struct connection {
    struct server *server;
    weft_fd *fd;
    http_parser parser;
    /* The request: */
    char target[TARGET_MAX + 1];
    size_t target_length, body;
    int refusal; /* status found while parsing, 0: none */
    bool complete, keep_alive, has_host;
    char field[8]; /* the start of the header name under way */
    size_t field_length;
    /* What was read and not yet parsed: */
    size_t start, end;
    char in[4096];
};

/* ---- Parsing ---- */

static int refuse(struct connection *c, int status)
{
    c->refusal = status;
    return -1; /* makes the parser stop */
}

static int on_begin(http_parser *parser)
{
    struct connection *c = parser->data;
    c->target_length = c->field_length = 0;
    c->has_host = false;
    return 0;
}

static int on_url(http_parser *parser, const char *at, size_t length)
{
    struct connection *c = parser->data;
    if (length > TARGET_MAX - c->target_length)
        return refuse(c, 414);
    memcpy(c->target + c->target_length, at, length);
    c->target_length += length;
    c->target[c->target_length] = '\0';
    return 0;
}

/* Names come in pieces; a value in between starts the next name. */
static int on_field(http_parser *parser, const char *at, size_t length)
{
    struct connection *c = parser->data;
    for (size_t i = 0; i < length; i++) {
        if (c->field_length < sizeof c->field)
            c->field[c->field_length] = (char)tolower((unsigned char)at[i]);
        c->field_length++;
    }
    return 0;
}

static int on_value(http_parser *parser, const char *at, size_t length)
{
    struct connection *c = parser->data;
    (void)at;
    (void)length;
    if (c->field_length == 4 && memcmp(c->field, "host", 4) == 0)
        c->has_host = true;
    c->field_length = 0;
    return 0;
}

static int on_headers(http_parser *parser)
{
    struct connection *c = parser->data;
    if (parser->http_major != 1)
        return refuse(c, 505);
    if (parser->http_minor >= 1 && !c->has_host)
        return refuse(c, 400);
    if (parser->method != HTTP_GET && parser->method != HTTP_HEAD)
        return refuse(c, 405);
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t length)
{
    struct connection *c = parser->data;
    (void)at;
    c->body += length;
    return c->body > BODY_MAX ? refuse(c, 413) : 0;
}

static int on_complete(http_parser *parser)
{
    struct connection *c = parser->data;
    c->complete = true;
    c->keep_alive = http_should_keep_alive(parser);
    http_parser_pause(parser, 1); /* the next request may stand behind it */
    return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

static int status_of_error(const struct connection *c)
{
    if (c->refusal)
        return c->refusal;
    switch (HTTP_PARSER_ERRNO(&c->parser)) {
    case HPE_INVALID_METHOD:
        return 501;
    case HPE_INVALID_VERSION:
        return 505;
    case HPE_HEADER_OVERFLOW:
        return 431;
    default:
        return 400;
    }
}

/* Reads on until a request is complete: its status so far (200 or a refusal), or GONE. */
static int read_request(struct connection *c)
{
    size_t seen = 0;
    weft_time idle = weft_after(c->server->patience), limit = WEFT_NEVER;
    c->complete = false;
    c->refusal = 0;
    c->body = 0;
    for (;;) {
        if (c->start == c->end) {
            ssize_t n = weft_fd_read(c->fd, c->in, sizeof c->in, seen ? limit : idle);
            if (n == -ETIMEDOUT && seen)
                return 408;
            if (n <= 0)
                return GONE;
            c->start = 0;
            c->end = (size_t)n;
        }
        if (!seen)
            limit = weft_after(c->server->patience);
        size_t n = http_parser_execute(&c->parser, &settings, c->in + c->start, c->end - c->start);
        c->start += n;
        seen += n;
        if (seen - c->body > HEADERS_MAX)
            return 431;
        if (c->complete) {
            http_parser_pause(&c->parser, 0);
            return 200;
        }
        if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK)
            return status_of_error(c);
    }
}

/* ---- Files ---- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The path of the target, decoded, without its first slash. False: malformed. */
static bool decode_path(struct connection *c, char path[TARGET_MAX + 16])
{
    struct http_parser_url url;
    http_parser_url_init(&url);
    if (http_parser_parse_url(c->target, c->target_length, 0, &url) ||
        !(url.field_set & 1 << UF_PATH))
        return false;
    const char *from = c->target + url.field_data[UF_PATH].off;
    const char *end = from + url.field_data[UF_PATH].len;
    char *to = path;
    while (from < end && *from == '/')
        from++;
    for (; from < end; from++) {
        char byte = *from;
        if (byte == '%') {
            int high = end - from > 2 ? hex(from[1]) : -1, low = high < 0 ? -1 : hex(from[2]);
            if (low < 0)
                return false;
            byte = (char)(high << 4 | low);
            from += 2;
        }
        if (byte == '\0')
            return false;
        *to++ = byte;
    }
    *to = '\0';
    return true;
}

/* For kernels without openat2: one name after the other, no "..", no symbolic links. */
static int open_by_steps(int root, const char *path, int flags)
{
    char name[256];
    int at = fcntl(root, F_DUPFD_CLOEXEC, 0);
    while (at >= 0) {
        size_t length = strcspn(path, "/");
        const char *rest = path + length + strspn(path + length, "/");
        if (length >= sizeof name || (length == 2 && memcmp(path, "..", 2) == 0)) {
            close(at);
            errno = length >= sizeof name ? ENAMETOOLONG : EXDEV;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = '\0';
        int next =
            openat(at, length ? name : ".",
                   *rest ? O_PATH | O_NOFOLLOW | O_CLOEXEC | O_DIRECTORY : flags | O_NOFOLLOW);
        int error = errno;
        close(at);
        errno = error;
        if (!*rest)
            return next;
        at = next;
        path = rest;
    }
    return -1;
}

/* Opens a path beneath root: ".." and symbolic links may not lead out of it. */
static int open_beneath(int root, const char *path)
{
    int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY; /* a FIFO must not hold us up */
    struct open_how how = {.flags = (unsigned)flags,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
    if (fd < 0 && (errno == ENOSYS || errno == EPERM))
        return open_by_steps(root, path, flags);
    return (int)fd;
}

static int status_of_errno(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ENAMETOOLONG:
        return 404;
    case EACCES:
    case EPERM:
    case ELOOP:
    case EXDEV: /* out of the root */
        return 403;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return 503;
    default:
        return 500;
    }
}

/* Opens what the request asks for. Status 200 with *ret_file and *ret_size set, 301 for
 * a directory without its final slash, or an error. `path` becomes that of the file. */
static int find_file(struct connection *c, char path[TARGET_MAX + 16], int *ret_file,
                     off_t *ret_size)
{
    struct stat st;
    if (!decode_path(c, path))
        return 400;
    size_t length = strlen(path);
    int file = open_beneath(c->server->root, path);
    if (file >= 0 && fstat(file, &st) == 0 && S_ISDIR(st.st_mode)) {
        close(file);
        if (length && path[length - 1] != '/')
            return 301;
        strcpy(path + length, "index.html");
        file = open_beneath(c->server->root, path);
    }
    if (file < 0)
        return status_of_errno(errno);
    if (fstat(file, &st) || !S_ISREG(st.st_mode)) {
        close(file);
        return 403;
    }
    *ret_file = file;
    *ret_size = st.st_size;
    return 200;
}

static const char *type_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".txt", "text/plain; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".json", "application/json"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".jpg", "image/jpeg"},
        {".gif", "image/gif"},
        {".webp", "image/webp"},
        {".pdf", "application/pdf"},
        {".wasm", "application/wasm"},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < sizeof types / sizeof *types; i++) {
        if (strcasecmp(dot, types[i][0]) == 0)
            return types[i][1];
    }
    return "application/octet-stream";
}

/* ---- Answers ---- */

static const char *reason_of(int status)
{
    switch (status) {
#define REASON(code, name, text)                                                                   \
    case code:                                                                                     \
        return #text;
        HTTP_STATUS_MAP(REASON)
#undef REASON
    default:
        return "Error";
    }
}

/* What a person reads who gets the answer. */
static const char *explain(int status)
{
    switch (status) {
    case 301:
        return "it is a directory; its address ends with a slash";
    case 400:
        return "the request could not be understood";
    case 403:
        return "this is not for you";
    case 404:
        return "there is no such file";
    case 405:
        return "only GET and HEAD are served here";
    case 408:
        return "the request took too long to arrive";
    case 413:
        return "the body is too large";
    case 414:
        return "the address is too long";
    case 431:
        return "the headers are too large";
    case 501:
        return "the method is unknown";
    case 503:
        return "the server is out of resources, try again";
    case 505:
        return "only HTTP/1 is spoken here";
    default:
        return "something went wrong";
    }
}

struct text {
    char bytes[TARGET_MAX + 1024];
    size_t length;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->bytes + t->length, sizeof t->bytes - t->length, format, args);
    va_end(args);
    if (n > 0)
        t->length += (size_t)n;
    if (t->length >= sizeof t->bytes)
        t->length = sizeof t->bytes - 1;
}

static void add_header(struct text *t, const struct connection *c, int status, const char *type,
                       long long size)
{
    char date[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    add(t, "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %lld\r\n", status,
        reason_of(status), date, type, size);
    if (status == 405)
        add(t, "Allow: GET, HEAD\r\n");
    if (!c->keep_alive)
        add(t, "Connection: close\r\n");
    else if (c->parser.http_minor == 0)
        add(t, "Connection: keep-alive\r\n");
}

static bool wants_body(const struct connection *c)
{
    return !c->complete || c->parser.method != HTTP_HEAD;
}

static int send_text(struct connection *c, const struct text *t)
{
    return weft_fd_write_full(c->fd, t->bytes, t->length, weft_after(c->server->patience), NULL);
}

static int send_error(struct connection *c, int status)
{
    struct text t = {.length = 0}, body = {.length = 0};
    add(&body, "%d %s: %s\n", status, reason_of(status), explain(status));
    add_header(&t, c, status, "text/plain; charset=utf-8", (long long)body.length);
    if (status == 301) {
        size_t path = strcspn(c->target, "?#"), skip = strspn(c->target, "/");
        if (skip > 0) /* one slash in front: "//host" would lead elsewhere */
            add(&t, "Location: /%.*s/\r\n", (int)(path - skip), c->target + skip);
    }
    add(&t, "\r\n");
    if (wants_body(c))
        add(&t, "%s", body.bytes);
    return send_text(c, &t);
}

/* The header and the start of the file in one piece, the rest by sendfile. A file that
 * shrinks meanwhile leaves the answer short: then the connection has to end. */
static int send_file(struct connection *c, int file, off_t size, const char *path)
{
    struct text t = {.length = 0};
    char start[INLINE_MAX];
    add_header(&t, c, 200, type_of(path), (long long)size);
    add(&t, "\r\n");
    if (!wants_body(c) || size == 0)
        return send_text(c, &t);
    off_t sent = 0;
    if (size <= INLINE_MAX) {
        ssize_t n = pread(file, start, (size_t)size, 0);
        if (n != size)
            return -EIO;
        struct iovec pieces[2] = {{t.bytes, t.length}, {start, (size_t)n}};
        ssize_t w = weft_fd_writev(c->fd, pieces, 2, weft_after(c->server->patience));
        if (w < 0)
            return (int)w;
        if ((size_t)w < t.length)
            return -EPIPE; /* no room for a header: not worth going on */
        sent = w - (off_t)t.length;
    } else {
        int error = send_text(c, &t);
        if (error)
            return error;
    }
    while (sent < size) {
        ssize_t n = weft_fd_sendfile(c->fd, file, sent, (size_t)(size - sent),
                                     weft_after(c->server->patience));
        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        sent += n;
    }
    return 0;
}

/* Answers the request that was read, with the given status so far. */
static int answer(struct connection *c, int status)
{
    char path[TARGET_MAX + 16];
    int file = -1;
    off_t size = 0;
    if (status == 200)
        status = find_file(c, path, &file, &size);
    else
        c->keep_alive = false; /* where the next request begins is not known */
    if (atomic_load(&c->server->stopping))
        c->keep_alive = false;
    if (status != 200)
        return send_error(c, status);
    int error = send_file(c, file, size, path);
    close(file);
    return error;
}

/* ---- Connections ---- */

/* Closing with input unread would reset the connection, and the answer with it. */
static void linger(struct connection *c)
{
    weft_time limit = weft_after(WEFT_SEC);
    size_t dropped = 0;
    ssize_t n;
    if (weft_fd_shutdown(c->fd, WEFT_SHUT_WRITE))
        return;
    while (dropped < LINGER_MAX && (n = weft_fd_read(c->fd, c->in, sizeof c->in, limit)) > 0)
        dropped += (size_t)n;
}

struct guest {
    struct server *server;
    weft_fd *fd;
};

static int serve(void *arg)
{
    struct guest *guest = arg;
    struct connection c;
    c.server = guest->server;
    c.fd = guest->fd;
    free(guest);
    c.start = c.end = 0;
    http_parser_init(&c.parser, HTTP_REQUEST);
    c.parser.data = &c;
    c.keep_alive = true;
    int error = 0;
    while (c.keep_alive && !error) {
        int status = read_request(&c);
        if (status == GONE)
            break;
        atomic_fetch_add(&c.server->busy, 1);
        error = answer(&c, status);
        atomic_fetch_add(&c.server->served, 1);
        atomic_fetch_sub(&c.server->busy, 1);
        if (!error && !c.keep_alive)
            linger(&c);
    }
    weft_fd_unref(c.fd);
    return error;
}

static int accept_all(void *arg)
{
    struct server *s = arg;
    weft_fd *fd;
    int error;
    while ((error = weft_tcp_accept(s->listener, WEFT_NEVER, &fd)) != -EPIPE &&
           error != -ECANCELED) {
        if (error) {
            fprintf(stderr, "httpd: accept: %s\n", weft_strerror(error));
            continue; /* accept has paused */
        }
        weft_spawn_options named = {.name = "connection"};
        struct guest *guest = malloc(sizeof *guest);
        if (guest) {
            *guest = (struct guest){s, fd};
            if (weft_spawn(NULL, serve, guest, &named, NULL) == 0)
                continue;
        }
        free(guest);
        weft_fd_unref(fd);
    }
    return 0;
}

/* ---- The program ---- */

/* Waits for a signal, then until the answers under way are out. */
static void run_until_signal(struct server *s, weft_runtime *rt, const sigset_t *signals)
{
    int number = 0;
    while (sigwait(signals, &number)) {
    }
    atomic_store(&s->stopping, true);
    weft_fd_close(s->listener);
    weft_time limit = weft_after(s->patience);
    while (atomic_load(&s->busy) && weft_now() < limit)
        weft_sleep(5 * WEFT_MSEC);
    weft_runtime_free(rt); /* ends the connections that are idle */
    printf("ended by %s after %llu requests\n", strsignal(number), atomic_load(&s->served));
}

static int usage(void)
{
    fprintf(stderr, "usage: httpd [-a ADDRESS] [-p PORT] [-w WORKERS] [-t SECONDS] ROOT\n");
    return 2;
}

static int fail(const char *what, int error)
{
    fprintf(stderr, "httpd: %s: %s\n", what, weft_strerror(error));
    return 1;
}

int main(int argc, char **argv)
{
    const char *host = "127.0.0.1", *port = "8080";
    weft_runtime_options options = {.name = "httpd", .max_tasks = CONNECTIONS_MAX};
    struct server s = {.patience = 15 * WEFT_SEC};
    int option;
    while ((option = getopt(argc, argv, "a:p:w:t:")) != -1) {
        if (option == 'a')
            host = optarg;
        else if (option == 'p')
            port = optarg;
        else if (option == 'w')
            options.workers = (unsigned)atoi(optarg);
        else if (option == 't')
            s.patience = (weft_time)(atof(optarg) * 1e9);
        else
            return usage();
    }
    if (optind != argc - 1 || s.patience <= 0)
        return usage();

    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    char address[WEFT_ADDRESS_SIZE];
    weft_runtime *rt = NULL;
    s.root = open(argv[optind], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s.root < 0)
        return fail(argv[optind], -errno);
    snprintf(address, sizeof address, "%s:%s", host, port);
    int error = weft_tcp_listen(address, NULL, &s.listener);
    if (error)
        return fail(address, error);
    error = weft_runtime_new(&options, &rt);
    if (!error)
        error = weft_spawn(rt, accept_all, &s, NULL, NULL);
    if (error)
        return fail("start", error);
    weft_net_local(s.listener, address, sizeof address);
    printf("listening on http://%s\n", address);
    fflush(stdout);
    run_until_signal(&s, rt, &signals);
    weft_fd_unref(s.listener);
    close(s.root);
    return 0;
}
