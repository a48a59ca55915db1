package main

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// newReverseProxy returns the standard library's proxy as it should be used: it reads the request
// body first, because it loses streams otherwise (golang/go#40747), flushes after each read, reuses
// buffers, and keeps enough idle connections.
func newReverseProxy(upstream string) (http.Handler, error) {
	target, err := url.Parse("http://" + upstream)
	if err != nil {
		return nil, err
	}
	p := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		FlushInterval: -1,
		BufferPool:    newBuffers(),
		ErrorLog:      log.New(io.Discard, "", 0), // calls are cancelled on purpose
		Transport: &http.Transport{
			MaxIdleConns: 4096, MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
			ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		p.ServeHTTP(w, r)
	}), nil
}

// bufferPool is a bounded free list.
type bufferPool chan []byte

func newBuffers() bufferPool { return make(bufferPool, 1024) }

// Get implements httputil.BufferPool.
func (p bufferPool) Get() []byte {
	select {
	case b := <-p:
		return b
	default:
		return make([]byte, 4<<10)
	}
}

// Put implements httputil.BufferPool.
func (p bufferPool) Put(b []byte) {
	select {
	case p <- b:
	default:
	}
}
