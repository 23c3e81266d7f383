// SPDX-License-Identifier: MIT
package main

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
)

// An echo server on one processor; never returns.
func echo(port string) {
	runtime.GOMAXPROCS(1)
	l, err := net.Listen("tcp", "127.0.0.1:"+port)
	check(err == nil, "listen")
	fmt.Println("ready")
	for {
		c, err := l.Accept()
		check(err == nil, "accept")
		go func() {
			defer c.Close()
			var buffer [1024]byte
			for {
				n, err := c.Read(buffer[:])
				if err != nil {
					return
				}
				if _, err = c.Write(buffer[:n]); err != nil {
					return
				}
			}
		}()
	}
}

// A file server; never returns.
func serveFiles(port, root string, workers int) {
	runtime.GOMAXPROCS(workers)
	err := http.ListenAndServe("127.0.0.1:"+port, http.FileServer(http.Dir(root)))
	check(false, err.Error())
}
