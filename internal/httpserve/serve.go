// Package httpserve serves HTTP until it is to end.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// calmEnd is how long requests that are under way may take once the server is to end.
const calmEnd = 5 * time.Second

// Serve answers requests until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	stopped := context.AfterFunc(ctx, func() {
		calm, cancel := context.WithTimeout(context.WithoutCancel(ctx), calmEnd)
		defer cancel()
		if server.Shutdown(calm) != nil {
			_ = server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// RefuseOtherHosts refuses names that are not of this machine. A server that asks for no token needs
// it: a page of somebody else could give its own name the server's address, and read what is here.
func RefuseOtherHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			name = r.Host
		}
		if ip := net.ParseIP(strings.Trim(name, "[]")); name != "localhost" && ip == nil {
			http.Error(w, fmt.Sprintf("host %q is not known here: use localhost, or the address", name), http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
